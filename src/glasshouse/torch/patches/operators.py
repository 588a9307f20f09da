"""PyTorch's operators: their classes, schemas and kernels, and those with private names."""

from collections.abc import Callable
from typing import Any

from glasshouse.torch.patches.names import attribute, private

OpOverload: Any = private("torch._ops:OpOverload", "2.6", "know the operators of graphs")
OpOverloadPacket: Any = private("torch._ops:OpOverloadPacket", "2.6", "know operators in programs")
HigherOrderOperator: Any = private(
    "torch._ops:HigherOrderOperator", "2.6", "know operators on functions"
)

ADD = "torch:ops.aten.add.Tensor"
schema_of: Callable[..., Any] = attribute(
    f"{ADD}._schema", "2.6", "read what an operator takes, gives and writes to"
)
overload_name: Callable[..., Any] = attribute(
    f"{ADD}._overloadname", "2.6", "find operators in the table"
)
kernel_of: Callable[..., Any] = attribute(
    f"{ADD}._op", "2.6", "call operators without a way through Python", without=lambda op: op
)
dispatch_cache: Callable[..., Any] = attribute(
    f"{ADD}._dispatch_cache", "2.6", "have operators find kernels again", without=lambda op: {}
)
can_decompose: Any = private(
    "torch._ops:OpOverload._can_decompose",
    "2.6",
    "count operators that PyTorch takes apart",
    without=lambda op: False,
)
decompositions: Any = private(
    "torch._decomp:decomposition_table", "2.6", "count operators by their parts", without={}
)
core_decompositions: Any = private(
    "torch._decomp:core_aten_decompositions", "2.6", "take operators without an entry apart"
)
all_schemas: Any = private(
    "torch._C:_jit_get_all_schemas", "2.6", "list the operators of the Core ATen IR"
)
has_kernel: Any = private(
    "torch._C:_dispatch_has_kernel_for_dispatch_key",
    "2.6",
    "see which operators are made of others",
)
DispatchKey: Any = private("torch._C:DispatchKey", "2.6", "name kernels of operators")
PromotionKind: Any = private(
    "torch._prims_common:ELEMENTWISE_TYPE_PROMOTION_KIND", "2.6", "promote as operators do"
)
promoted: Any = private("torch._prims_common:elementwise_dtypes", "2.6", "promote as operators do")
raise_if_zero: Any = private("torch:_assert_async", "2.6", "check a condition within a graph")


def of_aten(name: str, use: str, since: str = "2.6") -> Any:
    """An overload of ATen with a private name; a placeholder if it is gone."""
    return private(f"torch:ops.aten.{name}", since, use)


UNSAFE_VIEW = of_aten("_unsafe_view.default", "follow views to what they show")
GROUPED_PRODUCT = of_aten("_grouped_mm.default", "know the sizes of products of groups", "2.8")
BATCH_NORM = of_aten("_native_batch_norm_legit_functional.default", "make batch norms again")
BATCH_NORM_ALONE = of_aten("_native_batch_norm_legit.no_stats", "make batch norms again")
UNSCALE = of_aten("_amp_foreach_non_finite_check_and_unscale.default", "compile GradScaler's step")
UPDATE_SCALE = of_aten("_amp_update_scale.default", "compile GradScaler's update")


def of_lists(name: str, overload: str) -> Any:
    """The form of an operator for lists of tensors."""
    return of_aten(f"_foreach_{name}.{overload}", "take updates by lists of tensors apart")


REGIONS = "torch:ops.profiler._record_function"
ENTER_REGION = private(f"{REGIONS}_enter_new.default", "2.6", "see regions of record_function")
EXIT_REGION = private(f"{REGIONS}_exit._RecordFunction", "2.6", "see regions of record_function")
