"""Which names are operators, how each is written in Python, and what is refused.

Cases come from strangers. A name is an operator only if the inventory of ``runner/cases/torch_names.py`` or one of the
short tables below holds it. Everything else is refused, with the reason where there is a better one than "unknown".
``has_only_a_value`` says which steps surely do nothing besides giving a value, so that one whose value is not read is a
mistake.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

from runner.cases.model import Function, Literal, Ref, Step, Value
from runner.cases.operator_names import (
    BINARY,
    BUILTINS,
    CHECKS,
    CONTEXTS,
    EXTRA,
    IN_PLACE,
    SPECIAL,
    SUBNAMESPACES,
    UNARY,
)
from runner.cases.torch_names import inventory, with_namespace
from runner.cases.walk import values_of
from runner.diagnostics import nearest

ENUMS = {
    "nn.functional.ScalingType": (
        "TensorWise",
        "RowWise",
        "BlockWise1x16",
        "BlockWise1x32",
        "BlockWise1x128",
        "BlockWise128x128",
    ),
    "nn.functional.SwizzleType": ("NO_SWIZZLE", "SWIZZLE_32_4_4"),
}
"""Classes of constants that public operators take (F.scaled_mm, F.scaled_grouped_mm), without ``torch.``, and their
members."""

ATTRIBUTES_OF_VALUES = frozenset({
    # named results of torch operators
    "values", "indices", "sign", "logabsdet", "Q", "R", "U", "S", "V", "Vh", "L", "LU", "pivots", "P", "info",
    "eigenvalues", "eigenvectors", "solution", "residuals", "rank", "singular_values", "mantissa", "exponent", "min",
    "max", "hist", "bin_edges", "data", "batch_sizes", "sorted_indices", "unsorted_indices",
    # torch.distributions
    "sample", "rsample", "log_prob", "entropy", "mean", "variance", "stddev", "mode", "probs", "logits", "cdf", "icdf",
    "loc", "scale", "support",
    # numbers
    "bits", "eps", "tiny", "smallest_normal",
})  # fmt: skip
"""Attributes that ``$name.attr`` may reach besides a tensor's own; methods reached so could otherwise be called."""

METHODS_OF_ARRAYS = frozenset({
    "all", "any", "argmax", "argmin", "argsort", "clip", "conj", "cumprod", "cumsum", "diagonal", "dot", "flatten",
    "item", "max", "mean", "min", "nonzero", "prod", "put", "ravel", "repeat", "reshape", "round", "size",
    "sort", "squeeze", "std", "sum", "swapaxes", "take", "tolist", "trace", "transpose", "var", "view",
})  # fmt: skip
"""Methods of tensors that arrays of numpy have too.

Where a case calls numpy they are functions of ``torch.Tensor``, which take no array.
"""

UNCHECKED = (
    "nothing is known to check its arguments, and its kernel may read or write past a tensor's end where these are "
    "wrong"
)

TRUSTS = (
    "it trusts the indices or sizes that it is given, and reads or writes past a tensor's end where these are wrong"
)

