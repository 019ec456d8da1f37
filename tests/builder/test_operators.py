"""``runner.builder.operators``: what is an operator, and above all what is not."""

# ruff: noqa: RUF001 - letters that look alike are what is tested

from __future__ import annotations

import re

import pytest
from built import Built

from runner.builder import operators
from runner.builder.operators import Operator, Refusal, context, inventory, is_operator, resolve
from runner.cases import operator_names

FILES = "it reads or writes files"
NETWORK = "it reaches the network or loads code"
COMPILE = "the backends compile"
DISTRIBUTED = "it starts processes or talks to other machines"
STATE = "it changes or reads the state of the process"
MEMORY = "it reaches past the tensor"
HOLDS = "it holds other modules"
NO_TENSOR = "it is no tensor operator"
CODE = "it runs code, opens files or changes objects"
ATTRIBUTES = "it reaches attributes by name"
NUMPY = "it is outside numpy's array functions"
TRUSTS = "it trusts the indices or sizes that it is given"
ADDRESS = "it takes what a tensor holds for the address of an object"
OLD_CONSTRUCTOR = "it takes an integer for the address of an object, and trusts its indices"
UNCHECKED = "nothing is known to check its arguments"
CONSTRUCTOR = "it trusts its indices; the public constructors of sparse tensors are written with their check"
DEPRECATED = "torch has deprecated it"
DUNDER = "dunder names reach past the operators"
UNKNOWN = "unknown operator"
NO_NAMESPACE = "no operator namespace"
KEYWORD = "cannot be written in Python: a part of it is a keyword"
NO_CUSTOM = "is no custom operator"
NO_OPERATOR = "is no operator"

