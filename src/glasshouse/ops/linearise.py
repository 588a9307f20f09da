"""The derivative of a loop: the values that its forward pass keeps, and the backward loop.

A step of the backward loop reads values of the same step of the forward loop. Those that are costly
to compute from its inputs are kept (residuals), one for each step. The cotangent of a constant of
the loop is a sum over steps: the loop adds it up, or, if it is a product of values that are kept
for all steps anyway, one large product after the loop computes it.

Source: Griewank, Walther 2008, Evaluating Derivatives, chapters 3 and 12."""

import functools
from typing import Any, NamedTuple

from glasshouse.base import having
from glasshouse.dispatch import primitives, state, zeros
from glasshouse.dispatch.call import Call
from glasshouse.ops.body import DETACH, Body, BodyTracer, traced

MOST_LINEARISED = 1 << 10  # loops of which derivatives are kept
ENDLESS = 1 << 62  # the length of a loop that only its gate ends


class LoopShape(NamedTuple):
    """How many inputs of a body are constant over the steps and how many carried from one to the
    next (the others are one for each step), and over how many steps it goes. The first carried
    value of a `gated` loop is a boolean: before each step it says whether the loop goes on. The
    stacked results of steps that do not run are zero."""

    consts: int
    carries: int
    length: int
    gated: bool = False

    @property
    def times(self) -> int:
        """How often a step counts as work: once where the length is not known."""
        return 1 if self.length == ENDLESS else self.length

    def parts(self, xs: Any) -> tuple[list[Any], list[Any], list[Any]]:
        """(constants, carried, one for each step)."""
        middle = self.consts + self.carries
        return (list(xs[: self.consts]), list(xs[self.consts : middle]), list(xs[middle:]))


class Forward(NamedTuple):
    """A body that also gives its residuals, which are its last results."""

    body: Body
    residuals: int


class Stacked(NamedTuple):
    """Values of all steps: those of a number, moved by calls."""

    number: int
    moves: tuple[Call, ...] = ()


class Late(NamedTuple):
    """A sum over steps that is computed after the loop: of `Stacked` values, of the products of
    two, or the result of a linear `call` on such sums."""

    call: Call | None
    operands: tuple[Any, ...]


class Backward(NamedTuple):
    """The loop that runs backwards. Its inputs are all constants of the forward loop, its gate if
    it has one, cotangents of the `active` carried values, sums of cotangents of `summed` constants,
    and per step the values that `reads` names. It returns the carried ones, then `stacks`, one a
    step. `pulled` says which of the numbers are cotangents of inputs per step; `late` are the other
    constants' cotangents. `sources` has the origin of each number known before: ("x" | "residual" |
    "cotangent", which one)."""

    body: Body
    active: tuple[int, ...]
    summed: tuple[int, ...]
    reads: tuple[int, ...]
    stacks: tuple[int, ...]
    pulled: dict[int, int]
    late: dict[int, Late]
    sources: dict[int, tuple[str, int]]


def active_carries(body: Body, shape: LoopShape, needs: tuple[bool, ...]) -> set[int]:
    """The carried values that depend on an input that is needed."""
    _, init, _ = shape.parts(needs)
    specs = body.inputs[shape.consts :]
    active = {i for i, need in enumerate(init) if need}
    while True:
        moving = dependent(
            body, [need or i - shape.consts in active for i, need in enumerate(needs)]
        )
        active_now = {i for i in range(shape.carries) if body.outputs[i] in moving} | active
        active_now = {i for i in active_now if specs[i].dtype.is_inexact}
        if active_now == active:
            return active
        active = active_now


def dependent(body: Body, needs: Any) -> set[int]:
    """The positions of inexact values that depend on the needed inputs."""
    moving = {i for i, need in enumerate(needs) if need and body.inputs[i].dtype.is_inexact}
    at = len(body.inputs)
    for call, places in body.calls:
        if call.primitive.vjp is not None and not moving.isdisjoint(places):
            moving.update(at + i for i, spec in enumerate(call.outs) if spec.dtype.is_inexact)
        at += len(call.outs)
    return moving


