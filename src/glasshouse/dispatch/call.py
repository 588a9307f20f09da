"""What calls cost: FLOPs and bytes from the cards, worked out once for each kind of call.

A `Call` is a primitive with the specs of its operands and its attrs; equal calls are one object.
Three counts are kept apart: `flops` as the kernel is defined (zeros of a padding included),
`matrix_flops` the part of it in products and convolutions (what papers and other counters report),
and `exact_flops` without the work on padding. Operations on complex numbers count as the real ones
that they take."""

from functools import cached_property
from typing import Any, NamedTuple

from glasshouse.base.shape import Spec
from glasshouse.dispatch.primitive import Primitive

MATRIX = ("matmul", "conv", "conv_data_grad", "conv_weight_grad")


class Cost(NamedTuple):
    """Floating-point operations (a multiply-add is 2) and bytes read plus written."""

    flops: int
    matrix_flops: int
    exact_flops: int
    bytes: int


class Call:
    """A kind of call: `primitive` on operands of `specs` with `attrs`, which gives `out`."""

    by_number: list["Call"] = []

    def __init__(self, primitive: Primitive, specs, attrs: dict, out):
        self.primitive, self.specs, self.attrs, self.out = primitive, tuple(specs), attrs, out
        self.number = len(self.by_number)
        self.by_number.append(self)

    @cached_property
    def cost(self) -> Cost:
        card = self.primitive
        flops = int(card.flops(*self.specs, **self.attrs)) if self.specs else 0
        exact = flops
        if self.specs and card.exact_flops is not None:
            exact = int(card.exact_flops(*self.specs, **self.attrs))
        outs = self.out if isinstance(self.out, tuple) else (self.out,)
        times = card.complex_flops if any(s.dtype.is_complex for s in (*self.specs, *outs)) else 1
        matrix = flops * times if card.name in MATRIX else 0
        moved = card.bytes(*self.specs, **self.attrs) if self.specs else outs[0].nbytes
        return Cost(flops * times, matrix, exact * times, int(moved))

    def __reduce__(self):
        return call_of, (self.primitive, self.specs, self.attrs, self.out)

    def __repr__(self):
        return f"{self.primitive.name}({', '.join(map(repr, self.specs))})"


known: dict[Any, Call] = {}


def key_of(primitive: Primitive, specs, attrs: dict, out) -> Any:
    """What tells a call from others: hashed by C alone, for it is asked at each call watched."""
    return (primitive, *specs, *attrs.values()) if specs else (primitive, out)


def call_of(primitive: Primitive, specs, attrs: dict, out) -> Call:
    key = key_of(primitive, specs, attrs, out)
    try:
        found = known.get(key)
    except TypeError:  # attrs that cannot be hashed
        key = repr(key)
        found = known.get(key)
    return found or known.setdefault(key, Call(primitive, specs, attrs, out))


def cost_of(primitive: Primitive, specs, attrs: dict, out: Spec | tuple | None = None) -> Cost:
    """What a call costs; `out` is inferred if it is not given.

    Example:
        >>> x = Spec((2, 3), gh.float32)
        >>> cost_of(gh.primitives["matmul"], (x, Spec((3, 4), gh.float32)), {})
        Cost(flops=48, matrix_flops=48, exact_flops=48, bytes=104)
    """
    if out is None:
        out = primitive.infer(*specs, **attrs)
    return call_of(primitive, specs, attrs, out).cost
