"""Traces of one function at several sizes, as one graph: numbers that differ vary.

A function is traced once for each of a few choices of its varying sizes. The traces make the same
calls on the same values; a number that is not the same in all of them varies, with its value in
each. So sizes may pass through any Python code on the way."""

from collections.abc import Iterator, Sequence
from typing import Any

from glasshouse.ops.body import Body

Size = Any  # an int, or a VaryingNumber


class Unlike(Exception):
    """Traces that do not make the same calls."""


class VaryingNumber:
    """A number that depends on sizes: its value in each trace."""

    __slots__ = ("values",)

    def __init__(self, values: Sequence[Any]) -> None:
        self.values: tuple[Any, ...] = tuple(values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VaryingNumber) and self.values == other.values

    def __hash__(self) -> int:
        return hash(self.values)

    def __repr__(self) -> str:
        return f"VaryingNumber{self.values}"


class Bodies:
    """Bodies of loops that are not the same in all traces."""

    def __init__(self, bodies: Sequence[Body]) -> None:
        self.bodies: list[Body] = list(bodies)


def merged(values: Sequence[Any]) -> Any:
    """One value for the values at the same place of each trace.

    Raises: Unlike for values that differ and are not numbers
    """
    first = values[0]
    if all(x is first for x in values):
        return first
    if isinstance(first, Body):
        return Bodies(values)
    if isinstance(first, tuple):
        if any(type(x) is not type(first) or len(x) != len(first) for x in values):
            raise Unlike(f"{first} and {next(x for x in values if x != first)}")
        parts = [merged(column) for column in zip(*values)]
        return type(first)(*parts) if hasattr(first, "_fields") else tuple(parts)
    if all(type(x) is type(first) and repr(x) == repr(first) for x in values):
        return first
    if all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in values):
        return VaryingNumber(values)
    raise Unlike(f"{first!r} and {next(x for x in values if x is not first)!r}")


class JointValue:
    """An input (`number`), or the result `number` of a call."""

    __slots__ = ("call", "number", "shape", "dtype")

    def __init__(self, call: "JointCall | None", number: int, specs: Sequence[Any]) -> None:
        self.call: JointCall | None = call
        self.number: int = number
        self.shape: tuple[Size, ...] = merged([spec.shape for spec in specs])
        self.dtype: Any = specs[0].dtype


class JointCall:
    """A call that all traces make."""

    __slots__ = ("name", "primitive", "attrs", "operands", "results")

    def __init__(self, calls: Sequence[Any], operands: list[JointValue]) -> None:
        first = calls[0]
        self.name: str = first.name
        self.primitive: Any = first.primitive
        self.operands: list[JointValue] = operands
        self.attrs: dict[str, Any]
        self.attrs = {key: merged([x.attrs[key] for x in calls]) for key in first.attrs}
        outs = zip(*(x.outs for x in calls), strict=True)
        self.results: list[JointValue]
        self.results = [JointValue(self, i, specs) for i, specs in enumerate(outs)]


class JointGraph:
    """The graph of bodies: their calls in an order, and their outputs. `inputs` names the inputs of
    each body by keys: those that are the same have equal keys."""

    def __init__(
        self, bodies: Sequence[Body], inputs: Sequence[Sequence[Any]] | None = None
    ) -> None:
        self.bodies = bodies
        self.keys: Sequence[Sequence[Any]] = inputs or [range(len(body.inputs)) for body in bodies]
        self.places: dict[int, int] = {key: i for i, key in enumerate(self.keys[0])}
        self.makers: list[dict[int, tuple[int, int]]] = [makers_of(body) for body in bodies]
        self.tables: dict[int, tuple[int, ...]] = {}  # positions of inputs that differ
        self.inputs: dict[int, JointValue] = {}  # those that are read, by position in the first
        self.calls: list[JointCall] = []
        self.by_numbers: dict[tuple[int, ...], JointCall] = {}
        counts = {len(body.outputs) for body in bodies}
        if len(counts) != 1:
            raise Unlike(f"{min(counts)} and {max(counts)} results")
        self.outputs: list[JointValue]
        self.outputs = [self.reach(at) for at in zip(*(body.outputs for body in bodies))]

    def reach(self, at: tuple[int, ...]) -> JointValue:
        """The value at these positions, once all that it needs is there."""
        stack = [(at, False)]
        while stack:
            places, is_ready = stack.pop()
            if self.is_input(places):
                self.input(places)
                continue
            numbers = tuple(maker[i][0] for maker, i in zip(self.makers, places))
            if numbers in self.by_numbers:
                continue
            calls = [body.calls[n] for body, n in zip(self.bodies, numbers)]
            names = {call.name for call, _ in calls}
            counts = {len(operands) for _, operands in calls}
            if len(names) != 1 or len(counts) != 1:
                raise Unlike(" and ".join(sorted(names)))
            operands = list(zip(*(operands for _, operands in calls)))
            if is_ready:
                values = [self.value(x) for x in operands]
                call = self.by_numbers[numbers] = JointCall([call for call, _ in calls], values)
                self.calls.append(call)
            else:
                stack.append((places, True))
                stack.extend((x, False) for x in reversed(operands))
        return self.value(at)

    def is_input(self, places: tuple[int, ...]) -> bool:
        pairs = zip(self.bodies, places)
        kinds = {i < len(body.inputs) for body, i in pairs}
        if len(kinds) != 1:
            raise Unlike("a value that is given, and one that is computed")
        return kinds.pop()

    def input(self, places: tuple[int, ...]) -> JointValue:
        keys = {names[i] for names, i in zip(self.keys, places)}
        specs = [body.inputs[i] for body, i in zip(self.bodies, places)]
        number = places[0]
        if len(keys) == 1:
            number = self.places[keys.pop()]
        elif self.tables.setdefault(number, places) != places:
            raise Unlike("tables of constants that are used in different ways")
        if number not in self.inputs:
            self.inputs[number] = JointValue(None, number, specs)
        return self.inputs[number]

    def value(self, places: tuple[int, ...]) -> JointValue:
        """A value whose call is there."""
        if self.is_input(places):
            return self.input(places)
        at = [maker[i] for maker, i in zip(self.makers, places)]
        results = {result for _, result in at}
        if len(results) != 1:
            raise Unlike("different results of a call")
        return self.by_numbers[tuple(number for number, _ in at)].results[results.pop()]


def makers_of(body: Body) -> dict[int, tuple[int, int]]:
    """(call, which of its results), by the position of a value."""
    pairs: Iterator[tuple[int, int]] = (
        (number, result)
        for number, (call, _) in enumerate(body.calls)
        for result in range(len(call.outs))
    )
    return dict(enumerate(pairs, len(body.inputs)))


def bodies_of(body: Any) -> list[Body]:
    """The bodies of an attribute."""
    return body.bodies if isinstance(body, Bodies) else [body]
