"""Lists of PyTorch's functions: nodes of a captured graph, and others."""

import enum
import sys
from collections.abc import Iterator, MappingView
from typing import Any

import torch

from glasshouse.torch.patches import functions
from glasshouse.torch.patches.modes import (
    attention_readers,
    attention_setters,
    dispatch_modes,
    dispatch_modes_in_python,
    has_function_mode,
    set_grad,
    tracing_state,
)
from glasshouse.torch.patches.operators import OpOverload, OpOverloadPacket

# Python modules of PyTorch whose functions are nodes; its other Python is interpreted.
NODE_MODULES = {"torch.functional", "torch.nn.functional", *functions.TENSOR_MODULES}
NATIVE_MODULES = {"torch", *functions.NATIVE_MODULES}
LEFT_TO_PYTHON = functions.LEFT_TO_PYTHON + tuple(
    f"torch.{name}"
    for name in (
        "ao autograd.forward_ad autograd.function "
        "autograd.functional autograd.gradcheck autograd.graph autograd.profiler "
        "cuda distributed distributions export func "
        "futures fx hub jit library masked monitor multiprocessing nested onnx package profiler "
        "quantization random serialization sparse testing utils.checkpoint utils.cpp_extension "
        "utils.data utils.dlpack utils.tensorboard"
    ).split()
)
# The exceptions, which only call modules with other tensors in place of theirs.
LOOKED_INTO = set(functions.FUNCTIONAL_CALL)
WHY_LEFT = {  # by the beginning of a module's name
    "torch.distributions": "after a write that cannot be undone, distributions that look at the "
    "values that they are given; they do not where their class has "
    "set_default_validate_args(False), or they have validate_args=False",
    **dict.fromkeys(functions.TRANSFORMS, "torch.func transforms functions as they are"),
    "torch.func": "torch.func transforms functions as they are",
    "torch.utils.checkpoint": "a checkpoint calls its function again in the backward pass",
    "torch.autograd.graph": "its hooks run in the midst of operations",
}
# The wrapper of every optimizer's step; its code is always the same.
OPTIMIZER_STEP = torch.optim.Optimizer.profile_hook_step(lambda optimizer: None).__code__
OURS = tuple(
    f"glasshouse.{name}"
    for name in "analyze autograd backends compile data dispatch interop memory metrics nn ops "
    "optim profile speech tensor text transforms vision".split()
)

LIBRARIES = {"torch", "glasshouse", *sys.stdlib_module_names}  # a backward pass may run these

# Facts that a tensor's guards fix: methods or functions, then attributes.
METADATA = set(
    "size dim ndimension numel nelement stride element_size is_contiguous "
    "is_floating_point is_complex is_signed is_conj is_neg is_inference is_same_size get_device "
    "result_type can_cast promote_types is_tensor has_names is_nested "
    "is_distributed is_storage is_vulkan_available __len__ dim_order".split()
)
FIXED = set(
    "shape dtype device ndim requires_grad is_leaf layout itemsize nbytes is_cuda is_sparse "
    "is_sparse_csr is_quantized is_meta is_cpu is_mkldnn is_mps is_xpu is_xla is_ipu is_hpu "
    "is_nested is_vulkan is_maia is_mtia _is_param".split()
)
VIEWS = {"T", "mT", "H", "mH", "real", "imag", "data"}
# Functions that read a tensor's values, so that Python computes: Python methods and composed
# functions, beside the operators whose tags say so.
READS_VALUES = set(
    "tolist numpy is_nonzero unique unique_consecutive unique_dim data_ptr untyped_storage storage "
    "storage_type __bool__ __int__ __float__ __index__ __complex__ __contains__ __array__ "
    "__dlpack__ __repr__ __str__ __format__ __reduce_ex__ __deepcopy__ __hash__ module_load "
    "combinations histogramdd one_hot nonzero_numpy to_sparse to_dense_sparse sparse_mask coalesce "
    "__cuda_array_interface__ cartesian_prod".split()
)
# Those that return numbers, or lists of them.
READS_PLAINLY = set(
    "item tolist equal allclose is_nonzero __bool__ __int__ __float__ __index__ "
    "__contains__".split()
)
# Functions that change a tensor in ways that guards do not follow.
CHANGES_TENSOR = set(
    "register_hook register_post_accumulate_grad_hook retain_grad requires_grad_ detach_ set_ "
    "resize_ resize_as_ t_ transpose_ swapaxes_ swapdims_ squeeze_ unsqueeze_ as_strided_ rename_ "
    "rename share_memory_ pin_memory record_stream map_ map2_ apply_ __setstate__ swap_tensors "
    "_make_subclass as_subclass refine_names align_to align_tensors resolve_names".split()
)
# Functions whose result's size depends on values, where a tensor is passed for a size.
CREATING = set(  # the first argument may be a size too
    "zeros ones empty full rand randn randint randperm arange range linspace logspace eye "
    "tril_indices triu_indices hamming_window hann_window blackman_window bartlett_window "
    "kaiser_window empty_strided vander".split()
)
SIZED = CREATING | set(
    "view reshape expand repeat tile narrow split split_with_sizes tensor_split unfold new_zeros "
    "new_ones new_empty new_full pad interpolate chunk roll repeat_interleave unflatten "
    "adaptive_avg_pool2d tensor as_tensor scalar_tensor sparse_coo_tensor from_numpy topk "
    "kthvalue diag_embed movedim permute as_strided resize diagonal squeeze unsqueeze".split()
)
# Functions that take a number known only in a run: the sizes of results do not depend on it.
WITH_NUMBERS = set(
    "add sub mul div true_divide pow rsub addcmul addcdiv lerp clamp clamp_min clamp_max clip "
    "fill masked_fill iadd isub imul itruediv truediv neg maximum minimum".split()
)
DROPOUTS = {"dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout"}
# Functions that may raise for some values; others raise for sizes and dtypes, which are guarded.
RAISES = set(
    "embedding embedding_bag gather index_select take take_along_dim scatter scatter_ scatter_add "
    "scatter_add_ scatter_reduce scatter_reduce_ index_add index_add_ index_copy index_copy_ "
    "index_fill index_fill_ index_put index_put_ put_ cross_entropy nll_loss nll_loss2d ctc_loss "
    "multi_margin_loss multilabel_margin_loss binary_cross_entropy multinomial bernoulli "
    "bernoulli_ normal normal_ poisson searchsorted histc inverse cholesky cholesky_solve lu "
    "lu_solve solve det logdet slogdet svd eig qr pinverse matrix_power backward grad "
    "_assert_async _assert triangular_solve lstsq one_hot".split()
)
RAISES |= {name for name in functions.LINALG if name.startswith("linalg_")}
RAISES -= {f"linalg_{name}" for name in "vector_norm matmul vecdot cross diagonal vander".split()}
RAISES_FOR_INTEGERS = {"floordiv", "floor_divide", "mod", "remainder", "fmod", "pow", "div"}
# Functions with writes that no schema shows.
WRITES = {"batch_norm", "instance_norm", "native_batch_norm", "setattr", "backward"}
DATA_ARGUMENT = {"tensor": 0, "as_tensor": 0, "scalar_tensor": 0}  # the place of the data

