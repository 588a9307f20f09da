"""Where a step's values lie in one block of memory, and what is copied after a run."""

from typing import Any, NamedTuple

import numpy as np

from glasshouse.base import Spec
from glasshouse.base.errors import CaptureError
from glasshouse.capture.programs.payload_places import OutputKind, PayloadPlace, PlaceKind
from glasshouse.compile.planning.plan_memory import ALIGNMENT
from glasshouse.compile.steps.view import strides_of
from glasshouse.standalone.capturing import WHERE, CapturedCall
from glasshouse.standalone.numbers import names_in
from glasshouse.standalone.replacement import Read, Result
from glasshouse.tensor import Tensor

KEY_BYTES = 16


class NamedValue(NamedTuple):
    """A value of the state: its name, spec, place in the block, and contents."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    at: int
    array: np.ndarray


class Source(NamedTuple):
    """Where a value is after a run: an argument by number or a place in the block, with strides in
    elements."""

    argument: int
    at: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int


class Argument(NamedTuple):
    name: str
    shape: tuple[int, ...]
    dtype: str


class StepLayout:
    """The layout of a captured call.

    states     in the order of the block; numbers are float64, generators three uint64
    arguments  what a run is given, `results` what it gives: (name, where it is)
    fetches    of the Program: (number of an argument or -1, place in the block)
    outputs    places of the Program's outputs
    copies     after a run: (where, place of a state)
    updates    of numbers: (name, expression)"""

    def __init__(self, call: CapturedCall) -> None:
        self.call, self.captured = call, call.program
        assert self.captured.forward is not None
        self.forward = self.captured.forward
        self.program = self.forward.program
        self.nbytes = 0
        self.states: list[NamedValue] = []
        self.arguments: list[Argument] = []
        self.inputs = [x.value for x in call.reading.inputs or ()]
        self.exprs = [x.expr for x in call.reading.inputs or ()]
        self.tensors = self.captured.tensors(self.inputs)
        self.homes: dict[PayloadPlace, tuple[int, int]] = {}  # (argument, place in the block)
        self.updates = [
            (write.name, write.value.expr)
            for write in call.reading.writes
            if isinstance(write.value, Read) and write.value.expr is not None
        ]
        self.is_original = self.has_original()
        self.add_arguments()
        self.add_tensors()
        self.add_numbers()
        self.generators = self.add_generators()
        self.keys = [self.place(KEY_BYTES) for _ in self.captured.keys]
        self.fetches = [self.home(place) for place in self.forward.fetches]
        self.changes = self.find_changes()
        self.outputs = self.place_outputs()
        self.copies = self.find_copies()
        self.results = self.find_results()
        self.arena_at = self.place(self.program.arena_bytes)

    def place(self, nbytes: int) -> int:
        """A place for so many bytes in the block."""
        at = self.nbytes
        self.nbytes += -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT
        return at

    # -- values before a run ---------------------------------------------------------------------

    def has_original(self) -> bool:
        """Whether all of the state is there before the first call: it begins as the user has it.
        Else (an optimizer makes its state in its first step) as the copies have it now."""
        names, original = self.call.names, self.call.original
        for tensor in self.tensors:
            name = names.tensors.get(id(tensor))
            if name is None or name in self.call.arguments:
                continue
            before = original.objects.get(name)
            if not isinstance(before, Tensor) or before.spec != tensor.spec:
                return False
        return all(self.original_number(name) is not None for name, _ in self.updates)

    def original_number(self, name: str) -> float | None:
        owner, _, key = name.rpartition(".")
        container: Any = self.call.original.objects.get(owner)
        is_dict = isinstance(container, dict)
        value = container.get(key) if is_dict else getattr(container, key, None)
        return float(value) if type(value) in (int, float) else None

    def add_arguments(self) -> None:
        """Arguments: the tensors among those of the function, used or not."""
        self.argument_of: dict[int, int] = {}
        names = self.call.names
        for slot, value in self.call.arguments.items():
            for tensor in tensors_in(value):
                if id(tensor) in self.argument_of:
                    continue
                name = names.tensors.get(id(tensor), slot)
                if name.split(".")[0] != slot:  # a part of a model that is passed
                    continue
                self.argument_of[id(tensor)] = len(self.arguments)
                self.arguments.append(Argument(name, tensor.shape, tensor.dtype.name))

    def add_tensors(self) -> None:
        """The state's tensors, each once; what the Program reads of arguments and constants."""
        for number, tensor in enumerate(self.tensors):
            place = PayloadPlace(PlaceKind.TENSOR, number)
            if id(tensor) in self.argument_of:
                self.homes[place] = self.argument_of[id(tensor)], 0
                continue
            name = self.call.names.tensors.get(id(tensor), f"constant.{number}")
            before = self.call.original.objects.get(name) if self.is_original else None
            value = before if isinstance(before, Tensor) else tensor
            self.homes[place] = -1, self.add_state(name, value.detach().numpy())
        for place in self.forward.fetches:
            if place.kind is PlaceKind.GRADIENT:
                gradient = self.tensors[place.number].grad
                name = f"{self.name_of(place.number)}.grad"
                self.homes[place] = -1, self.add_state(name, gradient.detach().numpy())

    def name_of(self, number: int) -> str:
        return self.call.names.tensors.get(id(self.tensors[number]), f"constant.{number}")

    def add_state(self, name: str, array: np.ndarray) -> int:
        at = self.place(array.nbytes)
        taken = {state.name for state in self.states}
        while name in taken:
            name += "'"
        # reshape: ascontiguousarray makes a vector of a number
        array = np.ascontiguousarray(array).reshape(array.shape)
        self.states.append(NamedValue(name, array.shape, array.dtype.name, at, array.copy()))
        return at

    def add_numbers(self) -> None:
        """The numbers that the step computes with."""
        used = set().union(
            *(names_in(x) for x in self.exprs), *(names_in(x) for _, x in self.updates)
        )
        used |= {name for name, _ in self.updates}
        short = {name: name.rpartition(".")[2] for name in used}
        written = {name for name, _ in self.updates}
        self.number_at: dict[str, int] = {}
        self.number_names: dict[str, str] = {}
        for name in sorted(used):
            alone = name not in written and list(short.values()).count(short[name]) == 1
            value = self.call.reading.numbers.get(name, 0.0)
            if self.is_original and (before := self.original_number(name)) is not None:
                value = before
            self.number_names[name] = short[name] if alone else name
            self.number_at[name] = self.add_state(self.number_names[name], np.array(value))

    def add_generators(self) -> list[int]:
        """The state of each key's generator: its key, and how many keys it gave."""
        call, places = self.call, dict[int, int]()
        states = call.draws_before if self.is_original else call.draws
        for generator, state in zip(self.captured.keys, states, strict=True):
            if id(generator) not in places:
                name = f"random.{len(places)}" if places else "random"
                places[id(generator)] = self.add_state(name, np.array(state, np.uint64))
        return [places[id(generator)] for generator in self.captured.keys]

    def home(self, place: PayloadPlace) -> tuple[int, int]:
        """Where the Program reads an input."""
        if place.kind is PlaceKind.KEY:
            return -1, self.keys[place.number]
        if place.kind is PlaceKind.CONSTANT:
            known = self.homes.get(place)
            if known is None:
                assert place.payload is not None
                name = f"constant.{len(self.states)}"
                known = self.homes[place] = -1, self.add_state(name, place.payload.value)
            return known
        return self.homes[place]

    # -- values after a run ----------------------------------------------------------------------

    def place_of_output(self, number: int) -> PayloadPlace:
        """Where an output of the graph is after a run of the Program."""
        output = self.captured.outputs[number]
        if output.kind is OutputKind.SAME:
            return self.place_of_output(output.number)
        if output.kind is OutputKind.NEW:
            return output.place or PayloadPlace(PlaceKind.CONSTANT)
        updates = self.captured.updates
        if output.kind is OutputKind.GRADIENT:
            updates = self.captured.gradients
        place = PayloadPlace(PlaceKind.TENSOR, output.number)
        return next((u.place for u in updates if u.number == output.number and u.place), place)

    def find_changes(self) -> dict[int, PayloadPlace]:
        """What replaces the state at a place in the block."""
        changes: dict[int, PayloadPlace] = {}
        for update in self.captured.updates:
            if update.place is None:
                continue
            argument, at = self.homes[PayloadPlace(PlaceKind.TENSOR, update.number)]
            if argument >= 0:
                name = self.arguments[argument].name
                fix = "Return the new value."
                raise CaptureError(WHERE, "a step that changes no argument", name, fix)
            changes[at] = update.place
        for update in self.captured.gradients:
            place = PayloadPlace(PlaceKind.GRADIENT, update.number)
            if place in self.homes and update.place is not None:
                changes[self.homes[place][1]] = update.place
        at_name = {state.name: state.at for state in self.states}
        for name, value in self.call.reading.writes:
            if isinstance(value, Result) and name in at_name:
                changes[at_name[name]] = self.place_of_output(value.number)
            elif isinstance(value, Result):
                fix = "Call the step before: it makes state that later calls do not read."
                raise CaptureError(WHERE, "state that a call reads", name, fix)
            elif isinstance(value.value, Tensor) and name in at_name:
                number = next(i for i, t in enumerate(self.tensors) if t is value.value)
                changes[at_name[name]] = PayloadPlace(PlaceKind.TENSOR, number)
        return changes

    def place_outputs(self) -> list[int]:
        """A place for each output of the Program: that of the state which it replaces, where it may
        be written over, or another."""
        kept = {self.place_of_output(i) for i, x in enumerate(self.captured.outputs)
                if x.kind is not OutputKind.VALUE}  # fmt: skip
        kept |= set(self.changes.values())
        number_of = {self.output_number(x): at for at, x in self.changes.items()}
        places = []
        for number, (source, _, _, nbytes, _) in enumerate(self.program.output_specs):
            at = number_of.get(number)
            fetch = None if source is None else self.forward.fetches[source]
            fits = at is not None and source is not None and self.fetches[source] == (-1, at)
            fits = fits and fetch not in kept and self.is_row_major(number)
            places.append(at if fits and at is not None else self.place(nbytes))
        return places

    def output_number(self, place: PayloadPlace | None) -> int:
        """The number of the memory of an output of the Program; -1 for another place."""
        if place is None or place.kind is not PlaceKind.OUTPUT:
            return -1
        return self.program.outputs[place.number][0]

    def is_row_major(self, number: int) -> bool:
        uses = [how for at, *how in self.program.outputs if at == number]
        return len(uses) == 1 and uses[0][1] == strides_of(uses[0][0])

    def source_of(self, place: PayloadPlace, spec: Spec) -> Source:
        """Where the value at a place is after a run."""
        shape, size = spec.shape, spec.dtype.itemsize
        if place.kind is PlaceKind.OUTPUT:
            number, shape, strides = self.program.outputs[place.number]
            return Source(-1, self.outputs[number], shape, strides, size)
        return Source(*self.home(place), shape, strides_of(shape), size)

    def find_copies(self) -> list[tuple[Source, int]]:
        """The changes of the state that the Program does not write in place."""
        copies = []
        specs = {state.at: state for state in self.states}
        for at, place in self.changes.items():
            state = specs[at]
            itemsize = state.array.itemsize
            spec = self.spec_of(place)
            if spec is not None and spec.shape != state.shape:
                expected = f"{state.name} of one shape, {state.shape}"
                raise CaptureError(WHERE, expected, spec.shape, "Keep the shapes of the state.")
            if place.kind is PlaceKind.OUTPUT:
                number, shape, strides = self.program.outputs[place.number]
                source = Source(-1, self.outputs[number], shape, strides, itemsize)
            else:
                source = Source(*self.home(place), state.shape, strides_of(state.shape), itemsize)
                if source.argument < 0 and source.at in self.changes and source.at != at:
                    got = f"{state.name} from another that changes too"
                    raise CaptureError(WHERE, "state that is not exchanged", got, "Copy it.")
            if (source.argument, source.at) != (-1, at):
                copies.append((source, at))
        return copies

    def spec_of(self, place: PayloadPlace) -> Spec | None:
        return self.forward.specs[place.number] if place.kind is PlaceKind.OUTPUT else None

    def find_results(self) -> list[tuple[Argument, Source]]:
        """What the step returns: its tensors by name."""
        results: list[tuple[Argument, Source]] = []
        for name, value in leaves("", self.call.reading.value):
            if isinstance(value, Result):
                output = self.captured.outputs[value.number]
                if output.kind is OutputKind.VALUE:
                    continue
                place = self.place_of_output(value.number)
            elif isinstance(value, Read) and isinstance(value.value, Tensor):
                number = next((i for i, t in enumerate(self.tensors) if t is value.value), None)
                if number is None:
                    continue
                place = PayloadPlace(PlaceKind.TENSOR, number)
            else:
                continue
            spec = self.spec_of(place)
            if spec is None and place.kind is PlaceKind.TENSOR:
                spec = self.tensors[place.number].spec
            if spec is None:
                assert place.payload is not None
                spec = place.payload.spec
            title = name or "output"
            results.append(
                (Argument(title, spec.shape, spec.dtype.name), self.source_of(place, spec))
            )
        return results


def short_name(name: str) -> str:
    """The last word of a name, and what counts after it: "betas.0"."""
    words = name.split(".")
    at = next((i for i in reversed(range(len(words))) if not words[i].isdigit()), 0)
    return ".".join(words[at:])


def leaves(name: str, value: Any) -> list[tuple[str, Any]]:
    """(name, leaf) of a result, in order."""
    if isinstance(value, (Read, Result)):
        inner = value.value if isinstance(value, Read) else None
        if not isinstance(inner, (dict, list, tuple)):
            return [(name, value)]
        value = (
            {k: Read(x) for k, x in inner.items()}
            if isinstance(inner, dict)
            else [*map(Read, inner)]
        )
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return [leaf for k, x in items for leaf in leaves(f"{name}.{k}" if name else str(k), x)]


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors in an argument: itself, or those of lists, tuples and dicts."""
    if isinstance(value, Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value
    if not isinstance(value, (dict, list, tuple)):
        return []
    return [x for part in parts for x in tensors_in(part)]
