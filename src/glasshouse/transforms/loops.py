"""Conditions and loops whose course depends on contents: one call each, compiled into the Program
around them. A branch is a loop of one step with a gate; `while_loop` is one that its gate ends."""

import operator
from collections.abc import Callable, Sequence
from typing import Any

from glasshouse.base import DTypeError, ShapeError, Spec, bool_, flatten, uint32, unflatten
from glasshouse.dispatch import SCALARS, Value, as_value, cast, zeros
from glasshouse.ops.body import traced
from glasshouse.ops.create import iota
from glasshouse.ops.linearise import ENDLESS, LoopShape
from glasshouse.ops.scan import GATE, loop
from glasshouse.tensor import Tensor
from glasshouse.tensor.standard.creation import arange
from glasshouse.tensor.standard.elementwise import clip
from glasshouse.transforms.scan import scan


def as_predicate(where: str, x: Any) -> Tensor:
    """A boolean of no axes; numbers are true unless they are zero."""
    x = as_value(x, where=where)
    if x.shape != ():
        raise ShapeError(where, "one boolean, of shape ()", x.shape, "Use gh.any or gh.all.")
    return cast(x, bool_)


class Branch:
    """A function of operands, written down but not yet run: `values` are its results."""

    tracer: Any
    inputs: Any
    values: Any

    def __init__(self, where: str, fn: Callable[..., Any], operands: Any) -> None:
        leaves, treedef = flatten(operands)
        self.operands: list[Any] = [as_value(x, where=where) for x in leaves]

        def run(*values):
            out, self.out_def = flatten(fn(*unflatten(treedef, values)))
            self.scalars = [type(x) if type(x) in SCALARS else None for x in out]
            return [as_value(x, where=where) for x in out]

        specs = [x.spec for x in self.operands]
        self.tracer, self.inputs, self.values = traced(run, specs, hoists=False)

    def fitted(self, specs: Sequence[Spec]) -> None:
        """Bring Python numbers among the results to the dtypes of the other branches."""
        with self.tracer:
            self.values = [
                cast(x, s.dtype) if kind is not None else x
                for x, s, kind in zip(self.values, specs, self.scalars, strict=True)
            ]

    def run(self, gate: Tensor, before: Sequence[Tensor]) -> list[Tensor]:
        """The results if the gate is open, else the values `before`."""
        tracer = self.tracer
        outputs = [tracer.number_of(x) for x in self.values]
        carried = [tracer.number(GATE), *(tracer.number(x.spec) for x in before)]
        inputs = [x.payload for x in self.inputs]
        steps = [] if tracer.step is None else [tracer.step]
        consts = tracer.roots(outputs, [*inputs, *steps])
        body = tracer.body([*consts, *inputs, *carried, *steps], [carried[0], *outputs])
        operands = [*(tracer.captured[i] for i in consts), *self.operands, gate, *before]
        operands += [iota(size=1, dtype=uint32) for _ in steps]
        shape = LoopShape(len(consts) + len(inputs), len(carried), 1, gated=True)
        return loop(operands, body, shape)[1:]


def one_of(where: str, gates: Sequence[Tensor], fns: Any, operands: Any) -> Any:
    """The results of the one function whose gate is open."""
    branches = [Branch(where, fn, operands) for fn in fns]
    first = branches[0]
    specs = [
        next((b.values[i].spec for b in branches if b.scalars[i] is None), x.spec)
        if all(b.out_def == first.out_def for b in branches)
        else x.spec
        for i, x in enumerate(first.values)
    ]
    for branch in branches:
        if branch.out_def != first.out_def:
            fix = "Return the same nesting from each."
            got = f"{first.out_def} and {branch.out_def}"
            raise ShapeError(where, "branches with results of one structure", got, fix)
        branch.fitted(specs)
        for x, spec in zip(branch.values, specs, strict=True):
            if x.spec != spec:
                error = DTypeError if x.dtype is not spec.dtype else ShapeError
                fix = "Cast or broadcast the results of one branch."
                raise error(where, f"branches that give {spec}", repr(x.spec), fix)
    results: Any = [zeros(spec) for spec in specs]
    for gate, branch in zip(gates, branches, strict=True):
        results = branch.run(gate, results)
    return unflatten(first.out_def, results)


def cond(
    pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], *operands: Any
) -> Any:
    """`true_fun(*operands)` if `pred` is true, else `false_fun(*operands)`. Both functions are
    traced once; one of them runs, and derivatives go through that one alone. Under vmap with a
    mapped `pred` both run for the batch, and each example keeps its own.

    Shapes: pred (); both results alike.
    Raises: ShapeError, DTypeError unless both results have the same structure, shapes and dtypes;
        TransformError where a function needs the contents of a value.
    Source: Bradbury et al., JAX, 2018 (lax.cond).
    Example:
        >>> gh.cond(gh.tensor(3) > 2, lambda x: x * 2, lambda x: -x, gh.tensor(5.0)).item()
        10.0
    """
    gate = as_predicate("cond", pred)
    return one_of("cond", [gate, ~gate], [true_fun, false_fun], operands)


