"""Writes docs/reference/pytorch_names.md: PyTorch's public names, which of them Glasshouse has, and
whether random calls of them give the same (`tools/judges/pytorch_calls.py`).

    python tools/documents/make_names_table.py            # write the page
    python tools/documents/make_names_table.py --check    # whether the page is up to date

A name counts if it is PyTorch's own: modules, what a file imports from typing or the standard
library, and C++ classes that only PyTorch's compilers use are left out by rule. Of the others,
`WITHOUT` gives families that mean nothing here (devices, quantization …), which are taken out with
their reason; `MISSING` gives a reason for each name that would mean something and is not there.
"""

import fnmatch
import inspect
import runpy
import sys
import types
from pathlib import Path

import torch
import torch.nn.functional
import torch.nn.utils
import torch.optim.lr_scheduler
import torch.utils.data

import glasshouse as gh

sys.path.insert(0, str(Path(__file__).parents[1] / "judges"))
import pytorch_calls

names_page = runpy.run_path(str(Path(__file__).with_name("names_page.py")))
lines_of, write_or_check = (names_page[name] for name in ("lines_of", "write_or_check"))
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "pytorch_names.md"
SPACES = {
    "torch.Tensor": (torch.Tensor, gh.Tensor),
    "torch": (torch, gh),
    "torch.linalg": (torch.linalg, gh.linalg),
    "torch.fft": (torch.fft, gh.fft),
    "torch.special": (torch.special, gh.special),
    "torch.nn": (torch.nn, gh.nn),
    "torch.nn.functional": (torch.nn.functional, gh.nn.functional),
    "torch.nn.init": (torch.nn.init, gh.nn.init),
    "torch.nn.utils": (torch.nn.utils, getattr(gh.nn, "utils", None)),
    "torch.optim": (torch.optim, gh.optim),
    "torch.optim.lr_scheduler": (
        torch.optim.lr_scheduler,
        getattr(gh.optim, "lr_scheduler", gh.optim),
    ),
    "torch.utils.data": (torch.utils.data, gh.data),
}  # fmt: skip

