"""The table from ATen's operators to ours, and how its functions are called.

An entry takes the operator's arguments: our values in place of tensors, and Python's numbers. For
an entry with a kind of promotion (or a function that returns it for the named arguments), operands
are cast to the dtype that PyTorch computes in, and the result to the dtype that it promises."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from glasshouse.base.dtype import DType
from glasshouse.dispatch.value import Value, cast
from glasshouse.torch.patches.operators import (
    OpOverload,
    PromotionKind,
    all_schemas,
    overload_name,
    promoted,
    schema_of,
)
from glasshouse.torch.tensors.dtypes import FROM_TORCH

DEFAULT: Any = PromotionKind.DEFAULT
TO_FLOAT: Any = PromotionKind.INT_TO_FLOAT
TO_BOOL: Any = PromotionKind.ALWAYS_BOOL
KEEP: Any = PromotionKind.NO_OPMATH


class TableEntry(NamedTuple):
    """The implementation of an operator: a function of our values, and its kind of promotion."""

    compute: Callable[..., Any]
    promotion: Any  # a PromotionKind, a function, or None


TABLE: dict[str, TableEntry] = {}

# Operators without a result, which raise where their operand is 0.
CHECKS = ("_assert_async.default", "_assert_async.msg")

# The operators of PyTorch's Core ATen IR that have no entry, and why.
WITHOUT_ENTRY = {
    "_embedding_bag.default": "PyTorch computes it: its backward reads what only PyTorch writes",
    "_fft_c2r.default": "PyTorch computes it: Fourier transforms are no card",
    "_fft_r2c.default": "PyTorch computes it: Fourier transforms are no card",
    "_local_scalar_dense.default": "breaks the graph: Python reads a number",
    "_native_batch_norm_legit.default": "writes its operands; AOTAutograd puts "
    "`_native_batch_norm_legit_functional` in its place",
    "atan2.out": "writes its operand; AOTAutograd puts `atan2` in its place",
    "nonzero.default": "breaks the graph: its size depends on contents",
    "resize_.default": "writes its operand; AOTAutograd puts `resize` in its place",
    "sym_is_contiguous.default": "sizes are numbers when a graph is lowered",
    "sym_numel.default": "sizes are numbers when a graph is lowered",
    "sym_size.int": "sizes are numbers when a graph is lowered",
    "sym_storage_offset.default": "sizes are numbers when a graph is lowered",
    "sym_stride.int": "sizes are numbers when a graph is lowered",
}


def aten(*names: str, promotion: Any = None) -> Callable[..., Any]:
    """A decorator that enters a function for these operators ("add.Tensor"; "relu" is its default
    overload)."""

    def enter(compute: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            TABLE[name if "." in name else f"{name}.default"] = TableEntry(compute, promotion)
        return compute

    return enter


def core_operators() -> list[Any]:
    """The overloads of PyTorch's Core ATen IR, by PyTorch's own tags."""
    schemas = [x for x in all_schemas() if x.name.startswith("aten::")]
    names = {(x.name.removeprefix("aten::"), x.overload_name or "default") for x in schemas}
    packets = [(getattr(torch.ops.aten, name, None), overload) for name, overload in sorted(names)]
    overloads = [getattr(packet, overload, None) for packet, overload in packets]
    return [op for op in overloads if op is not None and torch.Tag.core in op.tags]


def name_of(target: Any) -> str:
    """The name of an overload in the table; "" unless it is an operator of ATen, prims or ours."""
    if not isinstance(target, OpOverload):
        return ""
    name = schema_of(target).name.partition("::")[2]
    if target.namespace == "prims":
        return f"prims.{name}"
    if target.namespace == "glasshouse":
        return f"glasshouse.{name}"
    return f"{name}.{overload_name(target)}" if target.namespace == "aten" else ""


def promoted_dtypes(kind: Any, fakes: tuple[float | torch.Tensor, ...]) -> tuple[DType, DType]:
    """(dtype of the computation, dtype of the result) for PyTorch's operands."""
    operands = [x for x in fakes if isinstance(x, (torch.Tensor, bool, int, float, complex))]
    computed, result = promoted(*operands, type_promotion_kind=kind)
    return FROM_TORCH[computed], FROM_TORCH[result]


def call_entry(
    entry: TableEntry, args: list[Any], named: dict[Any, Any], fake_args: tuple[Any, ...]
) -> Any:
    """The result of an entry for our operands; `fake_args` are PyTorch's own."""
    if entry.promotion is None:
        return entry.compute(*args, **named)
    kind = entry.promotion if isinstance(entry.promotion, PromotionKind) else entry.promotion(named)
    computed, result = promoted_dtypes(kind, fake_args)
    operands = [cast(x, computed) if isinstance(x, Value) else x for x in args]
    return cast(entry.compute(*operands, **named), result)


def in_order(
    target: Any, args: tuple[Any, ...], named: dict[Any, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Arguments by position as far as the operator allows; the others by name."""
    named, args = dict(named), list(args)
    for argument in schema_of(target).arguments[len(args) :]:
        if argument.kwarg_only:
            break
        if argument.name in named:
            args.append(named.pop(argument.name))
        elif named and argument.has_default_value():
            later = [a.name for a in schema_of(target).arguments if not a.kwarg_only]
            if not any(name in named for name in later):
                break
            args.append(argument.default_value)
        else:
            break
    return args, named
