"""The places of a step's values in one block of memory, and the copies after a run."""

from typing import Any, NamedTuple

from glasshouse.base import Spec
from glasshouse.base.errors import CaptureError
from glasshouse.capture.programs.bound_program import BoundProgram
from glasshouse.capture.programs.captured_program import CapturedProgram
from glasshouse.compile.programs.binding import ResultKind, Source, SourceKind
from glasshouse.compile.programs.executable import Program
from glasshouse.compile.steps.view import strides_of
from glasshouse.standalone.capturing import WHERE, CapturedCall
from glasshouse.standalone.replacement import Read, ReplacementReading, Result
from glasshouse.standalone.state_layout import NamedSpec, StateLayout
from glasshouse.tensor import Tensor


class ValuePlace(NamedTuple):
    """Where a value is after a run: an argument by number or (-1) a place in the block, with
    strides in elements."""

    argument: int
    at: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int


class StepLayout:
    """The layout of a captured call.

    state    before a run; also has the block
    fetches  of the Program: (number of an argument or -1, place in the block)
    changes  the source of the new state at a place
    outputs  places of the Program's outputs
    copies   after a run: (where, place of a state)
    results  of a run: (spec, where)

    A step that was captured for a size `before` has the state in the same places."""

    def __init__(self, call: CapturedCall, before: "StepLayout | None" = None) -> None:
        self.captured: CapturedProgram = call.program
        self.reading: ReplacementReading = call.reading
        assert self.captured.forward is not None
        self.forward: BoundProgram = self.captured.forward
        self.program: Program = self.captured.forward.program
        self.state: StateLayout = StateLayout(call, before.state if before else None)
        self.fetches: list[tuple[int, int]]
        self.fetches = [self.state.home(source) for source in self.forward.sources]
        self.changes: dict[int, Source] = self.find_changes()
        self.outputs: list[int] = self.place_outputs()
        self.copies: list[tuple[ValuePlace, int]] = self.find_copies()
        self.results: list[tuple[NamedSpec, ValuePlace]] = self.find_results()
        self.arena_at: int = -1  # place_arenas knows these
        self.block_bytes: int = -1

    def source_of_output(self, number: int) -> Source:
        """Where an output of the graph is after a run of the Program."""
        kind, what, *_ = self.captured.outputs[number]
        if kind is ResultKind.AGAIN:
            return self.source_of_output(what)
        if kind is ResultKind.VALUE:
            return what
        is_gradient = kind is ResultKind.GRADIENT
        updates = self.captured.gradients if is_gradient else self.captured.updates
        source = Source(SourceKind.INPUT, what)
        return next((u.source for u in updates if u.number == what and u.source), source)

    def find_changes(self) -> dict[int, Source]:
        """Find the source of the value that replaces the state, by the state's place in the block.

        Raises: CaptureError for a step that changes an argument, or an object that it does not read
        """
        state, changes = self.state, dict[int, Source]()
        for update in self.captured.updates:
            argument, at = state.homes[Source(SourceKind.INPUT, update.number)]
            if argument >= 0:
                name = state.arguments[argument].name
                fix = "Return the new value."
                raise CaptureError(WHERE, "a step that changes no argument", name, fix)
            if update.source is not None:
                changes[at] = update.source
        for update in self.captured.gradients:
            gradient = Source(SourceKind.GRADIENT, update.number)
            if gradient in state.homes and update.source is not None:
                changes[state.homes[gradient][1]] = update.source
        at_name = {value.name: value.at for value in state.values}
        for name, value in self.reading.writes:
            if isinstance(value, Result) and name in at_name:
                changes[at_name[name]] = self.source_of_output(value.number)
            elif isinstance(value, Result):
                fix = "Call the step before: it makes state that later calls do not read."
                raise CaptureError(WHERE, "state that a call reads", name, fix)
            elif isinstance(value.value, Tensor) and name in at_name:
                number = next(i for i, t in enumerate(state.tensors) if t is value.value)
                changes[at_name[name]] = Source(SourceKind.INPUT, number)
        return changes

    def place_outputs(self) -> list[int]:
        """A place for each output of the Program: that of the state which it replaces, where it may
        be written over, or another."""
        outputs = enumerate(self.captured.outputs)
        read = {self.source_of_output(i) for i, x in outputs if x.kind is not ResultKind.CONSTANT}
        read |= set(self.changes.values())
        state_of = {self.output_number(x): at for at, x in self.changes.items()}
        places = []
        for number, (source, _, _, nbytes, _) in enumerate(self.program.output_specs):
            at = state_of.get(number)
            fits = at is not None and source is not None and self.fetches[source] == (-1, at)
            if fits and source is not None:
                fits = self.forward.sources[source] not in read and self.is_row_major(number)
            places.append(at if fits and at is not None else self.state.block.place(nbytes))
        return places

    def output_number(self, source: Source) -> int:
        """The number of the memory of an output of the Program; -1 for another source."""
        is_output = source.kind is SourceKind.OUTPUT
        return self.program.outputs[source.what][0] if is_output else -1

    def is_row_major(self, number: int) -> bool:
        """Whether the memory of an output has one value, row by row."""
        uses = [how for at, *how in self.program.outputs if at == number]
        return len(uses) == 1 and uses[0][1] == strides_of(uses[0][0])

    def where(self, source: Source, shape: tuple[int, ...], itemsize: int) -> ValuePlace:
        """Where the value of a source is after a run."""
        if source.kind is SourceKind.OUTPUT:
            number, shape, strides = self.program.outputs[source.what]
            return ValuePlace(-1, self.outputs[number], shape, strides, itemsize)
        return ValuePlace(*self.state.home(source), shape, strides_of(shape), itemsize)

    def find_copies(self) -> list[tuple[ValuePlace, int]]:
        """The changes of the state that the Program does not write in place.

        Raises: CaptureError for state that changes its shape, or changes places with another
        """
        copies = []
        values = {value.at: value for value in self.state.values}
        for at, new in self.changes.items():
            value = values[at]
            spec = self.spec_of(new)
            if spec.shape != value.shape or spec.dtype.name != value.dtype:
                expected = f"{value.name} to stay {value.dtype}{list(value.shape)}"
                raise CaptureError(WHERE, expected, spec, "Keep the shapes of the state.")
            source = self.where(new, value.shape, value.array.itemsize)
            if (source.argument, source.at) == (-1, at):
                continue
            if source.argument < 0 and source.at in self.changes:
                got = f"{value.name} from another that changes too"
                raise CaptureError(WHERE, "state that is not exchanged", got, "Copy it.")
            copies.append((source, at))
        return copies

    def spec_of(self, source: Source) -> Spec:
        """The spec of the value of a source."""
        if source.kind is SourceKind.OUTPUT:
            return self.forward.specs[source.what]
        if source.kind is SourceKind.INPUT:
            return self.state.tensors[source.what].spec
        return source.what.spec

    def find_results(self) -> list[tuple[NamedSpec, ValuePlace]]:
        """The tensors that the step returns, by name."""
        results = []
        for name, value in leaves("", self.reading.value):
            source = self.source_of_result(value)
            if source is not None:
                spec = self.spec_of(source)
                result = NamedSpec(name or "output", spec.shape, spec.dtype.name)
                results.append((result, self.where(source, spec.shape, spec.dtype.itemsize)))
        return results

    def source_of_result(self, value: Any) -> Source | None:
        """The source of a returned value; None for one that is not a tensor of the step."""
        if isinstance(value, Result):
            is_constant = self.captured.outputs[value.number].kind is ResultKind.CONSTANT
            return None if is_constant else self.source_of_output(value.number)
        numbers = (i for i, t in enumerate(self.state.tensors) if t is value.value)
        number = next(numbers, None)
        return None if number is None else Source(SourceKind.INPUT, number)


def place_arenas(layouts: list[StepLayout]) -> None:
    """Give the sizes of a step one arena, as large as the largest: one runs at a time."""
    block = layouts[-1].state.block
    at = block.place(max(x.program.arena_bytes for x in layouts))
    for layout in layouts:
        layout.arena_at, layout.block_bytes = at, block.nbytes


def leaves(name: str, value: Any) -> list[tuple[str, Any]]:
    """(name, leaf) of a result, in order."""
    if isinstance(value, (Read, Result)):
        inner = value.value if isinstance(value, Read) else None
        if not isinstance(inner, (dict, list, tuple)):
            return [(name, value)]
        items = inner.items() if isinstance(inner, dict) else enumerate(inner)
        value = {key: Read(x) for key, x in items}
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return [leaf for k, x in items for leaf in leaves(f"{name}.{k}" if name else str(k), x)]