REFUSED: dict[str, list[str]] = {
    TRUSTS: [
        "torch.lu_unpack", "aten.lu_unpack", "aten.lu_unpack.out", "torch.lstm", "aten.lstm", "aten.lstm.data", "torch.gru", "aten.gru.input",
        "aten._sparse_coo_tensor_unsafe", "aten._sparse_coo_tensor_unsafe.default", "aten._sparse_csr_tensor_unsafe", "aten._sparse_compressed_tensor_unsafe",
        "aten._sparse_coo_tensor_with_dims_and_tensors", "aten._coalesced_", "aten._coalesced.out", "aten._unsafe_index", "aten._unsafe_index.Tensor",
        "aten._unsafe_index_put", "aten._unsafe_masked_index", "aten._unsafe_masked_index_put_accumulate", "aten._index_put_impl_", "aten._reshape_alias",
        "aten._reshape_alias_copy", "aten._nested_view_from_buffer", "aten._nested_view_from_jagged", "aten._convert_indices_from_coo_to_csr",
        "aten._convert_indices_from_csr_to_coo.out", "aten._cslt_sparse_mm", "aten._sparse_semi_structured_linear", "aten._sobol_engine_draw",
        "aten._embedding_bag_dense_backward", "aten._embedding_bag_backward", "aten._embedding_bag_per_sample_weights_backward", "aten.embedding_dense_backward",
        "aten.embedding_sparse_backward", "aten.embedding_backward", "torch.segment_reduce", "aten.segment_reduce", "aten._segment_reduce_backward",
        "aten._ctc_loss_backward", "aten.max_pool2d_with_indices_backward", "aten.max_pool3d_with_indices_backward.grad_input", "aten._fused_adam_",
        "aten.adaptive_max_pool2d_backward", "aten.adaptive_max_pool3d_backward", "aten._fused_sgd", "aten._cdist_backward", "aten._pdist_backward",
        "torch.fused_moving_avg_obs_fake_quant", "aten._sparse_mm_reduce_impl_backward", "aten.native_batch_norm_backward", "prims._unsafe_index_put_",
        "torch.sparse.SparseSemiStructuredTensor", "aten.native_batch_norm", "aten.native_batch_norm.out", "torch.native_batch_norm",
        "torch.batch_norm_update_stats", "aten.batch_norm_update_stats", "torch.nn.utils.rnn.PackedSequence",
        "torch.nn.utils.rnn.PackedSequence_", "torch.nn.attention.flex_attention.BlockMask",
        "torch.choose_qparams_optimized", "aten.choose_qparams_optimized", "aten.choose_qparams_optimized.default",
    ],
    OLD_CONSTRUCTOR: [
        "torch.FloatTensor", "torch.LongTensor", "torch.DoubleTensor", "Tensor.new", "F.Tensor", "torch.special.Tensor", "torch.sparse.FloatTensor",
        "torch.sparse.BFloat16Tensor", "torch.sparse.Tensor", "torch.nested.Tensor", "torch.nn.utils.rnn.Tensor",
        "torch.nn.attention.flex_attention.Tensor",
    ],
    ADDRESS: ["torch.quantized_lstm_cell", "aten.quantized_gru_cell.default", "torch.fbgemm_linear_quantize_weight"],
    UNCHECKED: [
        "aten._cummax_helper", "aten._cummax_helper.default", "aten._cummin_helper", "aten._native_batch_norm_legit", "aten._batch_norm_with_update",
        "aten._native_batch_norm_legit.no_stats", "aten._batch_norm_no_update", "aten.batch_norm_backward", "aten._adaptive_avg_pool2d_backward",
        "aten._adaptive_avg_pool3d_backward.out", "aten._weight_norm_interface", "aten._weight_norm_interface_backward",
        "aten._log_softmax_backward_data", "aten.avg_pool2d_backward", "aten.avg_pool3d_backward.grad_input", "aten.native_layer_norm_backward",
        "aten.reflection_pad1d_backward", "aten.replication_pad2d_backward", "aten.grid_sampler_3d_backward", "aten.nll_loss_backward",
        "aten._foreach_copy", "aten._scaled_dot_product_flash_attention_for_cpu", "aten._embedding_bag", "aten._logcumsumexp.out",
        "aten._linalg_eigvals", "aten._fft_c2c", "aten._pad_packed_sequence", "aten._pack_padded_sequence_backward", "aten._histogramdd_from_bin_tensors",
    ],
    CONSTRUCTOR: ["aten.sparse_coo_tensor", "aten.sparse_coo_tensor.indices_size", "aten.sparse_csr_tensor", "aten.sparse_compressed_tensor"],
    FILES: [
        "torch.load", "torch.save", "torch.from_file", "torch.serialization.load", "torch.serialization.add_safe_globals", "torch.package.PackageImporter",
        "aten.from_file", "aten.from_file.out", "aten.from_file.default", "aten.save", "aten.load", "aten.open", "Tensor.tofile", "Tensor.dump", "Tensor.dumps",
        "numpy.load", "numpy.save", "numpy.savez", "numpy.savez_compressed", "numpy.fromfile", "numpy.memmap", "numpy.tofile", "numpy.loadtxt", "numpy.savetxt",
        "numpy.genfromtxt", "numpy.fromregex", "numpy.DataSource", "custom.aten.from_file", "prims.from_file",
    ],
    NETWORK: [
        "torch.hub.load", "torch.hub.load_state_dict_from_url", "torch.hub.download_url_to_file", "torch.utils.model_zoo.load_url", "torch.utils.data.DataLoader",
        "torch.utils.tensorboard.SummaryWriter", "torch.onnx.export", "torch.export.export", "torch.export.load",
    ],
    COMPILE: [
        "torch.compile", "torch.compiler.reset", "torch.compiler.disable", "torch.jit.script", "torch.jit.load", "torch.jit.trace", "torch._dynamo.optimize",
        "torch._inductor.compile", "torch._functorch.config.patch", "torch.fx.symbolic_trace", "torch.fx.wrap",
        "torch.library.custom_op", "torch.classes.load_library", "torch.classes.quantized.x", "torch._export.aot_compile",
    ],
    "are written aten.NAME, prims.NAME or custom.NAMESPACE.NAME": [
        "torch.ops.aten.add", "torch.ops.load_library", "torch.ops.image.read_file",
    ],
    DISTRIBUTED: [
        "torch.distributed.init_process_group", "torch.distributed.all_reduce", "torch.distributed.rpc.rpc_sync", "torch.multiprocessing.spawn",
        "torch.multiprocessing.Process", "torch.futures.Future", "torch.monitor.log_event", "nn.DataParallel", "nn.parallel.DistributedDataParallel",
    ],
    STATE: [
        "torch.set_default_dtype", "torch.set_default_device", "torch.set_num_threads", "torch.set_printoptions", "torch.set_float32_matmul_precision",
        "torch.manual_seed", "torch.seed", "torch.initial_seed", "torch.random.manual_seed", "torch.get_rng_state", "torch.set_rng_state",
        "torch.use_deterministic_algorithms", "torch.backends.cudnn.flags", "torch.cuda.synchronize", "torch.cuda.set_device", "torch.cpu.synchronize",
        "torch.mps.empty_cache", "torch.xpu.synchronize", "torch.accelerator.set_device_index", "torch.overrides.wrap_torch_function", "torch._C._jit_init",
        "torch.autograd.set_detect_anomaly", "torch.sparse.check_sparse_tensor_invariants", "torch.utils.cpp_extension.load", "torch.utils.cpp_extension.load_inline", "torch.utils.dlpack.from_dlpack",
        "torch.profiler.profile", "torch.testing.assert_close",
    ],
    MEMORY: [
        "Tensor.storage", "Tensor.untyped_storage", "Tensor.typed_storage", "Tensor.share_memory_", "Tensor.register_hook",
        "Tensor.register_post_accumulate_grad_hook", "Tensor.apply_", "Tensor.map_", "Tensor.map2_", "Tensor.set_", "Tensor.data_ptr", "Tensor.const_data_ptr",
        "Tensor.pin_memory", "Tensor.record_stream", "aten.pin_memory", "aten._pin_memory", "aten.record_stream", "Tensor.module_load", "Tensor.as_subclass", "Tensor.reinforce", "Tensor.storage_type",
    ],
    DEPRECATED: ["Tensor.resize"],
    HOLDS: ["nn.Module", "nn.Container", "nn.Sequential", "nn.ModuleList", "nn.ModuleDict", "nn.ParameterList", "nn.ParameterDict"],
    NO_TENSOR: [
        "os.system", "os.remove", "sys.exit", "subprocess.run", "subprocess.Popen", "shutil.rmtree", "socket.socket", "pathlib.Path", "importlib.import_module",
        "pickle.loads", "io.open", "ctypes.CDLL", "urllib.request", "requests.get", "tempfile.mktemp", "builtins.eval", "posix.system",
    ],
    CODE: [
        "builtin.eval", "builtin.exec", "builtin.open", "builtin.compile", "builtin.getattr", "builtin.setattr", "builtin.delattr", "builtin.vars",
        "builtin.globals", "builtin.locals", "builtin.input", "builtin.breakpoint", "builtin.type", "builtin.object", "builtin.super", "builtin.memoryview",
        "builtin.help", "builtin.exit", "builtin.quit",
    ],
    ATTRIBUTES: ["operator.attrgetter", "operator.methodcaller", "operator.itemgetter", "operator.setattr"],
    NUMPY: [
        "numpy.from_dlpack", "numpy.lib.format.open_memmap", "numpy.lib.stride_tricks.as_strided", "numpy.ctypeslib.load_library", "numpy.core.records",
        "numpy.testing.rundocs", "numpy.f2py.compile", "numpy.distutils.core", "numpy.vectorize", "numpy.frompyfunc", "numpy.seterr", "numpy.seterrcall",
        "numpy.setbufsize", "numpy.random.seed",
    ],
    DUNDER: [
        "builtin.__import__", "Tensor.__reduce_ex__", "Tensor.__class__", "Tensor.__dict__", "Tensor.__init_subclass__", "Tensor.__torch_function__", "torch.__dict__",
        "torch.__loader__.load_module", "nn.__builtins__", "F.__dict__", "aten.__getattr__", "operator.__builtins__", "numpy.__config__.show", "self.__class__",
        "self.__dict__", "custom.__class__.__init__", "custom.a.__class__", "custom.load_library.__call__", "prims.__loader__", "aten.add.__class__", "Tensor.__add__",
    ],
    UNKNOWN: [
        "torch.from_dlpack", "torch.frombuffer", "torch.is_storage", "torch.storage", "torch.UntypedStorage", "torch.Generator", "torch.Tensor.apply_", "torch.typename",
        "Tensor.foo", "Tensor.grad.x", "F.foo", "nn.Linear.to", "nn.Foo", "aten.nothing", "aten._print", "aten.set_data", "prims.nothing", "operator.sub_class",
        "builtin.id", "builtin.hash", "builtin.callable", "builtin.iter", "builtin.next", "builtin.map", "builtin.filter", "builtin.dir",
        "builtin.staticmethod", "builtin.property", "numpy.ndarray", "numpy.frombuffer", "numpy.fromiter", "numpy.fromstring", "numpy.apply_along_axis", "numpy.piecewise",
        "numpy.errstate", "numpy.show_config", "numpy.info", "numpy.source", "numpy.safe_eval", "numpy.recarray", "numpy.record", "numpy.void", "numpy.object_", "numpy.char",
        "torch.distributions.register_kl", "torch.nn.attention.flex_attention.GetAttrKey", "torch.nn.attention.flex_attention.tree_unflatten",
        "F.handle_torch_function", "F.boolean_dispatch", "torch.nn.utils.clip_grad_norm_", "torch.nested.Device", "nn.utils.parametrize.register_parametrization",
        "torch.autograd.Function", "torch.autograd.backward", "torch.optim.SGD",
    ],
    KEYWORD: ["aten.random.from", "custom.a.class", "custom.a.b.None", "self.lambda"],
    NO_CUSTOM: [
        "custom.aten.add", "custom.prims.add", "custom.prim.Print", "custom.c10d.allreduce_", "custom.profiler._record_function_enter", "custom.inductor.resize_storage_bytes_",
        "custom.debugprims.load_tensor", "custom.symm_mem.one_shot", "custom.higher_order.cond", "custom.load_library.x", "custom.import_module.x",
        "custom.loaded_libraries.add", "custom.x", "custom.a.b.c.d", "custom._c10d_functional.all_reduce", "custom.a b.c", "custom.a.b\n", "custom.a.b(1)",
        "custom.classes.x",
    ],
    NO_OPERATOR: [
        "relu", "", "tｏrch.load", "custom.aｔen.fｒom_file", "custom.my.ｏp", "self.cｏmpile", "Tensor.ａdd", "torch", "torch.add\n", "torch.float16", "torch.nan",
    ],
    NO_NAMESPACE: ["tf.relu", "Torch.relu", "jax.numpy.add", "np.add", "module.forward", "math.sqrt", "print.x", ".x", " torch.add", "getattr.x"],
}  # fmt: skip


