"""Exceptions and packages of torch's compiler, by the names that stand in records of errors."""

from __future__ import annotations

from runner.worker.torch_private.doors import Door

_GRAPH_BREAK = "a graph break where none is allowed is a failure of the compiler"
_RUNTIME = Door(
    "torch._dynamo.exc:TorchRuntimeError", "an error of the model that Dynamo wraps is a failure of the compiler"
)
_UNSUPPORTED = Door("torch._dynamo.exc:Unsupported", _GRAPH_BREAK)
_LIMIT = Door("torch._dynamo.exc:FailOnRecompileLimitHit", "a recompilation too many is a failure of the compiler")
_RECOMPILE = Door("torch._dynamo.exc:RecompileError", "a recompilation that is forbidden is a failure of the compiler")

PACKAGES = ("torch._dynamo.", "torch._inductor.", "torch._functorch.")
"""How the names of all that belongs to the compiler begin."""
RUNTIME_ERROR = _RUNTIME.dotted
UNSUPPORTED = _UNSUPPORTED.dotted
RECOMPILE_ERRORS = frozenset({_LIMIT.dotted, _RECOMPILE.dotted})
for _door in (_RUNTIME, _UNSUPPORTED, _LIMIT, _RECOMPILE):
    _door.find()  # what is missing is said where any error is recorded