# Families that mean nothing here: patterns of names, in all spaces, and why.
WITHOUT = {
    "devices": (
        "one device at a time, chosen by the backend (`gh.backends.use`)",
        "cuda ipu xpu mtia is_cuda is_ipu is_maia is_meta is_mkldnn is_mps is_mtia is_vulkan "
        "is_xla is_xpu pin_memory is_pinned record_stream get_device get_device_module device "
        "Stream Event get_default_device set_default_device is_vulkan_available DeviceObjType "
        "StreamObjType to_mkldnn cudnn_* miopen_* mkldnn_* *_gpu_* *_ipu_* *_xla_* "
        "profiler_allow_* AcceleratorError get_autocast_* set_autocast_* "
        "is_autocast_cpu_enabled is_autocast_cache_enabled clear_autocast_cache "
        "autocast_*_nesting is_anomaly_check_nan_enabled GradScaler",
    ),
    "quantization": (
        "dtypes are those of the Array API, and bfloat16 and float16",
        "q_* qscheme quantize* quantized_* dequantize int_repr is_quantized qint* quint* "
        "fake_quant* fused_moving_avg* fbgemm_* per_channel_* per_tensor_* choose_qparams* "
        "empty_quantized Q*Storage bits* bit int1 int2 int3 int4 int5 int6 int7 uint1 uint2 "
        "uint3 uint4 uint5 uint6 uint7 float8_* float4_* complex32 chalf *scaled_mm *grouped_mm",
    ),
    "sparsity": (
        "tensors are dense",
        "*sparse* *coalesce* col_indices* ccol_indices* crow_indices* row_indices* indices "
        "indices_copy values values_copy dense_dim to_dense smm sspaddmm saddmm spmm dsmm hsmm "
        "hspmm to_padded_tensor is_nested jagged",
    ),
    "storage": (
        "values are immutable and share no memory that could be reached",
        "*storage* *Storage* data_ptr const_data_ptr share_memory_ is_shared is_set_to "
        "dim_order from_file module_load as_strided_ new_empty_strided DeepCopyMemoTable",
    ),
    "layout": (
        "contents lie in row-major order; the compiler chooses its own layouts",
        "layout strided memory_format preserve_format contiguous_format channels_last* "
        "legacy_contiguous_format convert_conv?d_weight_memory_format",
    ),
    "distribution": (
        "`gh.distributed` copies modules by a function, `replicate`",
        "is_distributed DistributedDataParallel DataParallel parallel",
    ),
    "TorchScript, tracing and symbolic sizes": (
        "`gh.optimize` captures plain Python",
        "sym_* Sym* fork wait import_ir_module* parse_ir parse_schema parse_type_comment "
        "merge_type_from_type_comment unify_type_list while_loop cond LiteScriptModule "
        "get_file_path classproperty Script* *Type IODescriptor Gradient Graph",
    ),
    "internals and retired names": (
        "PyTorch's dispatcher, its flags, and names that it keeps for old programs or that raise",
        "native_* batch_norm_* alias_copy detach_copy diagonal_copy slice_copy t_copy "
        "slice_inverse constant_pad_nd convolution affine_grid_generator grid_sampler* "
        "embedding_renorm_ max_pool1d_with_indices norm_except_dim volatile reinforce output_nr "
        "name index resize resize_as resize_as_ symeig eig solve lstsq matrix_rank is_storage "
        "has_* compiled_with_cxx11_abi init_num_threads prepare_multiprocessing_environment "
        "thread_safe_generator set_flush_denormal set_warn_always is_warn_always_enabled "
        "PRIVATE_OPS USE_* AVG SUM TYPE_CHECKING Tag common_args multi_dim_common "
        "factory_common_args common_notes LinAlgError Tensor torch grad T T_co as_subclass "
        "grad_dtype AggregationType Type *Error* *Logger* FileCheck DisableTorch* DispatchKey* "
        "ExcludeDispatchKeyGuard Future Benchmark* *Benchmark Node Value Use Block Code Alias* "
        "Argument* Call* Capsule Comp* Concrete* Execution* Function* Inferred* Locking* "
        "Operator* PyObject* PyTorchFile* Static* Tracing* Throughput* *Tensor Size "
        "feature_dropout* *dropout_ rnn_* lstm_cell gru_cell lstm gru factory_kwargs "
        "BroadcastingList* GRID_SAMPLE_* assert_int_or_pair boolean_dispatch "
        "handle_torch_function *_notes upsample* clip_grad_norm "
        "swap_in_optimizer_params_and_state Optimizer annotations GraphExecutorState *DataPipe "
        "DataChunk argument_validation functional_datapipe *_determinism runtime_validation*",
    ),
    "the process's settings": (
        "the dtype of floats is float32, results do not depend on such settings, threads are "
        "OpenMP's (`OMP_NUM_THREADS`)",
        "set_default_dtype set_default_tensor_type get_num_threads set_num_threads "
        "get_num_interop_threads set_num_interop_threads *float32_matmul_precision "
        "*deterministic* set_anomaly_enabled is_anomaly_enabled is_inference_mode_enabled",
    ),
}

# Names that would mean something here and are not there, in a space: patterns, and why.
MISSING = {
    ("torch", "ModuleDict ParameterDict BufferDict"): "of TorchScript; users have `gh.nn`'s",
    (
        "torch.nn.init",
        "uniform normal constant eye dirac xavier_* kaiming_* orthogonal sparse",
    ): "retired; the names end in `_`",
    ("torch.Tensor", "mode"): "`gh.mode(x)`: here x.mode is the transform of x",
}


def is_own(space: str, owner, name: str) -> bool:
    """Whether a name is PyTorch's own, and not what its file imports."""
    if name.startswith("_"):
        return False
    x = getattr(owner, name)
    if isinstance(x, types.ModuleType):
        return False
    home = getattr(x, "__module__", None) or ""
    kind = type(x).__module__
    if kind == "typing" or home.partition(".")[0] in ("typing", "typing_extensions", "collections"):
        return False
    if isinstance(x, type) and home.startswith("torch._C"):
        return False
    if space == "torch" and home.startswith("torch.nn."):  # it counts there
        return False
    imported = callable(x) and home and not home.startswith(("torch", "builtins"))
    if (
        space == "torch"
        and callable(x)
        and home.startswith(("torch._", "torch.utils", "torch.jit"))
    ):
        return bool(x.__doc__) and not inspect.isclass(x) and not home.startswith("torch._C._te")
    if space in ("torch.nn.functional", "torch.nn.utils", "torch.optim.lr_scheduler"):
        imported = imported or isinstance(x, bool | int | float | str)
    return not imported