REFUSED: tuple[tuple[str, str], ...] = (
    (r"(^|\.)__\w*|\.\w+__$", "dunder names reach past the operators into Python itself"),
    (r"^torch\.(load|save|from_file|serialization\b.*|package\b.*)|\.(from_file|tofile|dump|dumps|memmap|DataSource)$|"
     r"^aten\.(save|load|from_file|open)\b|^numpy\.(load|save|savez\w*|loadtxt|savetxt|fromfile|genfromtxt|fromregex)$",
     "it reads or writes files"),
    (r"^torch\.(hub|utils\.model_zoo|utils\.data|utils\.tensorboard|onnx|export)\b", "it reaches the network or "
        "loads code"),
    (r"^torch\.ops\b", "operators of torch.ops are written aten.NAME, prims.NAME or custom.NAMESPACE.NAME"),
    (r"^torch\.(compile|compiler|_dynamo|_inductor|_functorch|jit|fx|library|classes|_export)\b",
     "the backends compile; a case is what they compile"),
    (r"^torch\.(distributed|multiprocessing|futures|monitor)\b|^(nn|torch\.nn)\.(parallel|DataParallel)\b",
     "it starts processes or talks to other machines"),
    (r"^torch\.(set_\w+|manual_seed|seed|initial_seed|random\b.*|use_\w+|get_rng_state|set_rng_state|backends\b.*|"
     r"cuda\b.*|cpu\b.*|mps\b.*|xpu\b.*|accelerator\b.*|overrides\b.*|_C\b.*|autograd\.set_\w+|utils\b.*|"
     r"profiler\b.*|testing\b.*)",
     "it changes or reads the state of the process, which belongs to the runner"),
    (r"^Tensor\.(storage|untyped_storage|typed_storage|share_memory_|register_hook|"
        r"register_post_accumulate_grad_hook|apply_|map_|"
     r"map2_|module_load|reinforce|data_ptr|const_data_ptr|pin_memory|record_stream|ipu|xpu|mtia|set_|storage_type|"
     r"as_subclass)$",
     "it reaches past the tensor, into memory, storages or Python callbacks"),
    (r"^Tensor\.resize$", "torch has deprecated it, and the method of that name of numpy's arrays frees memory that "
        "tensors share"),
    (r"^nn\.(Module|Container|Sequential|ModuleList|ModuleDict|ParameterList|ParameterDict)$",
     "it holds other modules; write its parts as steps"),
    (r"^(os|sys|subprocess|shutil|socket|pathlib|importlib|pickle|io|ctypes|urllib|requests|tempfile|builtins|posix)\b",
     "it is no tensor operator"),
    (r"^builtin\.(eval|exec|open|compile|getattr|setattr|delattr|vars|globals|locals|input|breakpoint|type|object|"
        r"super|memoryview|help|exit|quit)$",
     "it runs code, opens files or changes objects"),
    (r"^builtin\.(str|repr|ascii|format|chr|bytes)$", "it makes texts, and compilers write texts into the code that "
        "they generate"),
    (r"^operator\.(attrgetter|methodcaller|itemgetter|setattr)$", "it reaches attributes by name"),
    (r"^(numpy)\.(from_dlpack|lib|ctypeslib|core|testing|f2py|distutils|vectorize|frompyfunc|seterr\w*|setbufsize|"
        r"random)\b",
     "it is outside numpy's array functions"),
    (r"^aten\.(_?pin_memory|record_stream)\b", "it reaches past the tensor, into memory, storages or Python callbacks"),
    (r"^aten\.(_sparse_\w+_unsafe|_sparse_coo_tensor_with_dims_and_tensors|_coalesced_?|_unsafe_(masked_)?index\w*|"
        r"_index_put_impl_?|"
     r"_reshape_alias(_copy)?|_nested_view_from_\w+|_convert_indices_from_\w+|_cslt_\w+|_sparse_semi_structured_\w+|"
     r"_sobol_engine_\w+|"
     r"_embedding_bag_(\w+_)?backward|embedding_((dense|sparse)_)?backward|_?segment_reduce(_backward)?|"
     r"_ctc_loss(_backward)?|"
     r"(max_pool[23]d_with_indices|adaptive_max_pool[23]d|fractional_max_pool[23]d)_backward|_fused_(adam|adamw|sgd|"
     r"adagrad)_?|"
     r"_cdist_backward|_pdist_backward|_?fused_moving_avg_obs_\w+|_sparse_mm_reduce_impl_backward|"
     r"mkldnn_rnn_layer(_backward)?|"
     r"_scaled_dot_product_flash_attention_for_cpu_backward|native_batch_norm_backward)(\.\w+)?$|"
     r"^torch\.(segment_reduce|fused_moving_avg_obs_fake_quant|mkldnn_rnn_layer|sparse\.SparseSemiStructured\w*)$|"
     r"^prims\._unsafe_\w+",
     TRUSTS),
    (r"^(aten|torch)\.(quantized_\w+_cell|fbgemm_\w+)(\.\w+)?$", "it takes what a tensor holds for the address of an "
        "object"),
    (r"^torch\.(\w+\.)*(BFloat16|Bool|Byte|Char|Double|Float|Half|Int|Long|Short)Tensor$|^torch\.(\w+\.)+Tensor$|"
        r"^F\.Tensor$|^Tensor\.new$",
     "it takes an integer for the address of an object, and trusts its indices"),
    (r"^aten\.sparse_(coo|csr|csc|bsr|bsc|compressed)_tensor\b",
     "it trusts its indices; the public constructors of sparse tensors are written with their check"),
    (r"^torch\.nn\.attention\.flex_attention\.(flex_attention_hop|FlexKernelOptions)$|"
     r"^aten\.(\w+\.(str|str_list|list_str|Dict_str)|(_functional_assert_|_assert_|_linalg_check_errors|"
     r"_test_)\w*(\.\w+)?)$",
     "compilers write the texts that it takes into the code that they generate"),
    (r"^torch\.sparse\.(check_sparse_tensor_invariants|as_sparse_gradcheck)$",
     "it changes or reads the state of the process, which belongs to the runner"),
)  # fmt: skip
"""Patterns and the reason given. Order matters: the first that matches speaks."""

