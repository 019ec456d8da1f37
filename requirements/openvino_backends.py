"""OpenVINO with options under plain names, for ``--import requirements.openvino_backends``: a suite cannot set them.

``openvino_aot`` captures graphs by AOTAutograd. ``openvino_single`` computes graphs of one operator too, which torch
runs otherwise. ``openvino_f32`` computes float32 in float32 on every processor; ``openvino`` does so in bfloat16 where
the processor has it.
"""

from functools import partial

from openvino.frontend.pytorch.torchdynamo.backend import openvino
from torch._dynamo import register_backend

register_backend(partial(openvino, options={"aot_autograd": True}), name="openvino_aot")
register_backend(partial(openvino, options={"testing": True}), name="openvino_single")
register_backend(partial(openvino, options={"config": {"INFERENCE_PRECISION_HINT": "f32"}}), name="openvino_f32")
