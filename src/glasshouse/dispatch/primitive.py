"""Primitive cards: all that is known about one operation, in one place, and their registry."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from glasshouse.base import DType, OptionError, Spec, all_dtypes, as_dtype, check_known
from glasshouse.dispatch.bind import bind
from glasshouse.dispatch.kernel_text import KernelText

LINEAR = "linear"  # a jvp: the primitive itself, applied with one operand replaced by its tangent

KINDS = {"all": "bool int uint float complex", "bool": "bool", "integer": "int uint",
         "bitwise": "bool int uint", "floating": "float", "inexact": "float complex",
         "real": "int uint float", "numeric": "int uint float complex",
         "ordered": "bool int uint float"}  # fmt: skip
DTYPE_GROUPS: dict[str, tuple[DType, ...]] = {
    name: tuple(d for d in all_dtypes if d.kind in kinds.split()) for name, kinds in KINDS.items()
}
DTYPE_GROUPS["linalg"] = tuple(d for d in DTYPE_GROUPS["inexact"] if d.itemsize > 2)


@dataclass(frozen=True)
class Arr:
    """A sample operand: values of `shape` drawn in [low, high), in `dtype` or the tested dtype.
    `make(rng, shape) -> float64 array` replaces the uniform draw where values need a structure."""

    shape: tuple[int, ...]
    low: float = -1.0
    high: float = 1.0
    dtype: str | None = None
    make: Callable[..., Any] | None = None

    def fill(self, rng: "np.random.Generator", dtype: DType) -> np.ndarray:
        """The operand as a NumPy array in `dtype` (or in its own, where it has one)."""
        chosen = as_dtype(self.dtype or dtype)
        if self.make is not None:
            values = self.make(rng, self.shape)
            if chosen.is_complex and self.dtype is None and not np.iscomplexobj(values):
                values = values + 0.3j * self.make(rng, self.shape)
            return np.asarray(values).astype(chosen.np)
        if chosen.is_bool:
            return rng.random(self.shape) < 0.5
        if chosen.is_integer:
            low = max(0 if chosen.kind == "uint" else -100, int(np.floor(self.low)))
            return rng.integers(low, max(low + 1, int(self.high)), self.shape).astype(chosen.np)
        values = rng.uniform(self.low, self.high, self.shape)
        if chosen.is_complex:
            values = values + 1j * rng.uniform(self.low, self.high, self.shape)
        return np.asarray(values).astype(chosen.np)


@dataclass(frozen=True)
class Sample:
    """Valid operands and attrs of a primitive, from which tests and documents are generated."""

    args: tuple[Any, ...] = ()
    attrs: dict[Any, Any] = field(default_factory=dict)

    def fill(self, rng: "np.random.Generator", dtype: DType) -> list[np.ndarray]:
        return [a.fill(rng, dtype) if isinstance(a, Arr) else np.asarray(a) for a in self.args]


@dataclass(frozen=True)
class ErrorSample:
    """Operands and attrs that a primitive must refuse; the error's class and part of its text."""

    args: tuple[Any, ...]
    attrs: dict[Any, Any]
    error: type[Any]
    text: str
    dtype: str = "float32"


def operands(values: Any) -> tuple[Any, ...]:
    return tuple(Arr(x) if isinstance(x, tuple) else x for x in values)


def sample(*values: Any, **attrs: Any) -> Sample:
    """A sample of these operands (shapes, or operands as they are) and attrs."""
    return Sample(operands(values), attrs)


def refusal(
    error: type[Any], text: str, *values: Any, on: str = "float32", **attrs: Any
) -> ErrorSample:
    """A sample that a card refuses, with the error and a part of its text; `on`: in which dtype."""
    return ErrorSample(operands(values), attrs, error, text, on)


class Rule:
    """One operand's vjp and the values it reads: parameters named `_…` receive a Spec instead."""

    __slots__ = ("fn", "reads_y", "reads")

    reads: tuple[bool, ...] | bool

    def __init__(
        self, fn: Callable[..., Any], reads_y: bool, reads: tuple[bool, ...] | bool
    ) -> None:
        self.fn: Callable[..., Any] = fn
        self.reads_y: bool = reads_y
        self.reads = reads  # tuple of bool per operand, or one bool for all

    @classmethod
    def parse(cls, fn: Any) -> "Rule":
        """The rule of `fn(g, y, *operands, **attrs)`, read off its parameter names."""
        if isinstance(fn, Rule):
            return fn
        params = list(inspect.signature(fn).parameters.values())
        names, rest = [], None
        for p in params:
            if p.kind is p.VAR_POSITIONAL:
                rest = not p.name.startswith("_")
            elif p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
                names.append(not p.name.startswith("_"))
        reads_y = names[1] if len(names) > 1 else bool(rest)
        return cls(fn, reads_y, tuple(names[2:]) if rest is None else rest)

    def reads_operand(self, i: int) -> bool:
        return self.reads if isinstance(self.reads, bool) else self.reads[i]