NOT_LISTED = frozenset({
    "frombuffer", "is_storage", "from_dlpack", "register_kl", "_foobar_",
    "ndarray",  # over a buffer, its dtype "O" makes Python objects of numbers
    "GetAttrKey", "TreeSpec", "TransformGetItemToIndex", "tree_flatten", "tree_unflatten", "tree_map_only",
    "setup_compilation_env", "handle_torch_function", "boolean_dispatch", "has_torch_function",
    "has_torch_function_unary", "has_torch_function_variadic", "bind", "copy_method_params", "DType", "Device",
})  # fmt: skip
"""Names that the inventory holds and that are still no operators."""

CHECKED = frozenset(f"torch.sparse_{kind}_tensor" for kind in ("coo", "csr", "csc", "bsr", "bsc", "compressed"))
"""Constructors that check their indices only when asked (``check_invariants``), so that they are always asked."""

OF_TORCH = frozenset({
    "aten", "prims", "prim", "c10d", "c10d_functional", "symm_mem", "fsdp", "rpc", "profiler", "debugprims",
    "debug_mode_ops", "export", "higher_order", "inductor", "inductor_prims", "rngprims", "static_runtime", "onnx",
    "streams", "cuda", "classes", "load_library", "import_module", "loaded_libraries",
})  # fmt: skip
"""What ``torch.ops`` holds beside the namespaces of custom operators."""


MODULE = "a model in Python goes in with module: and --allow-python"


@dataclass(frozen=True, slots=True)
class Operator:
    """``kind``: module, function, method, attribute, operator, submodule, kernel, context.

    ``python`` is how it is written.
    """

    name: str
    kind: str
    python: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a name is no operator, and what to write instead."""

    message: str
    hint: str = ""


@cache
def constants() -> frozenset[str]:
    """Return names of torch's dtypes, layouts, memory formats, numbers and enums, without ``torch.``."""
    members = (f"{name}.{member}" for name, known in ENUMS.items() for member in known)
    return frozenset([*(n for n in inventory()["constants"] if not n.startswith("_")), *members])


@cache
def attributes() -> frozenset[str]:
    """Return attributes of tensors that are no methods: shape, T, dtype, ..."""
    return frozenset(inventory()["attributes"])


