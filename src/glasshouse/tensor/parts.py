"""Writes into a part of a tensor that has no name: `x[i][j] = v`, `x[i].fill_(v)` and
`x.view(-1)[i] = v` write to x, as in PyTorch and NumPy.

Tensors are values: `x[i]` is one of its own, and a write into it would be lost with it, without a
word. So a part remembers which tensors it was cut from, weakly, and a write looks at the statement
that runs: where the part has no name, it is written back. A part with a name stays a value of its
own; the first write to it says so where the whole is still in use, since PyTorch's would change."""

import bisect
import dis
import functools
import operator
import sys
import types
import warnings
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from glasshouse.base import int64
from glasshouse.base.errors import PACKAGE
from glasshouse.dispatch.bind import state
from glasshouse.dispatch.value import reshape
from glasshouse.ops.create import iota
from glasshouse.tensor.standard.index import setitem

MOST_LINKS = 4  # x[a][b][c][d][e] = v
JUMPS = {*dis.hasjrel, *dis.hasjabs}
STORES = {"STORE_SUBSCR": 1, "STORE_SLICE": 2}  # the place of their target on the stack
NAMES = ("STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF", "STORE_ATTR")
NO_WRITE = -1
OURS = (PACKAGE, "<graph module>")
OF_GRAPHS = ("graph_module.py", "<graph module>")  # whose nodes write back themselves
CALLS = {"CALL": 0, "CALL_KW": 1}  # how many items they have above their arguments
# Operations that push nothing; the others push one result at least, whatever they take.
SILENT = ("CACHE", "DELETE_", "EXTENDED_ARG", "KW_NAMES", "NOP", "NOT_TAKEN", "POP_TOP", "PRECALL",
          "RESUME", "STORE_")  # fmt: skip


# Methods and attributes that show a tensor's elements in another order or some of them; PyTorch's
# share memory. Those of RESHAPING do so only where the elements lie as the new shape has them.
RESHAPING = set("flatten ravel reshape reshape_as".split())
PROPERTIES = {"T", "mT"}
VIEWS = RESHAPING | set(
    """
chunk detach diagonal expand_dims moveaxis movedim narrow permute select split squeeze swapaxes
swapdims t tensor_split transpose unbind unflatten unsqueeze view view_as
""".split()
)


