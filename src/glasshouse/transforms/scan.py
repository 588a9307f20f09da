"""scan: a loop as one call, whatever its length."""

from collections.abc import Callable
from typing import Any

from glasshouse.base import DTypeError, ShapeError, flatten, type_name, uint32, unflatten
from glasshouse.dispatch import as_value
from glasshouse.ops.body import traced
from glasshouse.ops.create import iota
from glasshouse.ops.linearise import LoopShape
from glasshouse.ops.scan import loop


def scan(
    fn: Callable[..., Any],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    *,
    recompute: bool = False,
) -> Any:
    """(carry, ys): the results of `carry, y = fn(carry, x)` for each x of `xs` along axis 0, from
    `init` on; `ys` are stacked along axis 0. `fn` is traced once, and runs as one step of a Program
    as often as there are values. `reverse` goes from the last x to the first, which leaves the
    order of `ys` as it is; `unroll` has no effect. With `recompute` a backward pass recomputes each
    step from its carry, and nothing else is kept. Random numbers that `fn` draws differ from step
    to step.

    Shapes: xs (length, ...) each, carry as init -> ys (length, ...).
    Raises: ShapeError for values of different lengths, and for a carry that changes; TransformError
        where fn needs the contents of a value.
    Source: Bradbury et al., JAX, 2018 (lax.scan).
    Example:
        >>> total, sums = gh.scan(lambda s, x: (s + x, s + x), gh.tensor(0), gh.tensor([1, 2, 3]))
        >>> total.item(), sums.tolist()
        (6, [1, 3, 6])
    """
    init_leaves, init_def = flatten(init)
    x_leaves, x_def = flatten(() if xs is None else xs)
    carried = [as_value(x, where="scan") for x in init_leaves]
    rows = [as_value(x, where="scan") for x in x_leaves]
    steps = number_of_steps(rows, length)
    specs = [x.spec for x in carried]
    specs += [type(x.spec)(x.shape[1:], x.dtype) for x in rows]
    trees = {}

    def step(*values):
        state = unflatten(init_def, values[: len(carried)])
        x = None if xs is None else unflatten(x_def, values[len(carried) :])
        returned = fn(state, x)
        if not isinstance(returned, tuple) or len(returned) != 2:
            fix = "End it with `return carry, y`; y may be None."
            raise DTypeError("scan", "a step that returns (carry, y)", type_name(returned), fix)
        leaves, treedef = flatten(returned[0])
        if treedef != init_def:
            fix = "Return what is carried as it came."
            raise ShapeError("scan", f"a carry structured as {init_def}", treedef, fix)
        outputs, trees["ys"] = flatten(() if returned[1] is None else returned[1])
        return [as_value(x, where="scan") for x in (*leaves, *outputs)]

    tracer, inputs, outputs = traced(step, specs)
    numbers = [tracer.number_of(x) for x in outputs]
    inner = [x.payload for x in inputs]
    if tracer.step is not None:
        inner.append(tracer.step)
        rows.append(iota(size=steps, dtype=uint32))
    consts = tracer.roots(numbers, inner)
    body = tracer.body([*consts, *inner], numbers)
    operands = [*(tracer.captured[i] for i in consts), *carried, *rows]
    shape = LoopShape(len(consts), len(carried), steps)
    check_carry(body.out_specs(), carried)
    results = loop(operands, body, shape, reverse, recompute)
    last = unflatten(init_def, results[: len(carried)])
    return last, unflatten(trees["ys"], results[len(carried) :])


def number_of_steps(xs: Any, length: int | None) -> Any:
    sizes = {x.shape[0] if x.ndim else None for x in xs} | ({length} - {None})
    if len(sizes) != 1 or None in sizes:
        got = f"shapes {[x.shape for x in xs]} and length={length}"
        fix = "Stack what is given per step along axis 0."
        raise ShapeError("scan", "values of one length along axis 0, or `length`", got, fix)
    (size,) = sizes
    return size


def check_carry(outs: Any, carried: Any) -> None:
    for before, after in zip((x.spec for x in carried), outs, strict=False):
        if before != after:
            error = DTypeError if before.dtype is not after.dtype else ShapeError
            fix = "Return what is carried with the shape and dtype that it came with."
            raise error("scan", f"a step that carries {before} on", repr(after), fix)