@cache
def resolve(name: str) -> Operator | Refusal:
    """Return the operator that ``name`` stands for, or why it stands for no operator."""
    if not name.isascii():  # Python reads other letters as these
        return Refusal(f"{name!r} is no operator", "operators are written in ASCII")
    if any(keyword.iskeyword(part) for part in name.split(".")):  # such as the overload aten.random.from
        hint = "write operator.assert_" if name.endswith(".assert") else ""
        return Refusal(f"{name!r} cannot be written in Python: a part of it is a keyword", hint)
    reason = reason_to_refuse(name)
    space, _, member = name.partition(".")
    if reason and name not in EXTRA and name not in CONTEXTS:
        return Refusal(
            f"{name!r} is refused: {reason}",
            (_public_instead(member.split(".")[0]) if space == "aten" else "") or MODULE,
        )
    if not member:
        return Refusal(
            f"{name!r} is no operator: its namespace is missing",
            with_namespace(name) or "namespaces: " + ", ".join(_FINDERS),
        )
    if name in EXTRA:
        return Operator(name, "function", name)
    if name in CONTEXTS:
        return Refusal(f"{name!r} is a context", "write it in a block: - with: [{" + name + ": ...}]")
    finder = _FINDERS.get(space)
    if finder is None:
        return Refusal(
            f"no operator namespace {space!r}", nearest(space, _FINDERS) or "namespaces: " + ", ".join(_FINDERS)
        )
    return finder(name, member)


def is_operator(name: str) -> bool:
    """Return whether a case may call ``name``."""
    return isinstance(resolve(name), Operator)


def add_checks(
    operator: Operator, positional: Sequence[str], keywords: list[tuple[str, str]]
) -> list[tuple[str, str]] | Refusal:
    """Return a call's keyword arguments, with the check that ``CHECKED`` need; or why its arguments are refused."""
    name = operator.name
    if code := _code_fault(name, positional, keywords):
        return Refusal(f"{name} takes no number {code} here", "write a dtype, such as torch.float32")
    if mode := _mode_fault(name, positional, keywords):
        return Refusal(f"{name} checks no interpolation or padding, and {mode} may be none", "write 0, 1 or 2")
    if name in CHECKS and (len(positional) > 1 or "message" in dict(keywords)):
        return Refusal(f"{name} takes no message here", "leave it out: messages of exceptions are not compared")
    if operator.python == "torch.Tensor" and keywords:
        return Refusal(f"{name} takes an integer with a name for the address of an object", "leave names out")
    check = dict(keywords).get("check_invariants") if operator.python in CHECKED else "True"
    if check is None:
        return [*keywords, ("check_invariants", "True")]
    refusal = Refusal(f"{name} writes past its end without check_invariants", "leave it out, or say true")
    return keywords if check == "True" else refusal


def context(name: str) -> Operator | Refusal:
    """Return the context manager that ``name`` stands for in ``with:``, or why it stands for no context manager."""
    if name in CONTEXTS:
        return Operator(name, "context", name)
    return Refusal(
        f"{name!r} is no context that a case may enter", nearest(name, CONTEXTS) or "contexts: " + ", ".join(CONTEXTS)
    )


def _listed(name: str, word: str, known: Iterable[str], kind: str, python: str) -> Operator | Refusal:
    if word in known and word not in NOT_LISTED:
        return Operator(name, kind, python)
    return Refusal(f"unknown operator {name!r}", _near(word, known, name[: len(name) - len(word)]))


def reason_to_refuse(name: str) -> str:
    """Return why a name is refused, whether torch has it or not; empty where no rule speaks of it."""
    if name in TRUSTING or ".".join(name.split(".")[:2]) in TRUSTING:
        return TRUSTS
    return next((reason for pattern, reason in REFUSED if re.search(pattern, name)), "")


def _near(word: str, known: Iterable[str], head: str) -> str:
    return nearest(word, known).replace("'", "'" + head, 1)


def _torch(name: str, member: str) -> Operator | Refusal:
    lists = inventory()
    for space in ("nn.functional", "nn"):
        if member.startswith(space + ".") and not any(member.startswith(s + ".") for s in SUBNAMESPACES):
            short = "F" if space == "nn.functional" else "nn"
            return Refusal(f"{name!r} has a shorter spelling", f"write {short}.{member[len(space) + 1 :]}")
    for space in SUBNAMESPACES:
        if member.startswith(space + "."):
            return _listed(name, member[len(space) + 1 :], lists[space], "function", name)
    if member in constants():
        return Refusal(f"{name!r} is a constant, not an operator", "it can be an argument")
    if member.startswith("_") and member not in lists["torch"] and isinstance(resolve(f"aten.{member}"), Operator):
        return Refusal(f"{name!r} is refused: names with _ belong to torch itself", f"write aten.{member}")
    return _listed(name, member, lists["torch"], "function", name)


