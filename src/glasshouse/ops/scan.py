"""Loops: one step, recorded once and repeated on values carried along.

Its derivatives are loops too: forward mode carries tangents beside the values, reverse mode goes
from the last step to the first (`linearise.py`), a batch is one more axis of the step's own
values."""

import functools
from typing import Any, NamedTuple

import numpy as np

from glasshouse.base import DTypeError, GradError, ShapeError, Spec, bool_, float32
from glasshouse.dispatch import (
    broadcast_to,
    card,
    primitives,
    refusal,
    reshape,
    sample,
    state,
    zeros,
)
from glasshouse.dispatch.call import call_of
from glasshouse.ops import linearise
from glasshouse.ops.body import DETACH, Body, traced
from glasshouse.ops.compare import where
from glasshouse.ops.index import move_axes
from glasshouse.ops.reduce import any_
from glasshouse.ops.tangents import push

GATE = Spec((), bool_)


def infer_scan(*operands: Spec, body: Body, shape: linearise.LoopShape, **_: Any) -> Any:
    consts, init, xs = shape.parts(operands)
    for x in xs:
        if x.ndim == 0 or x.shape[0] != shape.length:
            expected = f"values for {shape.length} steps along axis 0"
            got = f"shape {x.shape}"
            raise ShapeError("scan", expected, got, "Give all of them the same first axis.")
    if shape.gated and (not init or init[0] != GATE):
        got = init[0] if init else "nothing carried"
        raise ShapeError("scan", f"a gate {GATE}", got, "Compare numbers, not tensors.")
    steps = [Spec(x.shape[1:], x.dtype) for x in xs]
    inputs = (*consts, *init, *steps)
    if inputs != body.inputs:
        fix = "Make the body for these operands."
        raise ShapeError("scan", f"operands {list(body.inputs)}", f"{list(inputs)}", fix)
    outs = body.out_specs()
    for before, after in zip(init, outs, strict=False):
        if before != after:
            error = DTypeError if before.dtype is not after.dtype else ShapeError
            fix = "Return what is carried with the shape and dtype that it came with."
            raise error("scan", f"a step that carries {before} on", repr(after), fix)
    stacked = (Spec((shape.length, *x.shape), x.dtype) for x in outs[shape.carries :])
    return (*outs[: shape.carries], *stacked)


def compute_scan(
    *operands: Any, body: Body, shape: linearise.LoopShape, reverse: bool, **_: Any
) -> Any:
    consts, carried, xs = shape.parts(operands)
    specs = body.out_specs()[shape.carries :]
    stacks = [np.zeros((shape.length, *spec.shape), spec.dtype.np) for spec in specs]
    for t in reversed(range(shape.length)) if reverse else range(shape.length):
        if shape.gated and not carried[0]:
            break
        results = body.compute([*consts, *carried, *(x[t] for x in xs)])
        carried = results[: shape.carries]
        for stack, value in zip(stacks, results[shape.carries :], strict=True):
            stack[t] = value
    return (*map(np.asarray, carried), *stacks)


def parts_of_scan(*_specs: Any, body: Body, shape: linearise.LoopShape, **_: Any) -> Any:
    numbered = enumerate(call for call, _ in body.calls)
    return [
        (call, shape.times, i in body.recomputed) for i, call in numbered if call.name != "detach"
    ]


def work(field: str) -> Any:
    """The sum of a cost over all calls of all steps."""

    def total(*specs, **attrs) -> int:
        parts = parts_of_scan(*specs, **attrs)
        return sum(getattr(call.cost, field) * times for call, times, _ in parts)

    return total


# -- derivatives -------------------------------------------------------------------------------


def is_tracked(x: Any) -> bool:
    """Whether a tape records the operations on a value."""
    recorder: Any = state if x.mode is None else x.mode
    return x.tape_entry is not None and recorder.records


