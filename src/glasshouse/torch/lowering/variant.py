"""A lowered graph that runs on PyTorch's own memory, for inputs of one set of sizes.

The addresses of the tensors go straight into the Program's run table. Results are tensors over
memory of our manager, which gets it back when PyTorch releases them."""

import ctypes
import functools
from collections import Counter
from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from glasshouse.base.errors import IndexOutOfRangeError
from glasshouse.base.interrupts import held
from glasshouse.compile.lowering.target import current_target
from glasshouse.compile.planning.plan import ARENA_TAG, SMALL_BYTES
from glasshouse.compile.programs import program as programs
from glasshouse.compile.programs.binding import Source, SourceKind
from glasshouse.compile.programs.executable import IndexErrorInside, Program, RunTable
from glasshouse.compile.programs.run_memory import allocate
from glasshouse.compile.steps.emitted import StaleCode
from glasshouse.dispatch import quiet, timers
from glasshouse.dispatch.watch import Tally
from glasshouse.graph import record
from glasshouse.memory import Buffer
from glasshouse.torch.aten.draws import draw_keys
from glasshouse.torch.lowering.eager_variant import EagerVariant
from glasshouse.torch.lowering.graph_source import GraphSource
from glasshouse.torch.lowering.host import OtherSizesError, array_at
from glasshouse.torch.lowering.interpreter import LoweredGraph, RecordingFacts
from glasshouse.torch.lowering.options import target_of
from glasshouse.torch.lowering.results import (
    SPREAD,
    VALUE,
    Output,
    free_outputs,
)
from glasshouse.torch.lowering.segments import BackwardSegment, Extent, segments_of
from glasshouse.torch.patches.tensors import of_memory
from glasshouse.torch.scopes import passes
from glasshouse.torch.tensors.access import expected_tensor, make_call
from glasshouse.torch.tensors.dtypes import from_array, to_array
from glasshouse.torch.tensors.layout import has_gaps, is_stable, layout_of, lying, row_major_strides
from glasshouse.torch.tensors.storage_parts import make_resizable

if TYPE_CHECKING:
    from glasshouse.graph.record import Recording
    from glasshouse.torch.tensors.layout import InputLayout


Inputs = list[torch.Tensor]
SMALL_RESULT = "small result of a Program"  # it lies in PyTorch's memory
UNSEEN_BYTES = 1 << 16  # results below this are PyTorch's, where nobody looks at the manager's


ALONE = ("alone",)  # the owner of an output of a Program that is one result, as it was made