@dataclass(eq=False)
class Primitive:
    """One card. Calling it binds it: `add(x, y)`, `sum(x, axes=(0,))`.
    infer   (*specs, **attrs) -> Spec, or a tuple of them; raises on bad operands
    ref     (*arrays, **attrs) -> array(s): the meaning, in NumPy
    vjp     per operand (or a function i -> rule): f(g, y, *operands, **attrs) -> cotangent
    pullback  (needs, cotangents, y, *operands, **attrs) -> a cotangent for each operand in `needs`:
            where they share their work; cotangents that are None are zero
    pushforward  (tangents, y, *operands, **attrs) -> the tangent(s) of the result(s): where those
            of all operands share their work; tangents that are None are zero
    jvp     per operand (or a function i -> rule): f(t, y, *operands, **attrs) -> tangent, or LINEAR
    batch   (batched, *operands, **attrs) -> result(s) with the batch axis in front
    flops   (*specs, **attrs) -> count, a multiply-add being 2;  bytes: read plus written
    exact_flops    the same without work on padding, where that differs
    parts          (*specs, **attrs) -> [(call, how often, is it again)], its parts
    complex_flops  real operations in place of each one on complex operands
    kernel         how fused kernels write an element; a card without one is a step of the host
    composition    (*operands, **attrs) -> result(s) of other cards, which Programs use instead"""

    name: str
    kind: str
    doc: str
    why: str
    infer: Callable[..., Any]
    ref: Callable[..., Any]
    batch: Callable[..., Any]
    flops: Callable[..., Any]
    bytes: Callable[..., Any]
    samples: tuple[Sample, ...]
    error_samples: tuple[ErrorSample, ...]
    dtypes: tuple[DType, ...]
    vjp: tuple[Any, ...] | Callable[..., Any] | None = None
    pullback: Callable[..., Any] | None = None
    pushforward: Callable[..., Any] | None = None
    jvp: tuple[Any, ...] | Callable[..., Any] | str | None = None
    traits: frozenset[str] = frozenset()
    source: str = "standard"
    num_outputs: int = 1
    autocast: str | None = None  # "lower": runs in the 16-bit type of an autocast
    exact_flops: Callable[..., Any] | None = None
    parts: Callable[..., Any] | None = None
    complex_flops: int = 4
    kernel: KernelText | None = None
    composition: Callable[..., Any] | None = None
    parsed_rules: dict[int, Rule | None] = field(default_factory=dict, init=False)

    def __call__(self, *operands: Any, **attrs: Any) -> Any:
        return bind(self, operands, attrs)

    def __repr__(self) -> str:
        return f"<primitive {self.name}>"

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, ...]]:
        return find, (self.name,)

    def vjp_rule(self, i: int) -> Rule | None:
        """The vjp of operand `i`, or None where the result does not depend on it smoothly."""
        if self.vjp is None:
            return None
        rules = self.parsed_rules
        if i not in rules:
            fn = self.vjp(i) if callable(self.vjp) else self.vjp[i]
            rules[i] = None if fn is None else Rule.parse(fn)
        return rules[i]

    def kept(self, needs: tuple[bool, ...]) -> tuple[bool, tuple[bool, ...]]:
        """(keep the result?, keep each operand?) for a backward to the operands in `needs`."""
        rules = [r for i, need in enumerate(needs) if need and (r := self.vjp_rule(i))]
        operands = tuple(any(r.reads_operand(i) for r in rules) for i in range(len(needs)))
        return any(r.reads_y for r in rules), operands


primitives: dict[str, Primitive] = {}
# Names in graphs and expressions for calls without a card.
RESERVED = frozenset(
    ("input", "pick", "load", "scalar", "reduced", "random", "program", "part", "complex")
)


def moved_bytes(specs: tuple[Spec, ...], out: Spec) -> int:
    return sum(spec.nbytes for spec in (*specs, *(out if isinstance(out, tuple) else (out,))))


def define(
    name: str,
    kind: str,
    doc: str,
    *,
    infer: Callable[..., Any],
    samples: Any,
    error_samples: Any = (),
    bytes: Callable[..., Any] | None = None,
    dtypes: str | tuple[DType, ...] = "all",
    traits: tuple[Any, ...] = (),
    kernel: Any = None,
    **rest: Any,
) -> Primitive:
    """The new card, in the registry; `rest` are its other fields.

    Raises: OptionError for a name that is known, or reserved
    """
    if rest.get("composition") is not None and rest.get("num_outputs", 1) != 1:
        fix = "Make a card of each result."
        raise OptionError("define", "one result of a composition", name, fix)
    if name in primitives or name in RESERVED:
        got = f"{name!r}, which is reserved" if name in RESERVED else f"{name!r} twice"
        raise OptionError("define", "a new name", got, "Choose another name.")
    card = primitives[name] = Primitive(
        name,
        kind,
        doc,
        infer=infer,
        samples=tuple(samples),
        error_samples=tuple(error_samples),
        bytes=bytes or (lambda *specs, **attrs: moved_bytes(specs, infer(*specs, **attrs))),
        dtypes=DTYPE_GROUPS[dtypes] if isinstance(dtypes, str) else tuple(dtypes),
        traits=frozenset(traits),
        kernel=KernelText.of(kernel),
        **rest,
    )
    return card


def card(kind: str, **fields: Any) -> Callable[[Callable[..., Any]], Primitive]:
    """A decorator that makes a card of its NumPy reference, whose name it takes.

    The docstring says what it computes, and after "Why:" why it is needed; the rest is notes."""

    def make(ref: Callable[..., Any]) -> Primitive:
        doc, _, rest = inspect.cleandoc(ref.__doc__ or "").partition("\n\nWhy: ")
        why = " ".join(rest.partition("\n\n")[0].split()).rstrip(".")
        name = ref.__name__.rstrip("_")
        return define(name, kind, " ".join(doc.split()), why=why, ref=ref, **fields)

    return make


def find(name: str) -> Primitive:
    """The card called `name`.

    Raises: OptionError, naming the nearest card, if there is none.
    """
    return primitives[check_known("primitive", "the name of a card", name, primitives)]