def loop(
    operands: Any,
    body: Body,
    shape: linearise.LoopShape,
    reverse: bool = False,
    recompute: bool = False,
) -> Any:
    """The results of a loop, as a list. If a tape records it, the values that the backward loop
    will read are kept at once; with `recompute`, only the carried ones."""
    needs = tuple(map(is_tracked, operands))
    attrs = {"body": body, "shape": shape, "reverse": reverse, "recompute": recompute}
    if True not in needs or shape.length == linearise.ENDLESS:
        return list(scan(*operands, **attrs, residuals=None))
    forward = linearise.forward_of(body, shape, needs, recompute)
    results = scan(*operands, **attrs | {"body": forward.body}, residuals=forward.residuals)
    return list(results)[: len(body.outputs)]


def pull_scan(
    needs: Any,
    cotangents: Any,
    y: Any,
    *operands: Any,
    body: Any,
    shape: Any,
    reverse: Any,
    recompute: Any,
    residuals: Any,
    **_: Any,
) -> Any:
    """The cotangents of the operands that are needed, by one loop backwards."""
    if shape.gated and shape.length > 1:
        fix = "Use gh.fori_loop over known numbers or gh.scan, or forward mode: gh.jvp."
        got = "one that ends by its condition"
        raise GradError("while_loop", "a loop of known length to go back through", got, fix)
    count = len(body.outputs) - (residuals or 0)
    if residuals is None or any(x is not None for x in cotangents[count:]):
        forward = linearise.forward_of(body, shape, needs, recompute)
        attrs = {"shape": shape, "reverse": reverse, "recompute": recompute}
        y = scan(*operands, body=forward.body, residuals=forward.residuals, **attrs)
    else:
        forward, cotangents = linearise.Forward(body, residuals), cotangents[:count]
    back = linearise.backward_of(forward, shape, needs, tuple(x is not None for x in cotangents))
    stacks = {
        number: source_of(where, operands, y, cotangents) for number, where in back.sources.items()
    }
    consts, init, _ = shape.parts(operands)
    gate = init[: shape.gated]
    inputs = [
        *consts,
        *gate,
        *(zeros(init[i]) if cotangents[i] is None else cotangents[i] for i in back.active),
        *(zeros(consts[i]) for i in back.summed),
        *(stacks[number] for number in back.reads),
    ]
    carried = len(back.active) + len(back.summed)
    sizes = (shape.consts, len(gate) + carried, shape.length, shape.gated)
    results = loop(inputs, back.body, linearise.LoopShape(*sizes), not reverse)[len(gate) :]
    stacks.update(zip(back.stacks, results[carried:], strict=True))
    pulled = dict(zip(back.summed, results[len(back.active) : carried], strict=True))
    pulled.update((i, linearise.work_out(late, stacks)) for i, late in back.late.items())
    pulled.update((i + shape.consts, x) for i, x in zip(back.active, results, strict=False))
    pulled.update((i, stacks[number]) for i, number in back.pulled.items())
    return tuple(pulled.get(i) if need else None for i, need in enumerate(needs))


def source_of(where: tuple[str, int], operands: Any, y: Any, cotangents: Any) -> Any:
    """The stack that a backward loop's source names."""
    kind, i = where
    return {"x": operands, "residual": y, "cotangent": cotangents}[kind][i]


def vjp_of(i: int) -> Any:
    """The rule for one operand alone."""

    def rule(g, y, *operands, **attrs):
        needs = tuple(k == i for k in range(len(operands)))
        return pull_scan(needs, list(g), y, *operands, **attrs)[i]

    return rule


def push_scan(
    tangents: Any,
    y: Any,
    *operands: Any,
    body: Any,
    shape: Any,
    reverse: Any,
    recompute: Any,
    **_: Any,
) -> Any:
    """The tangents of the results, by one loop that carries tangents too."""
    moving = tuple(i for i, t in enumerate(tangents) if t is not None)
    moved = tangent_body(body, shape, moving)
    consts, init, xs = shape.parts(operands)
    const_ts, init_ts, x_ts = shape.parts(tangents)
    const_ts, x_ts = ([t for t in ts if t is not None] for ts in (const_ts, x_ts))
    inexact = [(x, t) for x, t in zip(init, init_ts, strict=True) if x.dtype.is_inexact]
    carried = [zeros(x) if t is None else t for x, t in inexact]
    inputs = [*consts, *const_ts, *init, *carried, *xs, *x_ts]
    counts = len(consts) + len(const_ts), len(init) + len(carried)
    sizes = linearise.LoopShape(*counts, shape.length, shape.gated)
    results = loop(inputs, moved.body, sizes, reverse, recompute)
    tangent: list[Any] = [None] * len(body.outputs)
    for number, value in zip(moved.outputs, results[len(init) :], strict=True):
        tangent[number] = value
    return tuple(tangent)