@pytest.mark.parametrize(("reason", "name"), [(reason, name) for reason, names in REFUSED.items() for name in names])
def test_refused(reason: str, name: str) -> None:
    refusal = resolve(name)
    assert isinstance(refusal, Refusal), refusal
    if reason is UNKNOWN:
        assert UNKNOWN in refusal.message or "has a shorter spelling" in refusal.message
    elif reason is NO_OPERATOR:
        assert any(words in refusal.message for words in (NO_OPERATOR, "is a constant, not an operator", UNKNOWN))
    else:
        assert reason in refusal.message


def test_the_table_is_long_enough() -> None:
    names = [name for listed in REFUSED.values() for name in listed]
    assert len(names) == len(set(names)) >= 60


@pytest.mark.parametrize("name", ["torch.load", "os.system", "builtin.eval", "Tensor.storage"])
def test_a_refusal_says_what_to_do(name: str) -> None:
    refusal = resolve(name)
    assert (
        isinstance(refusal, Refusal)
        and refusal.message.startswith(f"{name!r} is refused: ")
        and "--allow-python" in refusal.hint
    )


ALLOWED = {
    "nn.Linear": ("module", "nn.Linear"), "F.relu": ("function", "F.relu"), "torch.add": ("function", "torch.add"), "torch.special.erf": ("function", "torch.special.erf"),
    "torch.linalg.svd": ("function", "torch.linalg.svd"), "torch.fft.rfft": ("function", "torch.fft.rfft"), "torch.func.grad": ("function", "torch.func.grad"),
    "torch.nn.utils.rnn.pack_sequence": ("function", "torch.nn.utils.rnn.pack_sequence"), "torch.signal.windows.hann": ("function", "torch.signal.windows.hann"),
    "torch.distributions.Normal": ("function", "torch.distributions.Normal"), "torch.cond": ("function", "torch.cond"), "torch.vmap": ("function", "torch.vmap"),
    "torch._foreach_add": ("function", "torch._foreach_add"), "Tensor.view": ("method", "view"), "Tensor.add_": ("method", "add_"), "Tensor.shape": ("attribute", "shape"),
    "Tensor.T": ("attribute", "T"), "Tensor.numpy": ("method", "numpy"), "Tensor.tolist": ("method", "tolist"), "Tensor.item": ("method", "item"),
    "Tensor.requires_grad_": ("method", "requires_grad_"), "aten.mm": ("function", "torch.ops.aten.mm"), "aten.mm.default": ("function", "torch.ops.aten.mm.default"),
    "prims.add": ("function", "torch.ops.prims.add"), "operator.iadd": ("operator", "iadd"), "operator.getitem": ("operator", "getitem"), "operator.call": ("operator", "call"),
    "torch._check": ("function", "torch._check"), "torch._check_is_size": ("function", "torch._check_is_size"), "operator.assert_": ("operator", "assert_"),
    "torch._higher_order_ops.scan": ("function", "torch._higher_order_ops.scan"), "torch._higher_order_ops.associative_scan": ("function", "torch._higher_order_ops.associative_scan"),
    "builtin.len": ("function", "len"), "builtin.print": ("function", "print"), "numpy.add": ("function", "numpy.add"), "self.first": ("submodule", "self.first"),
    "custom.mine.op": ("function", "torch.ops.mine.op"), "custom.mine.op.default": ("function", "torch.ops.mine.op.default"),
    "torch.utils.checkpoint.checkpoint": ("function", "torch.utils.checkpoint.checkpoint"), "torch._dynamo.graph_break": ("function", "torch._dynamo.graph_break"),
    "aten._unsafe_view": ("function", "torch.ops.aten._unsafe_view"), "torch.unsafe_split": ("function", "torch.unsafe_split"),  # both check sizes
    "aten.as_strided": ("function", "torch.ops.aten.as_strided"),
    "torch.sparse_coo_tensor": ("function", "torch.sparse_coo_tensor"), "torch.autograd.grad": ("function", "torch.autograd.grad"), "nn.MultiheadAttention": ("module", "nn.MultiheadAttention"), "torch.randn": ("function", "torch.randn"),
}  # fmt: skip