class GraphVariant:
    """A graph lowered for inputs of one set of sizes, dtypes and layouts."""

    places: list[Any]
    in_place: dict[int, int] = {}  # outputs of a Program that lie in an input: its number
    view: ClassVar[Callable[..., Any]] = staticmethod(of_memory)  # (tensor, sizes, strides, offset)

    def __init__(self, source: GraphSource, lowered: LoweredGraph) -> None:
        self.source = source
        self.unknown: dict[str, int] = lowered.unknown
        self.outputs: list[Output] = lowered.outputs
        self.draws: int = lowered.draws
        self.sources: list[Source] = lowered.sources
        self.writes: list[int] = lowered.writes
        self.owners: list[Any] = [out.owner(number) for number, out in enumerate(self.outputs)]

    def results(self, args: Any, tensors: Any) -> list[Any]:
        """The results of the graph, once the written inputs have their new contents; `tensors` are
        those that were computed, by their places."""
        results = self.all_results(args, tensors)
        count = len(results) - len(self.writes)
        for number, place, tensor in zip(self.writes, self.places[count:], results[count:]):
            if place not in self.in_place:
                with torch.no_grad():
                    args[number].copy_(tensor)
        return results[:count]

    def all_results(self, args: list[torch.Tensor], tensors: list[torch.Tensor]) -> list[Any]:
        """The results, and the new contents of inputs. Parts of one value share its memory; all
        others have memory of their own. None is a view to autograd, which would refuse to write to
        it in place."""
        owners: dict[int, tuple[Any, ...]] = {}
        copies: dict[tuple[Any, ...], torch.Tensor] = {}
        results: list[Any] = []
        for number, (out, place) in enumerate(zip(self.outputs, self.places)):
            if place is None:
                results.append(out.handed_on(args, results, self.view))
                continue
            owner = self.owners[number]
            if owner is ALONE:
                results.append(tensors[place])
                continue
            if out.kind is SPREAD:
                results.append(self.spread(tensors[place], out))
                continue
            whole = tensors[place]
            if owners.setdefault(place, owner) != owner:
                whole = copies.get((place, owner))
                if whole is None:
                    whole = copies[place, owner] = self.copy(tensors[place])
            results.append(self.view(whole, out.sizes, out.strides, out.offset))
        return results

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy of a result, which another result must not share memory with."""
        return tensor.clone()

    def spread(self, tensor: torch.Tensor, out: Output) -> torch.Tensor:
        """A copy of a result with gaps in memory, or with repeated axes of stride 0."""
        tensor = tensor.as_strided(out.sizes, row_major_strides(out.sizes))
        for axis, stride in enumerate(out.strides):
            if stride == 0:
                tensor = tensor.narrow(axis, 0, 1)
        copy = torch.empty_strided(tensor.shape, out.strides, dtype=tensor.dtype).copy_(tensor)
        return self.view(copy, out.sizes, out.strides, 0)


class ReferenceVariant(GraphVariant):
    """A graph that the cards' references compute: under GH_COMPILE=never, or where it has no
    calls."""

    def __init__(self, source: GraphSource, lowered: LoweredGraph, inputs: Any) -> None:
        super().__init__(source, lowered)
        self.recording: Recording | None = lowered.recording
        self.layouts: list[InputLayout | None]
        self.layouts = [layout_of(x) if isinstance(x, torch.Tensor) else None for x in inputs]
        self.places = [out.what if out.kind.is_computed else None for out in self.outputs]

    def run(self, args: Any) -> list[Any]:
        """The results for tensors of these sizes."""
        arrays: list[Any] = []
        if self.recording is not None:
            keys = draw_keys(self.draws)
            for leaf, source in zip(self.recording.leaves, self.sources):
                leaf.value = self.array_of(source, args, keys)
            try:
                computed = quiet.run(record.compute, self.recording)
            except (IndexOutOfRangeError, OtherSizesError):
                # PyTorch's error says which index. It checks none where a result has no elements.
                return EagerVariant(self.source.module).run(args)
            arrays = [np.array(x, order="C") for x in computed]
        tensors = {
            out.what: of_memory(make_resizable(from_array(arrays[out.what])), *out.memory)
            for out in self.outputs
            if out.kind.is_computed
        }
        return self.results(args, tensors)

    def array_of(self, source: Source, args: Any, keys: Any) -> np.ndarray:
        """The memory of a leaf, as an array that lies row by row."""
        kind, what = source
        if kind is SourceKind.KEY:
            return keys[what]
        if kind is SourceKind.CONSTANT:
            return what
        return to_array(lying(args[what].detach(), self.layouts[what]))


def least_bytes(manager: Any) -> int:
    """The bytes from which on a result is the manager's: below, it would cost more than PyTorch."""
    return SMALL_BYTES if manager.listeners else UNSEEN_BYTES


