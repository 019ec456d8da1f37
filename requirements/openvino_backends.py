"""OpenVINO with options under plain names, for ``--import requirements.openvino_backends``: a suite cannot set them.

``openvino_aot`` captures graphs by AOTAutograd. ``openvino_single`` computes graphs of one operator too, which torch runs otherwise.
"""

from functools import partial

from openvino.frontend.pytorch.torchdynamo.backend import openvino
from torch._dynamo import register_backend

register_backend(partial(openvino, options={"aot_autograd": True}), name="openvino_aot")
register_backend(partial(openvino, options={"testing": True}), name="openvino_single")