@pytest.mark.parametrize("name", ALLOWED)
def test_operators(name: str) -> None:
    assert resolve(name) == Operator(name, *ALLOWED[name])


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("torch.rleu", "did you mean 'torch.relu'?"), ("nn.Liner", "did you mean 'nn.Linear'?"), ("Tensor.veiw", "did you mean 'Tensor.view'?"),
        ("F.sofmax", "did you mean 'F.softmax'?"), ("aten.mmm", "did you mean 'aten.mm'?"), ("operator.setitm", "did you mean 'operator.setitem'?"),
        ("torch.linalg.svdd", "did you mean 'torch.linalg.svd'?"), ("builtin.lenn", "did you mean 'builtin.len'?"), ("numpy.concat", "did you mean 'numpy.concatenate'?"),
        ("Torch.relu", "did you mean 'torch'?"), ("tensor.view", "did you mean 'Tensor'?"), ("relu", "did you mean 'F.relu'?"), ("Linear", "did you mean 'nn.Linear'?"),
        ("tf.relu", "namespaces: nn, F, torch, Tensor, aten, prims, operator, builtin, numpy, self, custom"), ("zzz", "namespaces: nn, F"),
        ("torch.nn.functional.relu", "write F.relu"), ("torch.nn.Linear", "write nn.Linear"), ("torch.float16", "it can be an argument"),
        ("torch.no_grad", "write it in a block: - with: [{torch.no_grad: ...}]"), ("aten.mm.foo", "overloads: default, "),
    ],
)  # fmt: skip
def test_hints(name: str, hint: str) -> None:
    refusal = resolve(name)
    assert isinstance(refusal, Refusal) and refusal.hint.startswith(hint)