class ProgramVariant(GraphVariant):
    """A graph as a Program, or as the plan of one, with the layouts of inputs and results."""

    program: Any
    copied: "list[tuple[int, InputLayout]]"

    def __init__(self, source: GraphSource, lowered: LoweredGraph, inputs: Inputs) -> None:
        super().__init__(source, lowered)
        self.facts: RecordingFacts = lowered.facts or RecordingFacts.of(lowered.recording)
        self.threads: Any = current_target().threads  # that its Program is made for
        self.numbers: dict[Any, int] = {x: at for at, x in self.leaves_of(SourceKind.INPUT)}
        self.copied = [(i, layout_of(inputs[i])) for i in self.numbers if has_gaps(inputs[i])]
        read_only = self.numbers.keys() - self.writes
        stable = [i for i in lowered.stable if is_stable(inputs[i]) and i in read_only]
        leaves = frozenset(self.numbers[i] for i in stable)
        backward = lowered.phase == "backward"
        with target_of(leaves, free_outputs(self.outputs), self.written_leaves(), backward):
            self.program = self.program_of(lowered)
        self.outputs: list[Output] = [out.as_in(self.program) for out in self.outputs]
        self.tally: Tally = Tally(self.facts.counts)
        count = len(self.program.output_specs) - self.program.kept  # a run keeps the later ones
        self.specs_out: Any = self.program.output_specs[:count]
        self.largest: int = max((spec[3] for spec in self.specs_out), default=0)
        self.stable: tuple[int, ...] | tuple[()] = tuple(stable) if self.program.kept_steps else ()
        self.kept_buffers: list[Any] = []  # memory of values that depend on parameters alone
        self.set_results()
        is_cut = backward and not self.program.hosts
        self.segments: list[BackwardSegment] = self.find_segments(inputs) if is_cut else []
        if not (self.program.hosts or self.facts.indexes or self.segments):
            self.in_place: dict[int, int] = self.find_in_place(inputs)

    def leaves_of(self, kind: SourceKind) -> list[tuple[int, Any]]:
        """(number, `what` of its source) of each leaf with a source of this kind."""
        return [(at, what) for at, (own, what) in enumerate(self.sources) if own is kind]

    def written_leaves(self) -> frozenset[tuple[int, int]]:
        """(output of the recording, leaf) for the new contents of each written input."""
        pairs = zip(reversed(self.outputs), reversed(self.writes))
        return frozenset((x.what, self.numbers[i]) for x, i in pairs if i in self.numbers)

    def program_of(self, lowered: LoweredGraph) -> Any:
        """The Program of a graph, or its plan; subclasses say which."""
        raise NotImplementedError

    def tensors_out(self) -> list[tuple[Any, ...]]:
        """(dtype, sizes, strides, bytes) of each output of the Program, by the first result that
        lies there."""
        by_place: dict[int, Output] = {}
        for out in self.outputs:
            if out.kind.is_computed:
                by_place.setdefault(self.program.outputs[out.what][0], out)
        tensors = []
        for at, (_, _, _, nbytes, _) in enumerate(self.specs_out):
            out = by_place.get(at) or Output(VALUE, 0, None, (nbytes,), (1,), 0, torch.uint8)
            tensors.append((out.dtype, *out.memory, nbytes))
        return tensors

    def set_results(self) -> None:
        """Set the place of each result, and `plain`: results are just the Program's outputs."""
        self.places = [
            self.program.outputs[out.what][0] if out.kind.is_computed else None
            for out in self.outputs
        ]
        plain = not self.writes and all(out.kind.is_whole for out in self.outputs)
        self.plain: bool = plain and len(set(self.places)) == len(self.places)
        counts = Counter(self.places)
        for i, (out, place) in enumerate(zip(self.outputs, self.places)):
            if out.kind.is_whole and counts[place] == 1:
                self.owners[i] = ALONE

    def find_in_place(self, inputs: list[torch.Tensor]) -> dict[int, int]:
        """The outputs of the Program that are written straight into an input: no later step reads
        that input's old contents. None for a run that may stop halfway."""
        first = len(self.outputs) - len(self.writes)
        numbers = {}
        for result, number in enumerate(self.writes, first):
            place = self.places[result]
            is_alone = self.owners[result] is ALONE and not has_gaps(inputs[number])
            if is_alone and self.program.output_specs[place][0] == self.numbers.get(number):
                numbers[place] = number
        return numbers

    def donated(self, args: list[Any]) -> dict[int, Any]:
        """The arguments that outputs are written to, by the numbers of their leaves."""
        return {self.numbers[number]: args[number] for number in self.in_place.values()}

    def keep(self, manager: Any) -> None:
        """Allocate the buffers that the first run fills for later ones."""
        if not self.kept_buffers:
            specs = self.program.output_specs[len(self.specs_out) :]
            self.kept_buffers += manager.alloc_all([x[3:] for x in specs])

    def find_segments(self, inputs: list[torch.Tensor]) -> list[BackwardSegment]:
        """The segments of a run, which owns its list of arguments. Arguments that results share,
        and arguments that are copied, stay to the end."""
        program = self.program
        begins, ends = program.output_begins, program.input_ends
        outputs = {
            at: Extent(begins.get(at, 0), program.output_ends.get(at, program.count - 1), spec[3])
            for at, spec in enumerate(self.specs_out)
        }
        stay = {out.what for out in self.outputs if out.reads_input()} | {i for i, _ in self.copied}
        arguments = {
            number: Extent(0, ends.get(self.numbers.get(number, -1), 0), x.nbytes)
            for number, x in enumerate(inputs)
            if isinstance(x, torch.Tensor) and number not in stay
        }
        return segments_of(program.count, outputs, arguments)