class Pull:
    """One step backwards, traced: numbers of the inputs, of the forward values, of the cotangents
    that come in and of those that go out."""

    tracer: Any
    values: Any

    def __init__(self, body: Body, shape: LoopShape, needs: Any, present: Any) -> None:
        self.body = body
        self.shape = shape
        self.active: list[int] = sorted(active_carries(body, shape, needs))
        moving = [need or i - shape.consts in self.active for i, need in enumerate(needs)]
        self.moving: set[int] = dependent(body, moving)
        specs = body.out_specs()
        places = [
            i
            for i, spec in enumerate(specs)
            if (i in self.active if i < shape.carries else present[i])
            and spec.dtype.is_inexact
            and body.outputs[i] in self.moving
        ]
        count = len(body.inputs)
        input_specs = [*body.inputs, *(specs[i] for i in places)]
        self.tracer, inputs, (self.values, pulled) = traced(
            lambda *xs: self.run(xs[:count], dict(zip(places, xs[count:], strict=True))),
            input_specs,
            is_closed=True,
        )
        self.inputs: list[Any] = [x.payload for x in inputs[:count]]
        self.incoming_numbers: dict[int, Any] = {
            i: x.payload for i, x in zip(places, inputs[count:], strict=True)
        }
        self.pulled: dict[Any, Any] = {i: self.tracer.number_of(x) for i, x in pulled.items()}

    def run(self, inputs: Any, cotangents: dict[int, Any]) -> Any:
        """(every value of the body, the cotangents of its inputs that move, by position)."""
        with having(state, phase="recompute"):
            values = self.body.values(inputs)
        sums: dict[int, Any] = {}
        for i, cotangent in cotangents.items():
            add_to(sums, self.body.outputs[i], cotangent)
        at = len(values)
        for call, places in reversed(self.body.calls):
            at -= len(call.outs)
            arrived = [sums.get(at + i) for i in range(len(call.outs))]
            if call.primitive is not DETACH and any(x is not None for x in arrived):
                self.pull(call, places, values, at, arrived, sums)
        return values, {i: sums[i] for i in range(len(inputs)) if i in sums and i in self.moving}

    def pull(self, call: Call, places: Any, values: Any, at: int, arrived: Any, sums: Any) -> None:
        """Add the cotangents of a call's operands, by the card's rules."""
        primitive = call.primitive
        needs = tuple(place in self.moving for place in places)
        if primitive.vjp is None or True not in needs:
            return
        y: Any = values[at : at + len(call.outs)]
        operands = [values[place] for place in places]
        if primitive.pullback is not None:
            pulled = primitive.pullback(needs, arrived, y, *operands, **call.attrs)
        else:
            g: Any = [zeros(s) if x is None else x for x, s in zip(arrived, call.outs, strict=True)]
            if primitive.num_outputs == 1:
                (g,), (y,) = g, y
            pulled = [
                None if rule is None else rule.fn(g, y, *operands, **call.attrs)
                for rule in (
                    primitive.vjp_rule(i) if need else None for i, need in enumerate(needs)
                )
            ]
        for place, cotangent in zip(places, pulled, strict=True):
            if cotangent is not None:
                add_to(sums, place, cotangent)


def add_to(sums: dict[int, Any], at: int, cotangent: Any) -> None:
    sums[at] = sums[at] + cotangent if at in sums else cotangent


def is_cheap(call: Call) -> bool:
    """Whether a value is computed again rather than kept."""
    card = call.primitive
    return card is DETACH or card.kind == "create" or not card.traits.isdisjoint(CHEAP)


CHEAP = {"elementwise", "movement"}


@functools.lru_cache(MOST_LINEARISED)
def forward_of(body: Body, shape: LoopShape, needs: tuple[bool, ...], recompute: bool) -> Forward:
    """The body that also returns the values that the backward loop reads. With `recompute` those
    are the carried ones; the backward loop computes all others again."""
    pull = Pull(body, shape, needs, (True,) * len(body.outputs))
    tracer = pull.tracer
    backward = reached(tracer, pull.incoming_numbers.values())
    _, carried, _ = shape.parts(pull.inputs)
    free = set(pull.inputs) - set(carried) | set(tracer.captured)
    saved: list[int] = []
    for number in read_by(tracer, backward, pull.pulled.values()):
        bounds = boundary(tracer, number, free, set(saved), recompute)
        extra = [i for i in bounds if i not in saved]
        if number in free or number in saved or not extra:
            continue
        cheaper = sum(tracer.specs[i].nbytes for i in extra) <= tracer.specs[number].nbytes
        saved += extra if cheaper or recompute else [number]
    outputs = [pull.tracer.number_of(pull.values[at]) for at in body.outputs]
    whole = tracer.body(pull.inputs, [*outputs, *saved])
    return Forward(Body.of(whole.inputs, whole.calls, whole.outputs, body.recomputed), len(saved))