def test_contexts() -> None:
    for name in operator_names.CONTEXTS:
        assert context(name) == Operator(name, "context", name)
    for name in (
        "torch.profiler.profile",
        "torch.add",
        "open",
        "torch.autograd.set_detect_anomaly",
        "torch.cuda.device",
    ):
        assert isinstance(context(name), Refusal)
    assert context("torch.nograd") == Refusal(
        "'torch.nograd' is no context that a case may enter", "did you mean 'torch.no_grad'?"
    )


def test_nothing_in_the_inventory_escapes_the_refusals() -> None:
    lists = inventory()
    names = [f"{space}.{n}" for space in ("nn", "F", "torch", "Tensor", "numpy", "aten", "prims") for n in lists[space]]
    names += [f"torch.{space}.{n}" for space in operator_names.SUBNAMESPACES for n in lists[space]]
    allowed = [name for name in names if isinstance(resolve(name), Operator)]
    assert len(allowed) > 3000
    words = {
        "file",
        "load",
        "save",
        "dump",
        "hook",
        "ptr",
        "hub",
        "url",
        "pickle",
        "compile",
        "script",
        "exec",
        "subprocess",
        "socket",
        "dlpack",
        "attr",
        "seterr",
    }
    assert [
        name for name in allowed if words & set(re.split(r"[._]", name.lower())) or "__" in name.split(".")[-1][:2]
    ] == []


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("torch.rleu: $x", "4:5: unknown operator 'torch.rleu' | did you mean 'torch.relu'?"),
        (
            "torch.load: [a.pt]",
            "4:5: 'torch.load' is refused: it reads or writes files | a model in Python goes in with module: and --allow-python",
        ),
        ("numpy.load: [$x]", "4:5: 'numpy.load' is refused: it reads or writes files"),
        ("builtin.open: [a]", "4:5: 'builtin.open' is refused: it runs code, opens files"),
        ("torch.no_grad: []", "4:5: 'torch.no_grad' is a context | write it in a block"),
    ],
)
def test_places(built: Built, step: str, message: str) -> None:
    problems = built.problems(f"chain:\n- {step}\n- torch.abs: $x")
    assert [f[: len(message)] for f in problems] == [message.replace("4:5", "4:7")]