def jvp_of(i: int) -> Any:
    """The rule for the tangent of one operand alone."""

    def rule(t, y, *operands, **attrs):
        tangents = [t if k == i else None for k in range(len(operands))]
        return push_scan(tangents, y, *operands, **attrs)

    return rule


class Tangents(NamedTuple):
    """A body that carries tangents beside the values, and gives those of the `outputs`, by
    number."""

    body: Body
    outputs: tuple[int, ...]


@functools.lru_cache(linearise.MOST_LINEARISED)
def tangent_body(body: Body, shape: linearise.LoopShape, moving: tuple[int, ...]) -> Tangents:
    """The body with tangents of the inputs `moving`, after the inputs of their kind, and tangents
    of all carried values after those."""
    consts, init, xs = shape.parts(range(len(body.inputs)))
    const_ts, x_ts = ([i for i in kind if i in moving] for kind in (consts, xs))
    inexact = [i for i in init if body.inputs[i].dtype.is_inexact]
    order = [*consts, *const_ts, *init, *inexact, *xs, *x_ts]
    is_tangent = [False] * len(consts) + [True] * len(const_ts) + [False] * len(init)
    is_tangent += [True] * len(inexact) + [False] * len(xs) + [True] * len(x_ts)
    specs = body.out_specs()
    places = [i for i, s in enumerate(specs) if s.dtype.is_inexact]

    def step(*values):
        primals = {i: x for i, x, t in zip(order, values, is_tangent, strict=True) if not t}
        tangents = {i: x for i, x, t in zip(order, values, is_tangent, strict=True) if t}
        results, moved = push_all(body, [primals[i] for i in range(len(primals))], tangents)
        carried = [moved.get(body.outputs[i]) for i in places]
        filled = [zeros(specs[i]) if x is None else x for i, x in zip(places, carried, strict=True)]
        carries = len([i for i in places if i < shape.carries])
        return [*results[: shape.carries], *filled[:carries]], filled[carries:]

    tracer, inputs, (carried, stacked) = traced(
        step, [body.inputs[i] for i in order], is_closed=True
    )
    outputs = [tracer.number_of(x) for x in (*carried, *stacked)]
    return Tangents(tracer.body([x.payload for x in inputs], outputs), tuple(places))


def push_all(body: Body, inputs: Any, tangents: dict[int, Any]) -> Any:
    """(the results of a body, tangents of its values by position)."""
    values, at = list(inputs), len(inputs)
    for call, places in body.calls:
        operands = [values[i] for i in places]
        if call.primitive is DETACH:
            values.append(operands[0].detach())
        else:
            y = call.primitive(*operands, **call.attrs)
            moved = push(call.primitive, operands, [tangents.get(i) for i in places], y, call.attrs)
            is_single = call.primitive.num_outputs == 1
            values.extend((y,) if is_single else y)
            parts = ((moved,) if is_single else moved) if moved is not None else ()
            tangents.update((at + k, t) for k, t in enumerate(parts) if t is not None)
        at += len(call.outs)
    inexact = {i: t for i, t in tangents.items() if values[i].dtype.is_inexact}
    return [values[i] for i in body.outputs], inexact


# -- batches -----------------------------------------------------------------------------------