def reached(tracer: BodyTracer, begin: Any) -> set[int]:
    """The numbers that depend on those in `begin`."""
    numbers = set(begin)
    for call in tracer.calls:
        if not numbers.isdisjoint(call.operands):
            numbers.update(call.results)
    return numbers


def read_by(tracer: BodyTracer, backward: set[int], outputs: Any) -> list[int]:
    """The forward values that backward calls and outputs read, in order."""
    read = {i for i in outputs if i not in backward}
    for call in tracer.calls:
        if not backward.isdisjoint(call.results):
            read.update(i for i in call.operands if i not in backward)
    return sorted(read)


def boundary(
    tracer: BodyTracer, number: int, free: Any, residuals: Any, recompute: bool
) -> list[int]:
    """The values that are not free from which a value is cheaply computed: itself, if need be."""
    bounds, stack, visited = dict[int, None](), [number], set[int]()
    while stack:
        at = stack.pop()
        if at in free or at in visited:
            continue
        visited.add(at)
        maker = tracer.maker.get(at)
        if at in residuals or maker is None or not (recompute or is_cheap(maker.call)):
            bounds[at] = None
        else:
            stack += maker.operands
    return list(bounds)


@functools.lru_cache(MOST_LINEARISED)
def backward_of(
    forward: Forward, shape: LoopShape, needs: tuple[bool, ...], present: tuple[bool, ...]
) -> Backward:
    """The loop that pulls back the cotangents that are `present` among those of the results."""
    return BackwardBuilder(forward, shape, needs, present).build()


class BackwardBuilder:
    """Makes the backward loop of a forward one."""

    pull: Pull
    consts: list[Any]

    def __init__(self, forward: Forward, shape: LoopShape, needs: Any, present: Any) -> None:
        self.shape = shape
        self.needs = needs
        results = len(forward.body.outputs) - forward.residuals
        self.pull = pull = Pull(
            forward.body, shape, needs, (*present, *(False,) * forward.residuals)
        )
        self.tracer: Any = pull.tracer
        self.consts, _, xs = shape.parts(pull.inputs)
        first_x = shape.consts + shape.carries
        residuals = [pull.values[at] for at in forward.body.outputs[results:]]
        self.sources: dict[Any, tuple[str, int]] = {
            **{n: ("cotangent", i) for i, n in pull.incoming_numbers.items() if i >= shape.carries},
            **{self.tracer.number_of(x): ("residual", i) for i, x in enumerate(residuals, results)},
            **{n: ("x", i) for i, n in enumerate(xs, first_x)},
        }
        self.pulled: dict[Any, Any] = {
            i: n for i, n in pull.pulled.items() if i >= first_x and needs[i]
        }
        self.stacks: list[Any] = list(
            dict.fromkeys(n for n in self.pulled.values() if n not in self.sources)
        )

    def build(self) -> Backward:
        shape, pull, tracer = self.shape, self.pull, self.tracer
        const_places = [i for i in range(shape.consts) if self.needs[i] and i in pull.pulled]
        late = {i: self.late(pull.pulled[i], tracer.specs[i].nbytes) for i in const_places}
        summed = tuple(i for i in const_places if late[i] is None)
        sums = [tracer.input(tracer.specs[i]) for i in summed]
        totals = [self.added(x, pull.pulled[i]) for x, i in zip(sums, summed, strict=True)]
        incoming = [self.incoming(i) for i in pull.active]
        gate = pull.inputs[shape.consts : shape.consts + shape.gated]
        outputs = [*gate, *(self.outgoing(i) for i in pull.active), *totals, *self.stacks]
        fixed = [*self.consts, *gate, *incoming, *(x.payload for x in sums)]
        roots = tracer.roots(outputs, [*fixed, *self.sources])
        assert not roots, f"scan: what is read backwards is kept; got {roots}"
        needed = tracer.needed(outputs, [*fixed, *self.sources])
        reads = tuple(number for number in self.sources if number in needed)
        return Backward(
            tracer.body([*fixed, *reads], outputs),
            tuple(pull.active),
            summed,
            reads,
            tuple(self.stacks),
            self.pulled,
            {i: sum_ for i, sum_ in late.items() if sum_ is not None},
            self.sources,
        )

    def incoming(self, i: int) -> int:
        """The number of the cotangent of a carried value that comes from the step after."""
        number = self.pull.incoming_numbers.get(i)
        if number is None:
            number = self.tracer.number(self.tracer.specs[self.shape.consts + i])
        return number

    def outgoing(self, i: int) -> int:
        """The number of the cotangent of a carried value that goes to the step before."""
        number = self.pull.pulled.get(self.shape.consts + i)
        if number is None:
            spec = self.tracer.specs[self.shape.consts + i]
            attrs = {"shape": spec.shape, "value": 0.0, "dtype": spec.dtype}
            number = self.tracer.emit(primitives["full"], (), attrs).payload
        return number

    def added(self, total: Any, number: int) -> int:
        return self.tracer.emit(primitives["add"], (total, self.tracer.value(number)), {}).payload

    # -- sums over steps that are computed after the loop --------------------------------------

    def late(self, number: int, nbytes: int) -> Late | None:
        """How the sum of a number's values over all steps is computed after the loop; None where
        that would take many more than `nbytes`."""
        if self.is_there(number):
            return Late(None, (Stacked(number),))
        maker = self.tracer.maker.get(number)
        if maker is None:
            return None
        call, operands = maker.call, maker.operands
        if call.name in SUMMABLE:
            sums = [self.late(i, nbytes) for i in operands]
            return None if None in sums else Late(call, tuple(sums))
        if call.name == "matmul":
            stacked = [self.stacked(i) for i in operands]
            new = {x.number for x in stacked if not self.is_there(x.number)}
            if (
                self.shape.length * sum(self.tracer.specs[i].nbytes for i in new)
                <= MOST_LATE * nbytes
            ):
                self.stacks += [i for i in sorted(new) if i not in self.stacks]
                return Late(call, tuple(stacked))
        return None

    def is_there(self, number: int) -> bool:
        return number in self.sources or number in self.stacks

    def stacked(self, number: int) -> Stacked:
        """A number's values for all steps; those that are there, moved, if it comes from such."""
        at = number
        moves: list[Call] = []
        while not self.is_there(at):
            maker = self.tracer.maker.get(at)
            if maker is None or maker.call.name not in MOVES:
                return Stacked(number)
            moves.insert(0, maker.call)
            (at,) = maker.operands
        return Stacked(at, tuple(moves))