def test_what_trusts_its_arguments_is_refused_in_every_version_s_spelling() -> None:
    """By the words of their names, so that the next inventory is looked through too."""
    words = re.compile(r"(^|_)unsafe|_unsafe(_|$)")
    packets = [f"{space}.{name}" for space in ("aten", "prims") for name in inventory()[space]]
    allowed = {name for name in packets if words.search(name.partition(".")[2]) and isinstance(resolve(name), Operator)}
    assert allowed == {"aten._unsafe_view", "aten.unsafe_chunk", "aten.unsafe_split", "aten.unsafe_split_with_sizes"}


def test_an_operator_of_aten_needs_a_public_function_a_structured_kernel_or_a_place_in_the_table() -> None:
    lists = inventory()
    for name in lists["aten"]:
        if is_operator(f"aten.{name}"):
            is_public = operators.public_name(name)
            is_structured = name in lists["structured"] and "backward" not in name
            assert is_public or is_structured or name in operators.by_name(), name
    assert not operators.is_checked("_no_such_helper")
    assert not operators.by_name() - lists["aten"].keys()
    assert not [name for name in operators.by_name() if not is_operator(f"aten.{name}")]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("aten._cummax_helper", "write torch.cummax"),
        ("aten._adaptive_avg_pool2d_backward", "write F.adaptive_avg_pool2d, and differentiate it"),
        ("aten._native_batch_norm_legit", "write F.batch_norm"),
        ("aten._pad_packed_sequence", "write torch.nn.utils.rnn.pad_packed_sequence"),
        ("aten._index_put_impl_", "write torch.index_put"),
        ("aten._amp_update_scale_", operators.MODULE),
    ],
)
def test_a_refused_operator_of_aten_names_the_public_one(name: str, hint: str) -> None:
    refusal = resolve(name)
    assert isinstance(refusal, Refusal) and refusal.hint == hint


