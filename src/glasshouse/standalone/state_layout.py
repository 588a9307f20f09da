"""Where a step's values lie in one block of memory before a run: its state, arguments and keys."""

from typing import Any, NamedTuple

import numpy as np

from glasshouse.base.errors import CaptureError
from glasshouse.compile.planning.plan_memory import ALIGNMENT
from glasshouse.compile.programs.binding import Source, SourceKind
from glasshouse.standalone.capturing import WHERE, CapturedCall
from glasshouse.standalone.numbers import names_in
from glasshouse.standalone.replacement import Read
from glasshouse.tensor import Tensor

KEY_BYTES = 16
CONSTANT = "constant."  # how names of values begin that have none


class NamedValue(NamedTuple):
    """A value of the state: its name, shape, dtype, place in the block, and contents."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    at: int
    array: np.ndarray

    @property
    def is_constant(self) -> bool:
        """Whether nothing of the user's has a name for it."""
        return self.name.startswith(CONSTANT)

    def fits(self, array: np.ndarray) -> bool:
        """Whether another size's array is this value; of a constant, the contents decide."""
        if (self.shape, self.dtype) != (array.shape, array.dtype.name):
            return False
        return not self.is_constant or self.array.tobytes() == array.tobytes()


class NamedSpec(NamedTuple):
    """An argument or a result."""

    name: str
    shape: tuple[int, ...]
    dtype: str


class StateBlock:
    """A block of memory that has values by name. Of a step that was captured for a size `before`,
    both have the values that have one name.

    values     in the order of the block; numbers are float64, generators three uint64
    constants  of the graph, which nothing changes
    others     values of the sizes before, by name; `taken` names are those of this size"""

    def __init__(self, before: "StateBlock | None") -> None:
        self.nbytes: int = before.nbytes if before else 0
        self.values: list[NamedValue] = before.values if before else []
        self.constants: list[NamedValue] = before.constants if before else []
        self.others: dict[str, NamedValue] = {x.name: x for x in self.values}
        self.taken: set[str] = set()

    def place(self, nbytes: int) -> int:
        """A place for so many bytes in the block."""
        at = self.nbytes
        self.nbytes += -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT
        return at

    def add(self, name: str, array: np.ndarray) -> int:
        """Add a value, and return its place.

        Raises: CaptureError for one that has another shape in another size of the step
        """
        while name in self.taken:
            name += "'"
        self.taken.add(name)
        other = self.others.get(name)
        if other is not None and other.fits(array):
            return other.at
        if other is not None and not other.is_constant:
            expected = f"{name} to have one shape in all sizes"
            got = f"{other.dtype}{list(other.shape)} and {array.dtype.name}{list(array.shape)}"
            raise CaptureError(WHERE, expected, got, "Export each size under a name of its own.")
        while name in self.others:
            name += "'"
        at = self.place(array.nbytes)
        # reshape: ascontiguousarray makes a vector of a number
        array = np.ascontiguousarray(array).reshape(array.shape)
        self.values.append(NamedValue(name, array.shape, array.dtype.name, at, array.copy()))
        return at

    def constant(self, array: np.ndarray) -> int:
        """Add a constant of the graph, and return its place; sizes share those that are alike."""
        same = [x for x in self.constants if x.name in self.others and x.fits(array)]
        if not same:
            self.add(f"{CONSTANT}{len(self.values)}", array)
            same = self.values[-1:]
            self.constants += same
        return same[0].at


