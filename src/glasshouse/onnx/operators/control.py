"""Control flow, captured where it can be; sequences; optional values.

A `body` is a function of a graph inside a node: inputs to a list of outputs. Where a condition or a
number of steps is known, a loop is unrolled or a branch taken while the network runs; else it
becomes `gh.cond`, `gh.scan` or `gh.while_loop`; and where these do not hold it (shapes that change,
sequences), its condition is read."""

from typing import Any

import numpy as np

import glasshouse as gh
from glasshouse.base.errors import CaptureError, DTypeError, ShapeError, TransformError
from glasshouse.dispatch.value import Value
from glasshouse.onnx.dtypes import dtype_of
from glasshouse.onnx.table import as_array, integers, lifted, operator, place

UNROLLED = 32  # steps of a loop that are written out
MOST_STEPS = 1 << 16  # … that are taken one by one
MOST_SCANNED = 1 << 28  # … of a scan
NOT_HELD = (CaptureError, DTypeError, ShapeError, TransformError)


def truth(x: Any) -> bool:
    return bool(as_array(x).reshape(()))


def tensors(values: Any) -> list[Any]:
    """Values as tensors.

    Raises: TransformError for sequences and empty optionals, which control flow does not carry
    """
    values = [lifted(x) for x in values]
    if not all(isinstance(x, Value) for x in values):
        raise TransformError("onnx", "tensors", "a sequence or an empty optional", "Read it.")
    return values


@operator("If", raw=True)
def branch(condition: Any, *, then_branch: Any, else_branch: Any) -> Any:
    if isinstance(condition, Value):
        try:
            gate = gh.reshape(condition, ())
            then, other = (lambda b=b: tensors(b()) for b in (then_branch, else_branch))
            return tuple(gh.cond(gate, then, other))
        except NOT_HELD:
            pass
    return tuple((then_branch if truth(condition) else else_branch)())


@operator("Loop", raw=True)
def loop(most: Any, condition: Any = None, *state: Any, body: Any, outputs: int = 1) -> Any:
    count = len(state)
    if not most_known(most, condition) and outputs == count:
        try:
            return while_loop(most, condition, state, body)
        except NOT_HELD:
            pass
    steps = None if most is None else integers(most)[0]
    going = condition is None or truth(condition)
    rows: list[list[Any]] = [[] for _ in range(outputs - count)]
    carried, i = list(state), 0
    while going and (steps is None or i < steps):
        if i == 1 and steps is not None and UNROLLED < steps <= MOST_SCANNED:
            try:
                return rest_of_loop(carried, rows, steps, body)
            except NOT_HELD:
                pass
        if i == MOST_STEPS:
            raise ShapeError("Loop", f"at most {MOST_STEPS} steps", steps, "Mend the node.")
        goes, *results = body(np.asarray(i, np.int64), np.asarray(True), *carried)
        carried = results[:count]
        for row, value in zip(rows, results[count:]):
            row.append(value)
        i, going = i + 1, truth(goes)
    return (*carried, *(joined(row, body, count + 1 + j) for j, row in enumerate(rows)))


def most_known(most: Any, condition: Any) -> bool:
    return not isinstance(most, Value) and not isinstance(condition, Value)


def joined(row: list[Any], body: Any, place_of_output: int) -> Any:
    """Outputs of all steps along a new axis; of no step, nothing, of the shape that is declared."""
    if row and all(isinstance(x, np.ndarray) for x in row):
        return np.stack(row)
    if row:
        return gh.stack(tensors(row), axis=0)
    code, shape = body.declared(place_of_output)
    return gh.zeros((0, *shape), dtype=dtype_of(code))


def rest_of_loop(carried: list[Any], rows: list[list[Any]], steps: int, body: Any) -> Any:
    """The steps from the second on, as a scan; the condition has to remain true.

    Raises: TransformError where it does not
    """
    count = len(carried)

    def step(state: Any, i: Any) -> Any:
        goes, *results = body(i, np.asarray(True), *state)
        if isinstance(goes, Value) or not truth(goes):
            raise TransformError("Loop", "a condition that stays true", goes, "Read it.")
        return tensors(results[:count]), tensors(results[count:])

    last, stacked = gh.scan(step, tensors(carried), gh.arange(1, steps))
    first = [gh.expand_dims(x, axis=0) for x in tensors([row[0] for row in rows])]
    return (*last, *(gh.concat([a, b], axis=0) for a, b in zip(first, stacked)))


def while_loop(most: Any, condition: Any, state: Any, body: Any) -> Any:
    limit = lifted(np.asarray(np.iinfo(np.int64).max) if most is None else most).reshape(())
    goes = lifted(np.asarray(True) if condition is None else condition).reshape(())

    def step(values: Any) -> Any:
        i, going, *carried = values
        going, *carried = tensors(body(i, going, *carried))
        return [i + 1, going.reshape(()), *carried]

    first = [gh.zeros((), dtype="int64"), goes, *tensors(state)]
    return tuple(gh.while_loop(lambda v: v[1] & (v[0] < limit), step, first)[2:])