class CompiledVariant(ProgramVariant):
    """A graph as a Program. `call` writes the addresses of a call's tensors into the run table."""

    def __init__(self, source: GraphSource, lowered: LoweredGraph, inputs: Inputs) -> None:
        super().__init__(source, lowered, inputs)
        facts = self.facts
        self.program.lines |= lowered.lines
        self.table = RunTable(len(self.sources), len(self.program.output_specs), len(facts.scalars))
        self.table.set_scalars(facts.scalars)
        self.keys: np.ndarray = np.zeros((self.draws, 4), np.uint32)
        self.keys[:, 2] = np.arange(self.draws)
        self.constants: dict[int, Any] = dict(self.leaves_of(SourceKind.CONSTANT))
        self.constants |= {at: self.keys[x] for at, x in self.leaves_of(SourceKind.KEY)}
        for at, array in self.constants.items():
            self.table.table[1 + at] = array.ctypes.data
        expected = [self.expected_input(i, x) for i, x in enumerate(inputs)]
        results, address = self.expected_results(), ctypes.addressof(self.table.table)
        self.call: Any = make_call(address, expected, results)
        self.calls: list[Any] = [
            make_call(address, [], [results[at] for at in x.new_outputs]) for x in self.segments
        ]
        self.stamp: int | None = None  # of the parameters that kept memory is made of
        self.set_host_places()

    def program_of(self, lowered: LoweredGraph) -> Program:
        """The Program of a graph.

        Raises: StaleCode where stored code is gone, or no longer fits
        """
        if lowered.recording is not None:
            return programs.compiled(lowered.recording)
        program = programs.find_stored(lowered.code_key, lowered.structure)
        if program is None:
            raise StaleCode("the code of a lowered graph is gone")
        return program

    # -- fixed for all calls -------------------------------------------------------------------

    def expected_input(self, number: int, x: torch.Tensor) -> tuple[Any, ...]:
        """The layout that an argument must have, and where its address goes; `copy_inputs` writes
        the address of a copy."""
        if not isinstance(x, torch.Tensor):
            return (x,)
        place = -2 if has_gaps(x) else self.numbers.get(number, -2)
        return expected_tensor(x, place + 1)

    def expected_results(self) -> list[tuple[Any, ...]]:
        """For each output of the Program: the place of its address, and its tensor's layout."""
        first = 1 + len(self.sources)
        return [(first + at, *what) for at, what in enumerate(self.tensors_out())]

    def set_host_places(self) -> None:
        """Note the inputs and outputs that steps of the host read or write."""
        places = [
            (place.kind, place.at)
            for step in self.program.hosts.values()
            for place in (*step.sources, *step.results)
        ]
        self.host_inputs: set[Any] = {at for kind, at in places if kind == "input"}
        self.host_outputs: set[Any] = {at for kind, at in places if kind == "output"}

    # -- a call --------------------------------------------------------------------------------

    def run(self, args: list[Any]) -> list[Any] | None:
        """The results; None for arguments of other sizes."""
        program = self.program
        with program.lock:
            if not self.call.fill(args):
                return None
            if program.missing:
                for step in program.missing:
                    program.fall_back(step)
            copies = self.copy_inputs(args) if self.copied else None
            if self.draws:
                self.keys[:, :2] = draw_keys(1)[0][:2]
            tensors = self.make_results(args)
            self.table.table[-1] = 0
            self.tally.runs[get_ident()] += 1
            begin = self.first_step(args) if self.stable else 0
            try:
                self.run_program(begin, args, tensors)
            except (IndexErrorInside, IndexOutOfRangeError, OtherSizesError):
                self.stamp = None  # PyTorch's error says which index
                return EagerVariant(self.source.module).run(args)
            except BaseException:
                self.stamp = None
                raise
            finally:
                program.memory.arena = None
            del copies
        if self.plain:
            return [tensors[at] for at in self.places]
        return self.results(args, tensors)

    def make_results(self, args: list[Any]) -> list[Any]:
        """Allocate the arena and the result tensors; segments allocate theirs later."""
        own, manager = self.program.memory.own, self.program.target.memory()
        is_small = not self.in_place and self.largest < least_bytes(manager)
        if own is not None and (self.segments or is_small):
            self.set_arena(own)
            buffers = [None] * len(self.specs_out)
        else:
            with held:
                # The arena first, so that it gets the block that it had in the last run.
                self.set_arena(own or manager.alloc(self.program.arena_bytes, ARENA_TAG))
                buffers = [] if self.segments else self.allocate(self.specs_out, args)
        return [None] * len(self.specs_out) if self.segments else self.call.results(buffers)

    def set_arena(self, arena: Any) -> None:
        self.program.memory.arena, self.table.table[0] = arena, arena.address

    def allocate(self, specs: list[tuple[Any, ...]], args: list[Any]) -> list[Any]:
        """(address, owner) of each output; None for a small one, the input for one in place."""
        manager = self.program.target.memory()
        buffers = allocate(specs, manager, self.donated(args), least_bytes(manager))
        return [(x.address, x) if type(x) is Buffer else x for x in buffers]

    def copy_inputs(self, args: Any) -> list[Any]:
        """Copies of the arguments with gaps; they must live until the run ends."""
        copies = []
        for number, layout in self.copied:
            copy = lying(args[number].detach(), layout)
            self.table.table[1 + self.numbers[number]] = copy.data_ptr()
            copies.append(copy)
        return copies

    def first_step(self, args: Any) -> int:
        """The step to begin with: the first one after the kept steps, if their parameters are
        unchanged; else the first of all."""
        if not self.kept_buffers:
            self.keep(self.program.target.memory())
            first = 1 + len(self.sources) + len(self.specs_out)
            for at, buffer in enumerate(self.kept_buffers, first):
                self.table.table[at] = buffer.address
        stamp = self.call.stamp(args, self.stable)
        if stamp == self.stamp:
            return self.program.kept_steps
        self.stamp = stamp
        return 0

    def run_program(self, begin: int, args: list[Any], tensors: list[Any]) -> None:
        """Run the steps, and report them to this thread's watchers."""
        run = functools.partial(self.run_steps, begin, args, tensors)
        if timers:
            looking = passes.place.mode if passes.place.looking else None
            if looking:
                looking.note_operands(args)
                looking.note_results(tensors, SMALL_RESULT)
            programs.run_timed(self.program, [-1] * self.facts.calls, run)
            if looking and self.segments:  # each segment makes its results
                looking.note_results(tensors, SMALL_RESULT)
        else:
            run()

    def run_steps(
        self, begin: int, args: list[Any], tensors: list[Any], ends_ns: np.ndarray | None = None
    ) -> None:
        """Run the steps from `begin`, for these arguments and results."""
        if self.segments:
            return self.run_segments(args, tensors, ends_ns)
        inputs, outputs = {}, {}
        if self.program.hosts:
            table, first = self.table.table, 1 + len(self.sources)
            leaf_specs = self.facts.specs
            inputs = {
                at: array_at(table[1 + at], leaf_specs[at].shape, leaf_specs[at].dtype.np)
                for at in self.host_inputs
            }
            specs = self.program.output_specs
            outputs = {
                at: array_at(table[first + at], specs[at][1], specs[at][2])
                for at in self.host_outputs
            }
        return self.program.run_steps(
            self.table, self.run_places(), inputs, outputs, ends_ns, begin=begin
        )

    def run_segments(self, args: list[Any], tensors: list[Any], ends_ns: Any = None) -> None:
        """Run one segment after the other; arguments that are no longer read leave `args`."""
        places, run = self.run_places(), self.program.run_steps
        for segment, call in zip(self.segments, self.calls, strict=True):
            specs = [self.specs_out[at] for at in segment.new_outputs]
            with held:
                outputs = call.results(self.allocate(specs, args))
            for number, at in enumerate(segment.new_outputs):
                tensors[at] = outputs[number]
            del outputs  # so that ended tensors free their memory
            try:
                run(self.table, places, {}, {}, ends_ns, begin=segment.begin, end=segment.end)
            except IndexErrorInside as error:
                raise IndexError("backward: an index is outside of what it was for") from error
            segment.release(tensors, args)

    def run_places(self) -> list[int]:
        """The addresses that the runner is called with."""
        return [self.table.table[0], *self.table.places]