class StateLayout:
    """The state of a captured call, in one block of memory.

    block       has the values; it extends the block of a size `before`
    arguments   of a run, `argument_of` their numbers by the id of the tensor
    homes       of the Program's sources: (number of an argument or -1, place in the block)
    numbers     the places of numbers, by the name that Python has for them
    updates     of numbers after a run: (name, expression)
    generators  the place of the generator of each random key, `keys` the key's"""

    def __init__(self, call: CapturedCall, before: "StateLayout | None" = None) -> None:
        self.call = call
        self.block: StateBlock = StateBlock(before.block if before else None)
        self.arguments: list[NamedSpec] = []
        self.argument_of: dict[int, int] = {}
        self.homes: dict[Source, tuple[int, int]] = {}
        self.numbers: dict[str, int] = {}
        self.inputs: list[Any] = [x.value for x in call.reading.inputs or ()]
        self.tensors: list[Tensor] = call.program.tensors(self.inputs)
        self.updates: list[tuple[str, Any]] = [
            (write.name, write.value.expr)
            for write in call.reading.writes
            if isinstance(write.value, Read) and write.value.expr is not None
        ]
        self.add_arguments()
        self.is_original: bool = self.has_original()
        self.add_tensors()
        self.add_numbers()
        self.generators: list[int] = self.add_generators()
        self.keys: list[int] = [self.block.place(KEY_BYTES) for _ in call.program.keys]

    @property
    def values(self) -> list[NamedValue]:
        """The values of the block."""
        return self.block.values

    def has_original(self) -> bool:
        """Whether all of the state is there before the first call: it begins as the user has it.
        Else (an optimizer makes its state in its first step) as the copies have it now."""
        names, original = self.call.names, self.call.original
        for tensor in self.tensors:
            name = names.tensors.get(id(tensor))
            if name is None or id(tensor) in self.argument_of:
                continue
            before = original.objects.get(name)
            if not isinstance(before, Tensor) or before.spec != tensor.spec:
                return False
        return all(self.original_number(name) is not None for name, _ in self.updates)

    def original_number(self, name: str) -> float | None:
        owner, _, key = name.rpartition(".")
        container: Any = self.call.original.objects.get(owner)
        is_dict = isinstance(container, dict)
        value: Any = container.get(key) if is_dict else getattr(container, key, None)
        return float(value) if type(value) in (int, float) else None

    def add_arguments(self) -> None:
        """Add the tensors among the function's arguments, used or not."""
        for slot, value in self.call.arguments.items():
            for tensor in tensors_in(value):
                name = self.call.names.tensors.get(id(tensor), slot)
                if id(tensor) not in self.argument_of and name.split(".")[0] == slot:
                    self.argument_of[id(tensor)] = len(self.arguments)
                    self.arguments.append(NamedSpec(name, tensor.shape, tensor.dtype.name))

    def add_tensors(self) -> None:
        """Add the state's tensors, each once, and gradients that the Program reads."""
        for number, tensor in enumerate(self.tensors):
            source = Source(SourceKind.INPUT, number)
            if id(tensor) in self.argument_of:
                self.homes[source] = self.argument_of[id(tensor)], 0
                continue
            name = self.name_of(number)
            before = self.call.original.objects.get(name) if self.is_original else None
            value = before if isinstance(before, Tensor) else tensor
            self.homes[source] = -1, self.block.add(name, value.detach().numpy())
        assert self.call.program.forward is not None
        for source in self.call.program.forward.sources:
            if source.kind is SourceKind.GRADIENT:
                gradient = self.tensors[source.what].grad
                name = f"{self.name_of(source.what)}.grad"
                self.homes[source] = -1, self.block.add(name, gradient.detach().numpy())

    def name_of(self, number: int) -> str:
        """Name of a tensor by its number."""
        return self.call.names.tensors.get(id(self.tensors[number]), f"{CONSTANT}{number}")

    def add_numbers(self) -> None:
        """Add the numbers that the step computes with: by the last word of their name where one
        number alone has it."""
        written = {name for name, _ in self.updates}
        exprs = [x.expr for x in self.call.reading.inputs or ()]
        exprs += [expr for _, expr in self.updates]
        used = written.union(*map(names_in, exprs))
        words = {name: last_word(name) for name in used}
        for name in sorted(used):
            alone = name not in written and list(words.values()).count(words[name]) == 1
            value = self.call.reading.numbers.get(name, 0.0)
            if self.is_original and (before := self.original_number(name)) is not None:
                value = before
            self.numbers[name] = self.block.add(words[name] if alone else name, np.array(value))

    def add_generators(self) -> list[int]:
        """Add the state of each key's generator: its key, and how many keys it gave."""
        call, places = self.call, dict[int, int]()
        states = call.draws_before if self.is_original else call.draws
        for generator, state in zip(call.program.keys, states, strict=True):
            if id(generator) not in places:
                name = f"random.{len(places)}" if places else "random"
                places[id(generator)] = self.block.add(name, np.array(state, np.uint64))
        return [places[id(generator)] for generator in call.program.keys]

    def home(self, source: Source) -> tuple[int, int]:
        """Where the Program reads an input."""
        if source.kind is SourceKind.KEY:
            return -1, self.keys[source.what]
        if source.kind is SourceKind.CONSTANT and source not in self.homes:
            self.homes[source] = -1, self.block.constant(source.what.value)
        return self.homes[source]


def last_word(name: str) -> str:
    """The last word of a name, with the indices after it: "betas.0"."""
    words = name.split(".")
    at = next((i for i in reversed(range(len(words))) if not words[i].isdigit()), 0)
    return ".".join(words[at:])


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors in an argument: itself, or those of lists, tuples and dicts."""
    if isinstance(value, Tensor):
        return [value]
    if not isinstance(value, (dict, list, tuple)):
        return []
    parts = value.values() if isinstance(value, dict) else value
    return [x for part in parts for x in tensors_in(part)]
