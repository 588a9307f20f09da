"""Calls: one object for each kind of call of a primitive, with the properties of that kind.

A `Call` is a primitive with the specs of its operands and its attrs; `call_of` returns the same
object for equal ones. So properties that depend on these alone are computed once and kept there:
the specs of the results, the cost, the values that backward passes read, the replay of its
derivative. Tape, recordings, graphs, Programs, counters and profiles share it.

Besides the cards there are two pseudo-primitives, which only recordings and graphs have: `input`,
an array from outside, and `pick`, one of the results of a call with several. The value of a
`constant` and of most `full`s may be another one each time, so it is no part of the call, and None
there.

Three counts of work are kept apart: `flops` as the kernel is defined (zeros of a padding included),
`matrix_flops` the part of it in products and convolutions (as papers and other counters report),
and `exact_flops` without the work on padding (`exact_matrix_flops`: of products and convolutions).
Operations on complex numbers count as the real ones that they take."""

import itertools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from glasshouse.base.interpreter import NAMED, items_of
from glasshouse.base.shape import Spec

if TYPE_CHECKING:
    from glasshouse.dispatch.backend import ReplacingKernel
    from glasshouse.dispatch.primitive import Primitive


MATRIX = ("matmul", "conv", "conv_data_grad", "conv_weight_grad")
# Values of `full` that rewriting rules know; all others come from outside, so that a learning rate
# may change without a new Program.
STATIC_SCALARS = frozenset(repr(v) for n in range(-4, 17) for v in (n, float(n))) | {
    "True",
    "False",
    "0.5",
    "-0.0",
    "inf",
    "-inf",
    "nan",
}
# Types of which equal values may differ: 0.0 and -0.0.
INEXACT: set[Any] = {
    float,
    complex,
    np.float16,
    np.float32,
    np.float64,
    np.complex64,
    np.complex128,
}


class Cost(NamedTuple):
    """Floating-point operations (a multiply-add is 2) and bytes read plus written."""

    flops: int
    matrix_flops: int
    exact_flops: int
    bytes: int
    exact_matrix_flops: int


NO_COST = Cost(0, 0, 0, 0, 0)


class NamedPrimitive:
    """A placeholder primitive for calls without a card: an operator of a `library`, or one that was
    read from a trace. It has no rules and no cost model."""

    num_outputs: int = 1
    vjp: Any = None
    exact_flops: Any = None
    complex_flops: int = 1
    parts: Any = None
    traits: frozenset[str] = frozenset[str]()

    def __init__(self, name: str, kind: str, library: str = "") -> None:
        self.name = name
        self.kind = kind
        self.library = library

    def flops(self, *specs: Any, **attrs: Any) -> int:
        """0: such a call carries its own cost, if it has one."""
        return 0

    bytes = flops

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name}>"


class PseudoPrimitive(NamedPrimitive):
    """A placeholder for recorded work that no card describes."""

    def __init__(self, name: str, ref: Any) -> None:
        super().__init__(name, "pseudo")
        self.ref = ref

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, ...]]:
        return find_pseudo_primitive, (self.name,)


INPUT = PseudoPrimitive("input", None)
PICK = PseudoPrimitive("pick", lambda results, *, number: results[number])
pseudo_primitives: dict[str, PseudoPrimitive] = {"input": INPUT, "pick": PICK}


def find_pseudo_primitive(name: str) -> PseudoPrimitive:
    """The PseudoPrimitive of this name."""
    return pseudo_primitives[name]