def family_of(name: str):
    for family, (_, patterns) in WITHOUT.items():
        if any(fnmatch.fnmatchcase(name, p) for p in patterns.split()):
            return family
    return None


def reason_of(space: str, name: str):
    for (where, patterns), reason in MISSING.items():
        if where == space and any(fnmatch.fnmatchcase(name, p) for p in patterns.split()):
            return reason
    return None


def sorted_names(space: str):
    """(there, missing, {family: names without}) of a space."""
    theirs, ours = SPACES[space]
    there, missing, without = [], [], {}
    for name in filter(lambda n: is_own(space, theirs, n), sorted(dir(theirs))):
        own = getattr(ours, name, None)
        is_package = isinstance(own, types.ModuleType) and not callable(own)
        if hasattr(ours, name) and not is_package:
            there.append(name)
        elif family := family_of(name):
            without.setdefault(family, []).append(name)
        else:
            missing.append(name)
    return there, missing, without


def page() -> str:
    """The whole page, from what is there now."""
    lines = [
        "# PyTorch's names",
        "",
        "Made by `tools/documents/make_names_table.py`: which public names of PyTorch "
        f"{torch.__version__.partition('+')[0]} Glasshouse has.",
        "Names of modules, of types that a file imports, and of C++ classes are left out. So are",
        "families that mean nothing here: devices, quantization and others, listed below. Some",
        "names mean something else, by the Array API standard:",
        "`docs/start/from_pytorch.md`.",
        "",
    ]
    parts = {space: sorted_names(space) for space in SPACES}
    lines += [*lines_of(parts, reason_of, WITHOUT), *meanings(parts)]
    return "\n".join(lines).rstrip() + "\n"


KINDS = {
    "same": "all calls give the same",
    "refused": "as far as calls are not refused; an error says what to write",
    "by spelling": "the Array API's meaning, and PyTorch's by another spelling",
    "listed": "different for a reason",
    "different": "different in silence",
}


def meanings(parts) -> list[str]:
    """The section on what calls give: a table, and the names of each kind."""
    gh.backends.use("numpy")
    results = {kind: {} for kind in KINDS}
    rows = []
    for space in pytorch_calls.SPACES:
        names = [n for n in parts[space][0] if not family_of(n)]
        counts = dict.fromkeys((*KINDS, None), 0)
        for name in names:
            outcome = pytorch_calls.summary(pytorch_calls.compared(space, name))
            counts[outcome and outcome.kind] += 1
            if outcome:
                results[outcome.kind].setdefault(space, {})[name] = outcome.why
        rows.append(f"| `{space}` | " + " | ".join(map(str, counts.values())) + " |")
    lines = [
        "## Whether calls give the same",
        "",
        "Each name is called with random arguments, as PyTorch's schemas have them, in both",
        "libraries (`python tools/judges/pytorch_calls.py`). A name counts once, by the first that",
        "holds from the right: *different*, in silence and for no reason, which is a fault;",
        "*listed*, different for a reason; *by spelling*; *refused*, some calls; *same*, all. *Not",
        "drawn* are names without a schema, or whose arguments random ones do not fit.",
        "",
        "| namespace | " + " | ".join(KINDS) + " | not drawn |",
        "| --- |" + " --- |" * (len(KINDS) + 1),
        *rows,
        "",
    ]
    for kind in ("by spelling", "listed"):
        lines += [
            f"**{kind.capitalize()}**: {KINDS[kind]}.",
            "",
            "| name | here |",
            "| --- | --- |",
        ]
        for space, names in results[kind].items():
            lines += [f"| `{space}.{name}` | {why} |" for name, why in names.items()]
        lines.append("")
    for kind in ("refused", "same"):
        for space, names in results[kind].items():
            listed = ", ".join(f"`{name}`" for name in names)
            lines += [f"**{kind.capitalize()}, `{space}`** ({KINDS[kind]}): {listed}.", ""]
    return lines


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, page(), Path(__file__).name))
