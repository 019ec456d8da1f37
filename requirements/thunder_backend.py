"""Thunder under a plain name, for ``--import requirements.thunder_backend``: its package registers none."""

from thunder.dynamo import ThunderCompiler
from torch._dynamo import register_backend

register_backend(ThunderCompiler(), name="thunder")