class Call:
    """A kind of call: `primitive` on operands of `specs` with `attrs`, which gives `out`, a spec or
    a tuple of them; `outs` is a tuple also of one. `host` is a user's function that computes it in
    place of the card's reference. `number` is never given twice. `is_collective`: other processes
    wait for it, so it runs just once, though nobody reads its result."""

    __slots__ = (
        "primitive name specs attrs out outs host is_collective number reads pulls cached_cost "
        "__weakref__"
    ).split()

    primitive: Any
    name: Any

    def __init__(
        self,
        primitive: Any,
        specs: tuple[Any, ...],
        attrs: dict[Any, Any],
        out: Any,
        host: "ReplacingKernel | None" = None,
    ) -> None:
        self.primitive, self.name = primitive, primitive.name
        self.specs = specs
        self.attrs = attrs
        self.out = out
        self.host = host
        self.outs: tuple[Any, ...] | tuple[Any] = out if isinstance(out, tuple) else (out,)
        self.is_collective: bool = bool(attrs) and involves_others(primitive, attrs)
        self.number: int = next(numbers)
        self.reads: dict[tuple[bool, ...], tuple[Any, ...]] = {}  # by which operands are tracked
        self.pulls: dict[
            Any, Any
        ] = {}  # how its derivative is replayed, see compile/programs/replay.py
        self.cached_cost: Cost | None = None

    @property
    def cost(self) -> Cost:
        """FLOPs and bytes."""
        if self.cached_cost is None:
            self.cached_cost = work_out_cost(self)
        return self.cached_cost

    def kept(self, needs: tuple[bool, ...]) -> tuple[bool, tuple[bool, ...]]:
        """(keep the result?, keep each operand?) for a backward to the operands in `needs`."""
        choice = self.reads.get(needs)
        if choice is None:
            choice = self.reads[needs] = self.primitive.kept(needs)
        return choice

    def compute(self, *operands: Any) -> Any:
        """The result(s) as arrays: by the user's function, or by the card's reference."""
        return (self.host or self.primitive.ref)(*operands, **self.attrs)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return restored_call, (self.primitive, self.specs, self.attrs, self.out, self.host)

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(map(repr, self.specs))})"


numbers: "itertools.count[int]" = itertools.count()


def involves_others(primitive: "Primitive | PseudoPrimitive", attrs: dict[Any, Any]) -> bool:
    """Whether other processes take part in a call, or in one of its body."""
    if "collective" in primitive.traits:
        return attrs["group"].size > 1
    calls = getattr(attrs.get("body"), "calls", ())
    return any(call.is_collective for call, _ in calls)


def work_out_cost(call: Call) -> Cost:
    card, specs, attrs = call.primitive, call.specs, call.attrs
    if card.parts is not None:
        parts = [[n * times for n in part.cost] for part, times, _ in card.parts(*specs, **attrs)]
        return Cost(*(sum(column) for column in zip(*parts, strict=True))) if parts else NO_COST
    flops = int(card.flops(*specs, **attrs)) if specs else 0
    exact = flops
    if specs and card.exact_flops is not None:
        exact = int(card.exact_flops(*specs, **attrs))
    times = 1
    if card.complex_flops != 1 and any(s.dtype.is_complex for s in (*specs, *call.outs)):
        times = card.complex_flops
    is_matrix = card.name in MATRIX
    moved = card.bytes(*specs, **attrs) if specs else call.outs[0].nbytes
    return Cost(
        flops * times,
        flops * times * is_matrix,
        exact * times,
        int(moved),
        exact * times * is_matrix,
    )


calls: dict[tuple[Any, ...], Call] = {}  # all calls, by their keys
MOST_CALLS = 1 << 14  # then calls without references go, and the limit is twice the rest


class CallLimit:
    """How many calls there may be."""

    now = MOST_CALLS


def add_call(
    key: tuple[Any, ...],
    primitive: Any,
    specs: tuple[Any, ...],
    attrs: dict[Any, Any],
    out: Any,
    host: "ReplacingKernel | None",
) -> Call:
    """The call of a key, made unless another thread was faster; `out` is inferred if None."""
    if out is None:
        out = primitive.infer(*specs, **attrs)
    if len(calls) >= CallLimit.now:
        drop_unused_calls()
    return calls.setdefault(key, Call(primitive, specs, attrs, out, host))