def _tensor(name: str, member: str) -> Operator | Refusal:
    if member in attributes():
        return Operator(name, "attribute", member)
    return _listed(name, member, inventory()["Tensor"] + sorted(attributes()), "method", member)


def _dispatched(name: str, member: str) -> Operator | Refusal:
    space = name.split(".")[0]
    packets: dict[str, list[str]] = inventory()[space]
    packet, _, overload = member.partition(".")
    if packet not in packets:
        return Refusal(f"unknown operator {name!r}", _near(packet, packets, space + "."))
    if overload and overload not in packets[packet]:
        have = ", ".join(packets[packet])
        return Refusal(f"{space}.{packet} has no overload {overload!r}", f"overloads: {have}")
    if space == "aten" and not is_checked(packet):
        return Refusal(f"{name!r} is refused: {UNCHECKED}", _public_instead(packet) or MODULE)
    return Operator(name, "function", f"torch.ops.{name}")


def _custom(name: str, member: str) -> Operator | Refusal:
    if not re.fullmatch(r"[a-zA-Z]\w*\.[a-zA-Z]\w*(\.\w+)?", member) or member.split(".")[0] in OF_TORCH:
        return Refusal(
            f"{name!r} is no custom operator",
            "write custom.<namespace>.<operator>, and --import the module that registers it",
        )
    return Operator(name, "function", f"torch.ops.{member}")


def _submodule(name: str, member: str) -> Operator | Refusal:
    if not member.isidentifier() or member.startswith("_"):
        return Refusal(f"{name!r} names no submodule", "write self.<id>, where a step says id: <id>")
    return Operator(name, "submodule", name)


_FINDERS = {
    "nn": lambda name, member: _listed(name, member, inventory()["nn"], "module", name),
    "F": lambda name, member: _listed(name, member, inventory()["F"], "function", name),
    "torch": _torch,
    "Tensor": _tensor,
    "aten": _dispatched,
    "prims": _dispatched,
    "operator": lambda name, member: _listed(name, member, [*BINARY, *UNARY, *IN_PLACE, *SPECIAL], "operator", member),
    "builtin": lambda name, member: _listed(name, member, BUILTINS, "function", member),
    "numpy": lambda name, member: _listed(name, member, inventory()["numpy"], "function", name),
    "self": _submodule,
    "custom": _custom,
}


_PLAIN = re.compile(
    r"(nn|F|torch|torch\.special|torch\.linalg|torch\.fft|Tensor)\.[A-Za-z]\w*|aten\.[A-Za-z]\w*(\.\w+)?|"
    rf"operator\.({'|'.join((*BINARY, *UNARY, 'getitem', 'contains', 'abs'))})"
)
"""Operators of which it can be told. Those of packages, of Python and of NumPy may do anything."""

_EFFECT = re.compile(
    r"_(\.\w+)?$|[._]out$|backward|retain_grad|"  # they write into memory
    # statistics, weights by max_norm, first shapes
    r"batch_?norm|instance_?norm|embedding|fake_quant|fused_moving|lazy|"
    # the generator of random numbers
    r"rand|drop|bernoulli|multinomial|poisson|normal$|gumbel|rrelu|fractional|attention|transformer|"
    r"assert|check|constrain|\.(item|tolist|numpy|is_nonzero|equal|allclose)$",  # they raise, guard or break the graph
    re.IGNORECASE,
)
"""In the name of an operator: it does something besides, or may."""

_KEYWORDS = ("out", "inplace", "dropout", "dropout_p")


@lru_cache(10_000)
def is_plain(operator: str) -> bool:
    """Return whether an operator, by its name, gives a value and does nothing else."""
    return _PLAIN.fullmatch(operator) is not None and _EFFECT.search(operator) is None