def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """`branches[index](*operands)`, an index out of range being the nearest one.

    Shapes: index (); all results alike.
    Raises: DTypeError unless index is an integer, and as cond.
    Source: Bradbury et al., JAX, 2018 (lax.switch).
    Example:
        >>> gh.switch(gh.tensor(1), [gh.sin, gh.square, gh.exp], gh.tensor(3.0)).item()
        9.0
    """
    index = as_value(index, where="switch")
    if not index.dtype.is_integer or index.shape != ():
        raise DTypeError("switch", "an integer of shape ()", index.spec, "Pass a position.")
    if not branches:
        raise ShapeError("switch", "at least one branch", "none", "Give a list of functions.")
    index = clip(index, 0, len(branches) - 1)
    gates = [index == i for i in range(len(branches))]
    return one_of("switch", gates, branches, operands)


def while_loop(cond_fun: Callable[..., Any], body_fun: Callable[..., Any], init_val: Any) -> Any:
    """The first of `init_val`, `body_fun(init_val)`, `body_fun(body_fun(init_val))` … for which
    `cond_fun` is false. Both functions are traced once, and run inside a Program. Forward mode goes
    through it; reverse mode does not, since the number of steps is not known before.

    Shapes: body_fun returns the shapes of its input.
    Raises: ShapeError, DTypeError for a value that changes, or a condition that is not a boolean;
        GradError in reverse mode; TransformError where a function needs the contents of a value.
    Source: Bradbury et al., JAX, 2018 (lax.while_loop).
    Example:
        >>> gh.while_loop(lambda x: x < 100, lambda x: x * 2, gh.tensor(3)).item()
        192
    """
    leaves, treedef = flatten(init_val)
    carried = [as_value(x, where="while_loop") for x in leaves]
    opening: Any = as_predicate("while_loop", cond_fun(unflatten(treedef, carried)))

    def step(*values):
        returned, out_def = flatten(body_fun(unflatten(treedef, values)))
        if out_def != treedef:
            fix = "Return what is carried as it came."
            raise ShapeError("while_loop", f"a value structured as {treedef}", out_def, fix)
        weak = [type(x) in SCALARS for x in returned]
        returned = [as_value(x, where="while_loop") for x in returned]
        returned = [
            cast(x, old.dtype) if is_weak else x
            for x, old, is_weak in zip(returned, values, weak, strict=True)
        ]
        for before, after in zip((x.spec for x in carried), returned, strict=True):
            if before != after.spec:
                error = DTypeError if before.dtype is not after.dtype else ShapeError
                fix = "Return what is carried with the shape and dtype that it came with."
                got = repr(after.spec)
                raise error("while_loop", f"a step that carries {before} on", got, fix)
        following = as_predicate("while_loop", cond_fun(unflatten(treedef, returned)))
        return [following, *returned]

    tracer, inputs, outputs = traced(step, [x.spec for x in carried])
    inner, operands = [x.payload for x in inputs], list(carried)
    if tracer.step is not None:  # steps are counted, for random numbers
        with tracer:
            outputs = [*outputs, tracer.value(tracer.step) + 1]
        inner.append(tracer.step)
        operands.append(zeros(Spec((), uint32)))
    numbers = [tracer.number_of(x) for x in outputs]
    gate = tracer.number(GATE)
    consts = tracer.roots(numbers, inner)
    body = tracer.body([*consts, gate, *inner], numbers)
    shape = LoopShape(len(consts), 1 + len(operands), ENDLESS, gated=True)
    results = loop([*(tracer.captured[i] for i in consts), opening, *operands], body, shape)
    return unflatten(treedef, results[1 : 1 + len(carried)])


def fori_loop(
    lower: Any, upper: Any, body_fun: Callable[..., Any], init_val: Any, *, unroll: Any = None
) -> Any:
    """The last `value = body_fun(i, value)` for i from `lower` to `upper` - 1, from `init_val`
    on. Bounds that are Python integers make a scan, through which reverse mode goes; bounds that
    are tensors make a `while_loop`. `unroll` is accepted and has no effect: the compiler decides.

    Shapes: body_fun returns the shapes of its input.
    Raises: as scan and while_loop.
    Source: Bradbury et al., JAX, 2018 (lax.fori_loop).
    Example:
        >>> gh.fori_loop(0, 5, lambda i, total: total + i, gh.tensor(0)).item()
        10
    """
    if not isinstance(lower, Value) and not isinstance(upper, Value):
        lower, upper = operator.index(lower), operator.index(upper)
        if upper <= lower:
            return unflatten(flatten(init_val)[1], [as_value(x) for x in flatten(init_val)[0]])
        numbers = arange(lower, upper)
        return scan(lambda value, i: (body_fun(i, value), None), init_val, numbers)[0]
    start, end = (as_value(x, where="fori_loop") for x in (lower, upper))
    if not (start.dtype.is_integer and end.dtype.is_integer):
        got = f"{start.dtype.name} and {end.dtype.name}"
        raise DTypeError("fori_loop", "integer bounds", got, "Cast them.")
    if start.dtype is not end.dtype:
        start = cast(start, end.dtype) if isinstance(upper, Value) else start
        end = cast(end, start.dtype)

    def step(state):
        i, value = state
        return i + 1, body_fun(i, value)

    return while_loop(lambda state: state[0] < end, step, (start, init_val))[1]