def batch_scan(
    batched: Any, *operands: Any, body: Any, shape: Any, reverse: Any, recompute: Any, **_: Any
) -> Any:
    """Batch a loop. Values that depend on a batched one get the batch axis: carried ones in front,
    inputs per step after the axis of steps. All else is computed once for the batch."""
    size = next(x.shape[0] for x, b in zip(operands, batched, strict=True) if b)
    if shape.gated and gate_differs(body, shape, batched):
        return batch_gated(batched, operands, body, shape, reverse, size)
    inside, has_axis = batched_body(body, shape, tuple(batched), size)
    _, init, xs = shape.parts(batched)
    consts, carried, rows = shape.parts(operands)
    carried = [
        broadcast_to(x, (size, *x.shape)) if is_needed and not b else x
        for x, b, is_needed in zip(carried, init, has_axis, strict=False)
    ]
    rows = [move_axes(x, (0,), (1,)) if b else x for x, b in zip(rows, xs, strict=True)]
    results = loop([*consts, *carried, *rows], inside, shape, reverse, recompute)
    stacks = zip(results[shape.carries :], has_axis[shape.carries :], strict=True)
    results[shape.carries :] = [move_axes(x, (1,), (0,)) if b else x for x, b in stacks]
    return tuple(
        x if b else broadcast_to(x, (size, *x.shape))
        for x, b in zip(results, has_axis, strict=True)
    )


def gate_differs(body: Body, shape: linearise.LoopShape, batched: Any) -> bool:
    """Whether some examples of a batch may go on while others have ended."""
    return batched_values(body, shape, batched)[shape.consts]


def batch_gated(batched: Any, operands: Any, body: Any, shape: Any, reverse: Any, size: int) -> Any:
    """Batch a loop whose gate differs from example to example: it runs until all have ended, and
    ended ones keep their carried values."""
    consts, carried, rows = shape.parts(operands)
    is_const, is_carried, is_row = shape.parts(batched)
    carried = [
        x if b else broadcast_to(x, (size, *x.shape))
        for x, b in zip(carried, is_carried, strict=True)
    ]
    rows = [move_axes(x, (0,), (1,)) if b else x for x, b in zip(rows, is_row, strict=True)]
    flags = (*is_const, *(True for _ in carried), *is_row)
    inside = gated_body(body, shape, flags, size)
    gates = carried[0]
    sizes = shape._replace(carries=shape.carries + 1)
    results = loop([*consts, any_(gates, axes=(0,)), *carried, *rows], inside, sizes, reverse)[1:]
    stacks = results[shape.carries :]
    return (*results[: shape.carries], *(move_axes(x, (1,), (0,)) for x in stacks))


@functools.lru_cache(linearise.MOST_LINEARISED)
def gated_body(body: Body, shape: linearise.LoopShape, batched: tuple[bool, ...], size: int) -> Any:
    """The body for a batch, with one more gate in front, which is open while one of theirs is."""
    inside, has_axis = batched_body(body, shape, batched, size)
    consts, carried, xs = shape.parts(inside.inputs)

    def kept(gates, new, old):
        ones = reshape(gates, (size, *(1,) * (new.ndim - 1)))
        return where(broadcast_to(ones, new.shape), new, old)

    def step(*inputs):
        first, (_, *others) = list(inputs[: shape.consts]), inputs[shape.consts :]
        before = others[: shape.carries]
        results = [
            x if b else broadcast_to(x, (size, *x.shape))
            for x, b in zip(inside.apply(*first, *others), has_axis, strict=True)
        ]
        gates = before[0]
        results[0] = results[0] & gates
        for i, old in enumerate(before[1:], 1):
            results[i] = kept(gates, results[i], old)
        for i in range(shape.carries, len(results)):
            results[i] = kept(gates, results[i], zeros(results[i].spec))
        return [any_(results[0], axes=(0,)), *results]

    specs = [*consts, GATE, *carried, *xs]
    tracer, inputs, outputs = traced(step, specs, is_closed=True)
    return tracer.body([x.payload for x in inputs], [tracer.number_of(x) for x in outputs])


def batched_values(body: Body, shape: linearise.LoopShape, batched: Any) -> list[bool]:
    """Which values of a body, by position, depend on something batched; a carried one also by way
    of the steps before."""
    consts, carried, xs = shape.parts(batched)
    while True:
        values = [*consts, *carried, *xs]
        for call, places in body.calls:
            values += [any(values[i] for i in places)] * len(call.outs)
        new = [b or values[i] for b, i in zip(carried, body.outputs, strict=False)]
        if new == carried:
            return values
        carried = new