def has_only_a_value(step: Step) -> bool:
    """Return whether nothing but the step's value tells that it ran. False also where that cannot be told."""
    if step.id is not None or step.train or not is_plain(step.operator):
        return False
    keywords = (key for arguments in (step.arguments, step.call) if arguments for key, _ in arguments.keywords)
    return not any(key in _KEYWORDS for key in keywords) and not any(map(_may_act, values_of((step,))))


def _may_act(value: Value) -> bool:
    """Return whether a value among the arguments may make a step do more: a function, the model itself, true for
    ``inplace``."""
    if isinstance(value, Ref):
        return value.name == "self" and not value.path
    return isinstance(value, Function) or (isinstance(value, Literal) and value.value is True)


# --- operators of ATen ---

# A function of ``torch`` checks what it passes on; an operator of ``torch.ops`` need not. One is allowed if a public
# function has its name, if it is a structured kernel, whose shapes a function of its own checks, or if ``BY_NAME``
# holds it. Structured derivatives are no exception to the last: many check nothing. Overloads follow their operator.
# ``tools/operator_sweep.py`` tries wrong arguments.

TRUSTING = frozenset({
    "aten.native_batch_norm", "torch.native_batch_norm", "aten.batch_norm_update_stats",
    "torch.batch_norm_update_stats", "torch.nn.utils.rnn.PackedSequence", "torch.nn.utils.rnn.PackedSequence_",
    "torch.nn.attention.flex_attention.BlockMask", "aten.lu_unpack", "torch.lu_unpack", "aten.lstm", "torch.lstm",
    "aten.gru", "torch.gru", "aten.align_to", "prims.fft_c2r", "aten.choose_qparams_optimized",
    "torch.choose_qparams_optimized",
})  # fmt: skip
"""Public functions that the sweep found to do so."""

BY_NAME = {
    "it copies, views or casts one tensor": (
        "_conj _conj_copy _conj_physical _efficientzerotensor _lazy_clone _local_scalar_dense _neg_view "
        "_neg_view_copy _reshape_copy _shape_as_tensor _to_copy _unsafe_view alias copy lift lift_fresh "
        "lift_fresh_copy set slice zero"
    ),
    "it is the form without a mutation of a public method": (
        "_foreach_zero cauchy exponential geometric log_normal normal_functional random resize uniform"
    ),
    "it is a public method, which has an older one of its name without the underscore": "resize_",
    "public functions consist of it, so that graphs of models hold it": (
        "_adaptive_avg_pool2d _adaptive_avg_pool3d _aminmax _cdist_forward _chunk_cat _convolution _fused_rms_norm "
        "_int_mm _pdist_forward _prelu_kernel _safe_softmax _to_dense _to_sparse _trilinear _unique _unique2 col2im "
        "im2col log_sigmoid log_sigmoid_forward multilabel_margin_loss_forward nll_loss2d_forward reflection_pad2d "
        "_grouped_mm _scaled_grouped_mm _scaled_mm _scaled_mm_v2 _scaled_dot_product_attention_math "
        "_scaled_dot_product_cudnn_attention _scaled_dot_product_efficient_attention "
        "_scaled_dot_product_flash_attention"
    ),
    "it is the derivative of a public function that checks its arguments, so that graphs of training hold it": (
        "_prelu_kernel_backward _softmax_backward_data binary_cross_entropy_backward convolution_backward "
        "diagonal_backward elu_backward gelu_backward glu_backward hardshrink_backward hardsigmoid_backward "
        "hardswish_backward hardtanh_backward huber_loss_backward leaky_relu_backward log_sigmoid_backward "
        "logit_backward masked_scatter_backward mish_backward mse_loss_backward multi_margin_loss_backward "
        "multilabel_margin_loss_backward native_dropout_backward native_group_norm_backward select_backward "
        "sigmoid_backward silu_backward slice_backward smooth_l1_loss_backward soft_margin_loss_backward "
        "softplus_backward softshrink_backward tanh_backward threshold_backward unfold_backward "
        "upsample_bicubic2d_backward upsample_bilinear2d_backward upsample_linear1d_backward "
        "upsample_nearest1d_backward upsample_nearest2d_backward upsample_nearest3d_backward "
        "upsample_trilinear3d_backward"
    ),
    "shipped cases of an accelerator call it": "_cudnn_rnn cudnn_batch_norm_backward",
    "no backend knows it, and it returns its argument": "_foobar",
}
"""Why operators without a public function are allowed, and which.

In the sweep none of them accessed memory past an end.
"""