@pytest.mark.parametrize(
    ("step", "is_refused"),
    [
        ("{aten.sum: {'*': [$x], dtype: -1}}", True),
        ("{aten.sum: {'*': [$x], dtype: torch.float64}}", False),
        ("{aten.sum: {'*': [$x], dtype: $dtype}}", False),
        ("{aten.sum: {'*': [$x], dtype: null}}", False),
        ("{aten.sum: {'*': [$x], dtype: $x.ndim}}", True),
        ("{aten.sum: {'*': [$x], dtype: $x.dtype}}", False),
        ("{aten.sum: {'*': [$x], dtype: '${x.ndim}'}}", True),
        ("{aten.clone: {'*': [$x], memory_format: 77}}", True),
        ("{aten.view.dtype: [$x, 99]}", True),
        ("{aten.view: [$x, [2, 1]]}", False),
        ("{aten.to: [$x, 99]}", True),
        ("{prims.convert_element_type: [$x, 1000]}", True),
        ("{prims.convert_element_type: [$x, torch.float64]}", False),
    ],
)
def test_torch_ops_takes_no_number_for_a_dtype(built: Built, step: str, is_refused: bool) -> None:
    """torch.ops reads a table at the number without a check."""
    problems = built.problems("inputs: {x: [2]}\nchain:\n- " + step)
    assert any("takes no number" in text for text in problems) == is_refused, problems


@pytest.mark.parametrize("name", ["cdata", "storage", "dtype"])
def test_the_old_constructor_takes_no_names(built: Built, name: str) -> None:
    """One of its hidden signatures takes an integer for the address of an object."""
    chain = "inputs: {x: [2]}\nchain:\n- torch.Tensor: "
    assert "for the address of an object" in built.problems(chain + f'{{"*": [["$x[0]"]], {name}: 65536}}')[0]
    assert "torch.Tensor([x[0]])" in built.source(chain + '[["$x[0]"]]')


@pytest.mark.parametrize("name", ["torch.grid_sampler_2d", "torch.grid_sampler_3d", "torch.grid_sampler"])
def test_a_grid_sampler_takes_numbers_of_modes_alone(built: Built, name: str) -> None:
    """Any other number leaves its result uninitialised."""
    keys = "inputs: {x: [1, 1, 3, 3], y: [1, 2, 2, 2], n: {shape: [], dtype: int64}}\nchain:\n- Tensor.item: $n\n  out: m\n- "
    for modes in ("7, 0, false", "-1, 0, false", "0, 3, false", "$m, 0, false", "0, $m, false", "true, 0, false"):
        problems = built.problems(f"{keys}{name}: [$x, $y, {modes}]")
        assert any("checks no interpolation or padding" in text for text in problems), problems
    named = '{"*": [$x, $y], interpolation_mode: 0, padding_mode: 9, align_corners: false}'
    assert any("and 9 may be none | write 0, 1 or 2" in text for text in built.problems(f"{keys}{name}: {named}"))
    assert f"{name}(x, y, 1, 2, False)" in built.source(
        f"{keys}{name}: [$x, $y, 1, 2, false]\n- operator.mul: [$_, $m]"
    )


SPARSE = "inputs: {i: {shape: [1, 2], dtype: int64, init: zeros}, v: [2]}\nchain:\n- torch.sparse_coo_tensor: "


@pytest.mark.parametrize("kind", ["coo", "csr", "csc", "bsr", "bsc", "compressed"])
def test_sparse_constructors_are_written_with_their_check(built: Built, kind: str) -> None:
    keys = SPARSE.replace("coo", kind)
    assert f"torch.sparse_{kind}_tensor(i, v, [3], check_invariants=True)" in built.source(keys + "[$i, $v, [3]]")
    text = built.source(keys + '{"*": [$i, $v, [3]], check_invariants: true, dtype: torch.float64}')
    assert "(i, v, [3], check_invariants=True, dtype=torch.float64)" in text
    for value in ("false", "null", "0"):
        message = built.problems(keys + f'{{"*": [$i, $v, [3]], check_invariants: {value}}}')[0]
        assert f"torch.sparse_{kind}_tensor writes past its end without check_invariants | leave it out" in message


def test_names_with_an_underscore_are_atens() -> None:
    assert resolve("torch._softmax") == Refusal(
        "'torch._softmax' is refused: names with _ belong to torch itself", "write aten._softmax"
    )
    for name in ("torch._no_such_name", "torch._embedding_bag_backward"):  # aten has none, or refuses it
        refusal = resolve(name)
        assert isinstance(refusal, Refusal) and "write aten" not in refusal.hint
    assert not isinstance(resolve("torch._foreach_add"), Refusal)