@functools.lru_cache(linearise.MOST_LINEARISED)
def batched_body(
    body: Body, shape: linearise.LoopShape, batched: tuple[bool, ...], size: int
) -> tuple[Body, tuple[bool, ...]]:
    """(the body with a batch axis in front of all that depends on something batched, which of its
    results have it)."""
    has_axis = batched_values(body, shape, batched)
    inputs = zip(body.inputs, has_axis, strict=False)
    specs = [Spec((size, *x.shape), x.dtype) if b else x for x, b in inputs]
    _, carried, _ = shape.parts(has_axis[: len(specs)])
    out_flags = [*carried, *(has_axis[i] for i in body.outputs[shape.carries :])]

    def step(*inputs):
        values = list(inputs)
        for call, places in body.calls:
            operands = tuple(values[i] for i in places)
            flags = tuple(has_axis[i] for i in places)
            card = call.primitive
            if card is DETACH:
                result = operands[0].detach()
            else:
                result = (
                    card.batch(flags, *operands, **call.attrs)
                    if True in flags
                    else card(*operands, **call.attrs)
                )
            values.extend(result if card.num_outputs != 1 else (result,))
        return [
            broadcast_to(values[i], (size, *values[i].shape))
            if b and not has_axis[i]
            else values[i]
            for i, b in zip(body.outputs, out_flags, strict=True)
        ]

    tracer, inputs, outputs = traced(step, specs, is_closed=True)
    numbers = [tracer.number_of(x) for x in outputs]
    return tracer.body([x.payload for x in inputs], numbers), tuple(out_flags)


# -- the card ----------------------------------------------------------------------------------


def sample_body() -> Body:
    """h = tanh(h w + x), y = h²."""
    w, h = Spec((3, 3), float32), Spec((2, 3), float32)
    calls = [
        (call_of(primitives["matmul"], (h, w), {}), (1, 0)),
        (call_of(primitives["add"], (h, h), {}), (3, 2)),
        (call_of(primitives["tanh"], (h,), {}), (4,)),
        (call_of(primitives["mul"], (h, h), {}), (5, 5)),
    ]
    return Body.of((w, h, h), tuple(calls), (5, 6))


def gated_sample() -> Body:
    """h = tanh(h w), if the gate is open."""
    w, h = Spec((3, 3), float32), Spec((2, 3), float32)
    calls = [
        (call_of(primitives["matmul"], (h, w), {}), (2, 0)),
        (call_of(primitives["tanh"], (h,), {}), (3,)),
    ]
    return Body.of((w, GATE, h), tuple(calls), (1, 4))


SAMPLE: dict[str, Any] = {"body": sample_body(), "shape": linearise.LoopShape(1, 1, 4)}
SAMPLE |= {"residuals": None, "recompute": False}
FORWARDS: dict[str, Any] = SAMPLE | {"reverse": False}
GATED: dict[str, Any] = FORWARDS | {"body": gated_sample()}
GATED |= {"shape": linearise.LoopShape(1, 2, 1, gated=True)}


@card(
    "control",
    infer=infer_scan,
    num_outputs=2,
    vjp=vjp_of,
    pullback=pull_scan,
    pushforward=push_scan,
    jvp=jvp_of,
    batch=batch_scan,
    parts=parts_of_scan,
    flops=work("flops"),
    bytes=work("bytes"),
    dtypes=(float32,),
    samples=[
        sample((3, 3), (2, 3), (4, 2, 3), **FORWARDS),
        sample((3, 3), (2, 3), (4, 2, 3), reverse=True, **SAMPLE),
        sample((3, 3), np.True_, (2, 3), **GATED),
        sample((3, 3), np.False_, (2, 3), **GATED),
    ],
    error_samples=[
        refusal(ShapeError, "4 steps", (3, 3), (2, 3), (5, 2, 3), **FORWARDS),
        refusal(ShapeError, "operands", (3, 3), (2, 2), (4, 2, 3), **FORWARDS),
    ],
)
def scan(*operands: Any, body: Any, shape: Any, reverse: Any, **_: Any) -> Any:
    """One step, repeated: operands are constants of all steps, values carried from one
    step to the next, and values per step; results are what is carried at the end, and what the
    steps give, stacked.

    Why: a loop of any length is one call, whose code does not grow with it. Its last `residuals`
    results are kept for a backward pass."""
    return compute_scan(*operands, body=body, shape=shape, reverse=reverse)