_PREFIXES = ("special", "linalg", "fft", "sparse", "nested")
_BESIDE = frozenset({
    "native", "fused", "thnn", "mkldnn", "cudnn", "miopen", "mps", "legit", "with", "no", "update", "training",
    "helper", "interface", "impl", "kernel", "functional", "differentiable", "cachemask", "forward", "backward",
    "data", "out",
})  # fmt: skip
"""Words of internal names that their public function does not have."""

_CODES = frozenset({"dtype", "layout", "memory_format", "input_dtype", "out_dtype", "output_dtype", "compute_dtype"})
_CONSTANT = re.compile(r"None|torch\.\w+|\w+(\.\w+)*\.(dtype|layout)")


@cache
def by_name() -> frozenset[str]:
    """Return the operators of ``BY_NAME``."""
    return frozenset(name for names in BY_NAME.values() for name in names.split())


def is_checked(packet: str) -> bool:
    """Return whether an operator of ATen is allowed."""
    is_structured = packet in inventory()["structured"] and "backward" not in packet
    return packet in by_name() or is_structured or bool(public_name(packet))


def public_name(packet: str) -> str:
    """Return how a public function or method of this name is written in a case; an empty text without one."""
    return next(filter(is_operator, _spellings(packet.rstrip("_"))), "")


def _public_instead(packet: str) -> str:
    """A hint that names the public function behind an internal operator; an empty text if none is known."""
    words = [word for word in packet.split("_") if word]
    stems = "_".join(words), "_".join(word for word in words if word not in _BESIDE)
    name = next(filter(None, map(public_name, stems)), "")
    return f"write {name}{', and differentiate it' if 'backward' in words else ''}" if name else ""


_GRID_SAMPLER = re.compile(r"(torch|aten)\._?grid_sampler(_|\b)")


def _code_fault(name: str, positional: Sequence[str], keywords: Sequence[tuple[str, str]]) -> str:
    """Return the argument of ``torch.ops`` that is a number where torch takes a dtype, a layout or a memory format;
    else an empty text.

    Arguments are written in Python. Such a number is no longer checked: torch reads a table at it.
    """
    if not name.startswith(("aten.", "prims.")):
        return ""
    places = inventory()["codes"].get(".".join(name.split(".")[:2]), ())
    values = [text for place, text in enumerate(positional) if place in places and not text.startswith(("[", "("))]
    values += [text for key, text in keywords if key in _CODES]
    return next((text for text in values if not _CONSTANT.fullmatch(text)), "")


def _mode_fault(name: str, positional: Sequence[str], keywords: Sequence[tuple[str, str]]) -> str:
    """Return the number of a grid sampler's interpolation or padding that is no literal of 0 to 2; else an empty text.

    Arguments are written in Python. Beside these numbers it leaves its result as the memory that it was given.
    """
    if _GRID_SAMPLER.match(name) is None:
        return ""
    values = [*positional[2:4], *(text for key, text in keywords if key in ("interpolation_mode", "padding_mode"))]
    return next((text for text in values if text not in ("0", "1", "2")), "")


def _spellings(word: str) -> Iterator[str]:
    lists = inventory()
    for space in ("F", "torch", "Tensor"):
        if word in lists[space]:
            yield f"{space}.{word}"
    prefix, _, member = word.partition("_")
    if prefix in _PREFIXES and member in lists[prefix]:
        yield f"torch.{prefix}.{member}"
    if word in lists["attributes"]:
        yield f"Tensor.{word}"
    if word in lists["nn.utils.rnn"]:
        yield f"torch.nn.utils.rnn.{word}"