MOVES = ("permute", "reshape")
SUMMABLE = (*MOVES, "add", "sum")  # a sum over steps goes through these
MOST_LATE = 2  # bytes of stacks that are made only for this, as a multiple of a constant's


def over_steps(call: Call, x: Any) -> Any:
    """Apply a permute or reshape of one step to the values of all steps, stacked along axis 0."""
    if call.name == "permute":
        return primitives["permute"](x, axes=(0, *(axis + 1 for axis in call.attrs["axes"])))
    return primitives["reshape"](x, shape=(x.shape[0], *call.attrs["shape"]))


def work_out(late: Late, stacks: dict[int, Any]) -> Any:
    """The sum, from stacks by their numbers."""
    if late.call is None:
        return sum_steps(moved(late.operands[0], stacks))
    if late.call.name == "matmul":
        return sum_of_products(*(moved(x, stacks) for x in late.operands))
    operands = [work_out(x, stacks) for x in late.operands]
    return late.call.primitive(*operands, **late.call.attrs)


def moved(stacked: Stacked, stacks: Any) -> Any:
    x = stacks[stacked.number]
    for call in stacked.moves:
        x = over_steps(call, x)
    return x


def sum_steps(x: Any) -> Any:
    return primitives["sum"](x, axes=(0,))


def sum_of_products(a: Any, b: Any) -> Any:
    """The sum over t of a[t] @ b[t], as one product along t and the contracted axis."""
    rank = a.ndim - 1
    lead = tuple(range(1, rank - 1))
    steps, rows, inner, columns = a.shape[0], a.shape[-2], a.shape[-1], b.shape[-1]
    a = primitives["permute"](a, axes=(*lead, rank - 1, 0, rank))  # (..., M, T, K)
    b = primitives["permute"](b, axes=(*lead, 0, rank - 1, rank))  # (..., T, K, N)
    a = primitives["reshape"](a, shape=(*a.shape[:-3], rows, steps * inner))
    b = primitives["reshape"](b, shape=(*b.shape[:-3], steps * inner, columns))
    return primitives["matmul"](a, b)