@operator("Scan", since=9, raw=True)
def scan(
    *values: Any,
    body: Any,
    num_scan_inputs: int,
    scan_input_axes: Any = None,
    scan_input_directions: Any = None,
    scan_output_axes: Any = None,
    scan_output_directions: Any = None,
    outputs: int = 1,
) -> Any:
    count = len(values) - num_scan_inputs
    state, sources = tensors(values[:count]), tensors(values[count:])
    axes = scan_input_axes or (0,) * num_scan_inputs
    turns = scan_input_directions or (0,) * num_scan_inputs
    rows = [gh.moveaxis(x, place(a, x.ndim), 0) for x, a in zip(sources, axes, strict=True)]
    rows = [gh.flip(x, axis=0) if turn else x for x, turn in zip(rows, turns, strict=True)]

    def step(carried: Any, row: Any) -> Any:
        results = tensors(body(*carried, *row))
        return results[:count], results[count:]

    last, stacked = gh.scan(step, state, rows)
    axes = scan_output_axes or (0,) * len(stacked)
    turns = scan_output_directions or (0,) * len(stacked)
    stacked = [gh.flip(x, axis=0) if turn else x for x, turn in zip(stacked, turns)]
    return (*last, *(gh.moveaxis(x, 0, place(a, x.ndim)) for x, a in zip(stacked, axes)))


@operator("Scan", since=8, raw=True)
def scan_of_batch(
    lengths: Any,
    *values: Any,
    body: Any,
    num_scan_inputs: int,
    directions: Any = None,
    outputs: int = 1,
) -> Any:
    """A scan for each example of a batch."""
    if lengths is not None:
        raise DTypeError("Scan", "no lengths of sequences", "some", "Export with opset 9 or later.")
    values = tuple(tensors(values))
    ways = {"body": body, "num_scan_inputs": num_scan_inputs, "outputs": outputs}
    ways["scan_input_directions"] = directions
    each = [scan(*(x[i] for x in values), **ways) for i in range(values[0].shape[0])]
    return tuple(gh.stack(list(parts), axis=0) for parts in zip(*each))


# -- sequences and optional values ---------------------------------------------------------------


@operator("SequenceConstruct", raw=True)
def sequence(*values: Any) -> Any:
    return list(values)


@operator("SequenceEmpty", raw=True)
def no_sequence(*, dtype: int = 1) -> Any:
    return []


@operator("SequenceAt", raw=True)
def element(values: Any, at: Any) -> Any:
    return values[integers(at)[0]]


@operator("SequenceInsert", raw=True)
def insert(values: Any, x: Any, at: Any = None) -> Any:
    i = len(values) if at is None else integers(at)[0]
    return [*values[:i], x, *values[i:]]


@operator("SequenceErase", raw=True)
def erase(values: Any, at: Any = None) -> Any:
    i = range(len(values))[-1 if at is None else integers(at)[0]]
    return values[:i] + values[i + 1 :]


@operator("SequenceLength", raw=True)
def length(values: Any) -> Any:
    return np.asarray(len(values), np.int64)


@operator("SplitToSequence", raw=True)
def split_to_sequence(x: Any, sizes: Any = None, *, axis: int = 0, keepdims: int = 1) -> Any:
    x = lifted(x)
    axis = place(axis, x.ndim)
    whole = x.shape[axis]
    if sizes is not None and not as_array(sizes).ndim:
        each = integers(sizes)[0]
        counts = [min(each, whole - i) for i in range(0, whole, each)]
    else:
        counts = [1] * whole if sizes is None else integers(sizes)
    ends = np.cumsum([0, *counts]).tolist()
    before = (slice(None),) * axis
    parts = [x[(*before, slice(a, b))] for a, b in zip(ends, ends[1:])]
    if sizes is None and not keepdims:
        return [gh.squeeze(part, axis=axis) for part in parts]
    return parts


@operator("ConcatFromSequence", raw=True)
def concat_sequence(values: Any, *, axis: int, new_axis: int = 0) -> Any:
    return (gh.stack if new_axis else gh.concat)(tensors(values), axis=axis)


@operator("Optional", raw=True)
def optional_value(x: Any = None, *, type: Any = None) -> Any:
    return x


@operator("OptionalGetElement", raw=True)
def element_of_optional(x: Any) -> Any:
    if x is None:
        raise DTypeError("OptionalGetElement", "an optional with a value", "an empty one", "")
    return x


@operator("OptionalHasElement", raw=True)
def has_element(x: Any = None) -> Any:
    return np.asarray(x is not None)
