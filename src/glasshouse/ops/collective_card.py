"""Collectives from their exchanges: the card's shape rule, reference and batching rule."""

from collections.abc import Callable
from dataclasses import replace
from functools import update_wrapper
from typing import Any

import numpy as np

from glasshouse.base import OptionError, ShapeError, Spec, check_axis
from glasshouse.dispatch import LINEAR, Primitive, card
from glasshouse.ops.collective_requests import requesting
from glasshouse.ops.exchange import Exchange, declare
from glasshouse.ops.process import ProcessGroup, process

COLLECTIVES: dict[str, Exchange] = {}  # by the names of their cards


def collective(
    exchange: Exchange,
    attrs: str,
    *,
    check: Callable[..., Any] = lambda x, **attrs: None,
    **fields: Any,
) -> Callable[[Callable[..., Any]], Primitive]:
    """A decorator that makes a collective of its meaning, whose name it takes: an entry of the
    table, and a card with these fields. `attrs` names those of the card beside the group. Shape
    rule, reference and batching rule follow from the axes that the exchange names."""

    def make(meaning: Callable[..., Any]) -> Primitive:
        name, expected = meaning.__name__, {"group", *attrs.split()}
        way = COLLECTIVES[name] = declare(replace(exchange, name=name, meaning=meaning))

        def compute(x, **attrs):
            return run_exchange(way, x, attrs)

        def infer(x: Spec, **attrs) -> Spec:
            if attrs.keys() != expected:
                raise OptionError(
                    name, f"the attrs {sorted(expected)}", sorted(attrs), "Give them."
                )
            check_group(name, attrs["group"])
            check(x, **attrs)
            return moved_spec(way, x, attrs)

        def batch(_batched, x, **attrs):
            return collective_card(x, **attrs | {axis: attrs[axis] + 1 for axis in way.axes})

        update_wrapper(compute, meaning)
        collective_card = card(
            "collective",
            infer=infer,
            batch=batch,
            traits=("collective",),
            **{"jvp": LINEAR, "flops": lambda x, **_: 0} | fields,
        )(compute)
        return collective_card

    return make


def with_axis(x: Spec, axis: int, size: int) -> Spec:
    return Spec((*x.shape[:axis], size, *x.shape[axis + 1 :]), x.dtype)


def check_group(name: str, group: Any) -> None:
    if not isinstance(group, ProcessGroup):
        fix = "Take gh.distributed.world(), or make one by gh.distributed.group(ranks)."
        raise OptionError(name, "a ProcessGroup of ranks", repr(group), fix)


def check_divides(name: str, x: Spec, axis: int, group: ProcessGroup) -> None:
    check_group(name, group)
    check_axis(name, axis, x.ndim)
    if x.shape[axis] % group.size:
        expected = f"an axis {axis} that {group.size} ranks divide"
        raise ShapeError(name, expected, f"shape {x.shape}", "Pad the axis, or take another one.")


def leaves_operand(attrs: dict[Any, Any]) -> bool:
    """Whether the result on a group of one rank is the operand; a permutation without pairs gives
    zeros."""
    return bool(attrs.get("pairs", True))


def moved_spec(way: Exchange, x: Spec, attrs: dict[Any, Any]) -> Spec:
    """The result of a collective: cut along one axis, then joined along one."""
    size = attrs["group"].size
    if way.cut:
        check_divides(way.name, x, attrs[way.cut], attrs["group"])
    if way.join:
        check_axis(way.name, attrs[way.join], x.ndim)
    if way.cut:
        x = with_axis(x, attrs[way.cut], x.shape[attrs[way.cut]] // size)
    return with_axis(x, attrs[way.join], x.shape[attrs[way.join]] * size) if way.join else x


def packed(x: Any) -> np.ndarray:
    """The array row by row."""
    return np.ascontiguousarray(x).reshape(np.shape(x))


def run_exchange(way: Exchange, x: np.ndarray, attrs: dict[Any, Any]) -> np.ndarray:
    """Compute a collective by the transport of its group."""
    size = attrs["group"].size
    if size == 1:
        return np.array(x) if leaves_operand(attrs) else np.zeros_like(x)
    source = packed(np.stack(np.split(x, size, attrs[way.cut])) if way.cut else x)
    part = source.shape[1:] if way.cut else source.shape
    out = np.empty((size, *part) if way.join else part, source.dtype)
    with requesting(way.request(source.dtype, np.shape(x), attrs)):
        transport = process.transport(attrs["group"])
        getattr(transport, way.method)(*way.arguments(attrs, source, out))
    if not way.join:
        return out
    return np.concatenate(list(out), attrs[way.join]) if attrs[way.join] else along_first(out)


def along_first(parts: np.ndarray) -> np.ndarray:
    """Stacked parts joined along their first axis."""
    return parts.reshape(len(parts) * parts.shape[1], *parts.shape[2:])


def in_parts(array: np.ndarray, count: int) -> np.ndarray:
    """The first axis cut into so many parts, which are stacked."""
    return array.reshape(count, array.shape[0] // count, *array.shape[1:])


def method_of(call: Any, source: np.ndarray, out: np.ndarray) -> tuple[Any, ...]:
    """(transport, method, arguments) for a call of a card along its first axis,
    from packed memory into packed memory, which may be the same where the exchange says so."""
    way, group = COLLECTIVES[call.name], call.attrs["group"]
    source = in_parts(source, group.size) if way.cut else source
    out = in_parts(out, group.size) if way.join else out
    return process.transport(group), way.method, *way.arguments(call.attrs, source, out)