class TensorView(NamedTuple):
    """A call of a method of VIEWS, or of a property: `name`, its arguments, and which of its
    results (None: the one)."""

    name: str
    inputs: tuple[Any, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()
    item: int | None = None

    @property
    def steps(self) -> int:
        """How many instructions in a row it is: x.chunk(2)[0] has two."""
        return 1 + (self.item is not None)

    def of(self, whole: Any) -> Any:
        """The part of a tensor that it shows."""
        result = getattr(whole, self.name)
        if self.name not in PROPERTIES:
            result = result(*self.inputs, **dict(self.options))
        return result if self.item is None else result[self.item]


BASIC: set[Any] = {int, slice, type(None), type(...)}


def is_basic(key: Any) -> bool:
    """Whether a key cuts out a part that PyTorch shares memory with: integers, slices, None, …"""
    return BASIC.issuperset(map(type, key)) if type(key) is tuple else type(key) in BASIC


def linked(whole: Any, key: Any, part: Any) -> Any:
    """The part, which remembers that it is whole[key], and the sources of the whole."""
    return link(whole, key, part) if is_basic(key) else part


def link(whole: Any, step: Any, part: Any) -> Any:
    """The part, which remembers the step (a key or a TensorView) from the whole to it."""
    if part is whole:
        if whole.cut_from is None:
            return part
        part = whole.clone()  # the whole may have a name, this has none
    # Each read makes a new x.data: writes go to its base.
    make: Callable[..., Any] = type(whole)
    of_data = "base" in vars(whole)
    first = (functools.partial(make, whole.base) if of_data else weakref.ref(whole), step)
    part.cut_from = (first, *(whole.cut_from or ())[: MOST_LINKS - 1])
    return part


def viewing(name: str, compute: Callable[..., Any]) -> Callable[..., Any]:
    """The method of VIEWS of this name: results remember the tensor that they view."""

    @functools.wraps(compute)
    def view(self: Any, *inputs: Any, **options: Any) -> Any:
        result = compute(self, *inputs, **options)
        if type(result) is tuple:
            for i, part in enumerate(result):
                link(self, TensorView(name, inputs, tuple(options.items()), i), part)
            return result
        return link(self, TensorView(name, inputs, tuple(options.items())), result)

    return view


def write_back(part: Any) -> None:
    """Write a part that has just been written to back into its source, if the user's running
    statement gives it no name; warn if it has one and the whole is still in use."""
    if state.values_hidden:  # a trace writes back itself
        return
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and (file := frame.f_code.co_filename).startswith(OURS):
        if file.endswith(OF_GRAPHS):
            return
        frame = frame.f_back
    if frame is None or (count := links_at(frame.f_code, frame.f_lasti)) == NO_WRITE:
        return
    links = links_within(part.cut_from, count)
    whole = part.cut_from[max(len(links), 1) - 1][0]()
    if whole is None or not shares_memory(part.cut_from):
        return
    if links:
        put_back(whole, [step for _, step in links[::-1]], part)
    elif getattr(part.cut_from[0][1], "name", "") not in RESHAPING:  # no program relies on those
        warn_of_name(frame.f_code.co_filename, frame.f_lineno)


def links_within(links: Any, count: int) -> list[Any]:
    """The first links that so many instructions made."""
    result = []
    for link in links:
        count -= link[1].steps if type(link[1]) is TensorView else 1
        if count < 0:
            break
        result.append(link)
    return result


def put_back(whole: Any, steps: list[Any], part: Any) -> None:
    """whole[steps[0]][steps[1]] … = part, where a step is a key or a TensorView."""
    first, *rest = steps
    if rest:
        inner = view_of(whole, first)
        put_back(inner, rest, part)
        part = inner
    before, whole.cut_from = whole.cut_from, None  # a write ends at a tensor with a name
    try:
        if type(first) is TensorView:
            write_view_(whole, part, first.name, first.item, *first.inputs, **dict(first.options))
        else:
            whole[first] = part
    finally:
        whole.cut_from = before


def view_of(whole: Any, step: Any) -> Any:
    """The part of a tensor that a step, a key or a TensorView, shows."""
    return step.of(whole) if type(step) is TensorView else whole[step]


def write_view_(
    whole: Any, part: Any, name: str, item: int | None, *inputs: Any, **options: Any
) -> None:
    """Write a part into the elements of the whole that a view of it shows."""
    view = TensorView(name, inputs, tuple(options.items()), item)
    if name == "detach":
        whole.data.copy_(part)
    elif part.dtype is not whole.dtype:  # the same bytes as another dtype
        whole.copy_(part.view(whole.dtype))
    else:
        places, flat = view.of(places_of(whole)).reshape(-1), whole.reshape(-1)
        whole.copy_(setitem(flat, places, part.reshape(-1)).reshape(whole.shape))


def places_of(whole: Any) -> Any:
    """The place of each element of a tensor, counted in row-major order."""
    return reshape(iota(size=whole.size, dtype=int64), whole.shape)


def shares_memory(links: Any) -> bool:
    """Whether PyTorch's part would share memory with the whole: a reshaping of elements that lie
    otherwise copies them."""
    steps = [step for _, step in links]
    if not any(type(step) is TensorView and step.name in RESHAPING for step in steps[:-1]):
        return True
    alive = [whole() for whole, _ in links]
    last = max(i for i, whole in enumerate(alive) if whole is not None)
    places = places_of(alive[last])
    for step in steps[last::-1]:
        places = view_of(places, step)
        if type(step) is TensorView and step.name in RESHAPING:
            strides = even_strides(places.numpy())
            if strides is None or (step.name == "ravel" and strides not in ((), (1,))):
                return False
    return True


def even_strides(places: Any) -> tuple[int, ...] | None:
    """The stride of each axis that reaches elements at these places; None if there is none."""
    strides, expected = [], places.flat[0] if places.size else 0
    for axis, size in enumerate(places.shape):
        if size > 1 and places.size:
            strides.append(int(np.take(places, 1, axis).flat[0] - places.flat[0]))
            line = [1] * places.ndim
            line[axis] = size
            expected = expected + strides[-1] * np.arange(size).reshape(line)
    result = np.array_equal(np.broadcast_to(expected, places.shape), places)
    return tuple(strides) if result else None


named_writes: set[tuple[str, int]] = set()  # (file, line) of each that a warning told of


def warn_of_name(file: str, line: int) -> None:
    """Say once for a line that its write to a part with a name leaves the whole as it is."""
    if (file, line) in named_writes or file.startswith(PACKAGE):
        return
    named_writes.add((file, line))
    text = (
        "glasshouse: this writes to a part of a tensor, and the tensor keeps its contents: a part "
        "with a name is a value of its own. Write to the tensor itself (x[i] = …, x[i] += …, "
        "x[i].fill_(…)), or to a copy of the part (.clone()) if the tensor is to stay."
    )
    warnings.warn_explicit(text, UserWarning, file, line)


# (code, links) by the code's id and the offset: code with a slice among its constants has no hash.
known_links: dict[tuple[int, int], tuple[types.CodeType, int]] = {}
MOST_KNOWN = 4096


def links_at(code: types.CodeType, offset: int) -> int:
    """`count_links`, once for each place."""
    key = id(code), offset
    if key not in known_links:
        if len(known_links) >= MOST_KNOWN:
            known_links.clear()
        known_links[key] = code, count_links(code, offset)
    return known_links[key][1]


def count_links(code: types.CodeType, offset: int) -> int:
    """The number of chained indexings and views whose result the write there changes: 2 for
    `x[a][b][c] = v` or `x[a].T.fill_(v)`, 0 for `x[c] = v`, `y.fill_(v)` and `y += v`; NO_WRITE for
    any other statement."""
    instructions = list(dis.get_instructions(code))
    # Inside a call the offset may be that of the instruction's cache, after it.
    at = bisect.bisect_right(instructions, offset, key=operator.attrgetter("offset")) - 1
    name = instructions[at].opname if at >= 0 else ""
    if name == "BINARY_OP":
        follows = next(x.opname for x in instructions[at + 1 :] if x.opname != "CACHE")
        is_named = instructions[at].argrepr.endswith("=") and follows.startswith(NAMES)
        return 0 if is_named else NO_WRITE
    place = STORES.get(name)
    if name in CALLS:
        at, place = method_load(instructions, at, CALLS[name], is_writing), 0
    if place is None or at < 0:
        return NO_WRITE
    count = 0
    while place is not None and at >= 0:
        at = origin(instructions, at, place)
        at, place = container_of(instructions, at) if at >= 0 else (at, None)
        is_data = at >= 0 and instructions[at].argval == "data"  # it is the tensor itself
        count += place is not None and not is_data
    return count


def is_writing(name: str) -> bool:
    """Whether a method writes to its tensor, by its name."""
    return name.endswith("_") and not name.endswith("__")


def method_load(instructions: list[Any], call: int, above: int, accepts: Any) -> int:
    """The instruction that loads the method of a call, if its name is accepted; else -1."""
    place, begin = instructions[call].arg + above, call
    if instructions[call - 1].opname == "PRECALL":  # of Python 3.11, which takes the arguments
        begin = call - 1
    load = origin(instructions, begin, place)
    if load < 0 or instructions[load].opname not in ("LOAD_METHOD", "LOAD_ATTR"):
        return -1
    return load if accepts(str(instructions[load].argval)) else -1


def container_of(instructions: list[Any], at: int) -> tuple[int, int | None]:
    """The instruction that takes the tensor of an indexing or a view, and the tensor's place on the
    stack; None for another instruction."""
    instruction = instructions[at]
    name = instruction.opname
    if name in CALLS:
        at = method_load(instructions, at, CALLS[name], VIEWS.__contains__)
        return at, None if at < 0 else 0
    if name == "LOAD_ATTR":
        return at, 0 if instruction.argval in PROPERTIES or instruction.argval == "data" else None
    if name == "BINARY_SLICE":
        return at, 2
    is_index = name == "BINARY_OP" and instruction.argrepr == "[]"
    return at, 1 if is_index or name == "BINARY_SUBSCR" else None


def origin(instructions: list[Any], at: int, place: int) -> int:
    """The instruction that pushed the value at this depth of the stack (0: on top) before the
    instruction `at`; -1 if that depends on a jump."""
    for i in range(at - 1, -1, -1):
        name, arg = instructions[i].opname, instructions[i].arg
        if instructions[i].opcode in JUMPS or instructions[i].is_jump_target:
            return -1
        if name == "SWAP":
            place = {0: arg - 1, arg - 1: 0}.get(place, place)
            continue
        if name == "COPY":
            place = arg - 1 if place == 0 else place - 1
            continue
        effect = dis.stack_effect(instructions[i].opcode, arg, jump=False)
        is_silent = name.startswith(SILENT) and name != "STORE_FAST_LOAD_FAST"
        pushed = max(effect, 0 if is_silent else 1)
        if place < pushed:
            return i
        place += -effect
    return -1