STATE_SETTERS: set[Any] = {
    *attention_setters,
    set_grad,
    torch.set_autocast_enabled,
    torch.set_autocast_dtype,
    torch.set_autocast_cache_enabled,
    torch.autocast_increment_nesting,
    torch.autocast_decrement_nesting,
    torch.clear_autocast_cache,
}
# Readers of PyTorch's state that no call changes, or that depend on tensors' classes alone.
ALWAYS_THE_SAME: set[Any] = {
    *functions.ALWAYS_THE_SAME,
    torch.cuda.is_available,
    torch.accelerator.current_accelerator,
    torch.accelerator.is_available,
    torch.cuda.is_current_stream_capturing,
}
# All readers of its state: `ambient` guards the others.
STATE_READERS: set[Any] = ALWAYS_THE_SAME | {
    *attention_readers,
    torch.is_grad_enabled,
    torch.is_inference_mode_enabled,
    torch.is_autocast_enabled,
    torch.is_autocast_cpu_enabled,
    torch.get_autocast_dtype,
    torch.get_autocast_cpu_dtype,
    torch.is_autocast_cache_enabled,
    torch.get_default_dtype,
    torch.is_anomaly_enabled,
    tracing_state,
    has_function_mode,
    torch.is_deterministic_algorithms_warn_only_enabled,
    torch.are_deterministic_algorithms_enabled,
    torch.get_num_threads,
    dispatch_modes,
    dispatch_modes_in_python,
}
# Checks of a condition that raise where it is false.
CHECKS = set(functions.CHECKS)
# PyTorch functions with a constant result in captured calls.
CONSTANTS: dict[Any, Any] = {
    torch.jit.is_scripting: False,
    torch.jit.is_tracing: False,
    torch.compiler.is_exporting: False,
    torch.onnx.is_in_onnx_export: False,
    **dict.fromkeys(functions.NEVER_TRUE, False),
    **dict.fromkeys(functions.WITHOUT_RESULT),
}
# Other libraries ask these to avoid branches on tensors' values. PyTorch's own Python then takes
# branches for TorchDynamo alone.
COMPILING = {torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling}
CLASSES = (torch.device, torch.finfo, torch.iinfo, torch.Size)
VALUES = (
    enum.Enum,
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
    torch.finfo,
    torch.iinfo,
    torch.Size,
)
AUTOGRAD = (torch.autograd.backward, torch.autograd.grad)
ITERABLES = (Iterator, MappingView)  # a backward pass makes tuples of these
OVERLOADS = (OpOverload, OpOverloadPacket)


def name_of(target: Any) -> str:
    """The name of a function or method."""
    return target if isinstance(target, str) else getattr(target, "__name__", "")