def drop_unused_calls() -> None:
    """Forget the calls that nobody refers to."""
    entries = items_of(calls)
    while entries:
        key, call = entries.pop()
        if sys.getrefcount(call) <= NAMED + 1:  # in `calls`
            calls.pop(key, None)
        del call
    CallLimit.now = max(MOST_CALLS, 2 * len(calls))


def call_of(
    primitive: Any, specs: Any, attrs: dict[Any, Any], out: Any = None, host: Any = None
) -> Call:
    """The one call of `primitive` on operands of `specs` with `attrs`, computed by `host` if given.
    `out`, the specs of its results, is inferred if it is not given. Attrs that cannot be hashed
    make a new call each time.

    Example:
        >>> x = Spec((2, 3), gh.float32)
        >>> call = call_of(gh.primitives["add"], (x, x), {})
        >>> call is call_of(gh.primitives["add"], (x, x), {}), call.out
        (True, float32[2, 3])
    """
    if not attrs:
        key = (primitive, host, *specs)
    else:
        values = attrs.values()
        types = (*map(type, values),)
        if not INEXACT.isdisjoint(types):
            values = map(repr, values)
        key = (primitive, host, *specs, *attrs, *values, *types)
    try:
        call = calls.get(key)
    except TypeError:
        if out is None:
            out = primitive.infer(*specs, **attrs)
        return Call(primitive, tuple(specs), attrs, out, host)
    return call or add_call(key, primitive, tuple(specs), attrs, out, host)


def restored_call(
    primitive: Any,
    specs: tuple[tuple[Spec, ...] | Spec, ...],
    attrs: dict[Any, Any],
    out: Any,
    host: Any,
) -> Call:
    """The call that was pickled."""
    if primitive is INPUT:
        return input_call(attrs["number"], out)
    if is_static_source(primitive, attrs):
        return call_of(primitive, specs, attrs, out, host)
    return call_from_outside(primitive, attrs, out, host)


def source_call(primitive: "Primitive", attrs: dict[Any, Any]) -> Call:
    """The call of a primitive without operands, whose value may be no part of it."""
    if is_static_source(primitive, attrs):
        return call_of(primitive, (), attrs)
    return call_from_outside(primitive, attrs, primitive.infer(**attrs))


def is_static_source(primitive: Any, attrs: dict[Any, Any]) -> bool:
    """Whether a call gives the same each time. Another `constant` or `full` with these attrs may
    have another value, but for numbers that rewriting rules know."""
    if primitive.name not in ("constant", "full") or "number" in attrs:
        return True
    value = attrs["value"]
    if primitive.name == "constant" or value is None:
        return False
    return isinstance(value, complex) or repr(value) in STATIC_SCALARS or attrs["dtype"].is_complex


def call_from_outside(primitive: Any, attrs: dict[Any, Any], out: Spec, host: Any = None) -> Call:
    """The call of a `constant` or `full` whose value is no part of it."""
    key = (primitive, host, out)
    call = calls.get(key)
    return call or add_call(key, primitive, (), {**attrs, "value": None}, out, host)


def input_call(number: int, spec: Spec) -> Call:
    """The call that stands for an input of a graph: the array from outside with this number."""
    key = (INPUT, number, spec)
    return calls.get(key) or add_call(key, INPUT, (), {"number": number}, spec, None)


def pick_call(of: Call, number: int) -> Call:
    """The call that gives one of the results of a call with several."""
    return call_of(PICK, (of.out,), {"number": number}, of.out[number])


def cost_of(
    primitive: Any, specs: Any, attrs: dict[Any, Any], out: Spec | tuple[Any, ...] | None = None
) -> Cost:
    """The Cost of a call; infers `out` if it is None.

    Example:
        >>> x = Spec((2, 3), gh.float32)
        >>> cost_of(gh.primitives["matmul"], (x, Spec((3, 4), gh.float32)), {})
        Cost(flops=48, matrix_flops=48, exact_flops=48, bytes=104, exact_matrix_flops=48)
    """
    return call_of(primitive, specs, attrs, out).cost
