"""Compiled steps in files: the code of the Program, the state, and the Python around it."""

import json
import pickle
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from glasshouse.base import Spec
from glasshouse.base.errors import CaptureError, CheckpointError, IndexOutOfRangeError, ShapeError
from glasshouse.compile.building import toolchain
from glasshouse.compile.building.disk_cache import digest
from glasshouse.compile.building.toolchain import CompileError
from glasshouse.compile.lowering.target import current_target
from glasshouse.compile.programs import store
from glasshouse.compile.programs.binding import Source, SourceKind
from glasshouse.compile.programs.code import ProgramCode, assemble
from glasshouse.compile.programs.executable import IndexErrorInside, Program
from glasshouse.compile.programs.program import plans_kept
from glasshouse.compile.steps.emitted import StaleCode
from glasshouse.dispatch.value import adopt, as_value
from glasshouse.graph.node import pack
from glasshouse.interop.safetensors import read_safetensors, save_safetensors
from glasshouse.ops.checks import check_path
from glasshouse.standalone.capturing import capture_call
from glasshouse.standalone.folder import as_tensor
from glasshouse.standalone.layout import StepLayout
from glasshouse.standalone.numbers import value_of
from glasshouse.standalone.replacement import Read, Result
from glasshouse.tensor import Tensor
from glasshouse.version import __version__

CODE, ABOUT = "glasshouse.code", "glasshouse.step"
OUTPUT, STATE, ARGUMENT, KEY, STATIC = "output", "state", "argument", "key", "static"


class SavedStep(NamedTuple):
    """A step without its state. A place is (kind, what): an output of the Program, a name of the
    state, the number of an argument or of a random key, or a value itself.

    scalars     (expression or bytes, kind of dtype), as the Program reads them
    numbers     names in the state of Python's names of numbers
    updates     of numbers: (name, expression), `changes` of tensors: (name, place)
    generators  names of the generators of each random key
    result      lists, tuples and dicts of places"""

    code: ProgramCode
    arguments: list[tuple[str, Spec]]
    fetches: list[tuple[str, Any]]
    scalars: list[tuple[Any, str]]
    numbers: dict[str, str]
    updates: list[tuple[str, Any]]
    changes: list[tuple[str, tuple[str, Any]]]
    generators: list[str]
    result: Any


def save_step(step: Any, path: str | Path, *inputs: Any) -> None:
    """Save a step as it is compiled here: `gh.load_step` runs it without its Python. `step` and
    `inputs` are those of `gh.export_program`; so is the state, with which the file begins.

    Raises: OptionError, CaptureError, BackendError as `gh.export_program`, CheckpointError where
        the file cannot be written
    """
    target = check_path("save_step", path)
    arguments = tuple(as_tensor(x) for x in inputs)
    with plans_kept():
        layout = StepLayout(capture_call(step, arguments, current_target()))
    plan = layout.program.plan
    assert plan is not None
    saved = saved_step(layout, assemble(plan))
    if not saved.code.is_portable:
        expected, fix = "a step without functions of the user", "Write them with tensors."
        raise CaptureError("save_step", expected, "one with some", fix)
    code = np.frombuffer(pickle.dumps(saved), np.uint8)
    state = {value.name: value.array for value in layout.state.values}
    save_safetensors(target, {**state, CODE: code}, {ABOUT: json.dumps(surroundings())})


def surroundings() -> dict[str, str]:
    """Return the versions and settings that code depends on, in words and digests."""
    identity = current_target().identity() or ""
    return {
        "version": __version__,
        "compiler's sources": store.sources_digest(store.COMPILER)[:16],
        "processor and C compiler": digest(toolchain.identity().encode())[:16],
        "target and settings": digest(identity.encode())[:16],
    }


def saved_step(layout: StepLayout, code: ProgramCode) -> SavedStep:
    """A captured step without objects of the user."""
    state = layout.state
    names = {value.at: value.name for value in state.values}
    inputs = layout.reading.inputs or []

    def place(where: Source) -> tuple[str, Any]:
        if where.kind is SourceKind.OUTPUT:
            return OUTPUT, where.what
        if where.kind is SourceKind.KEY:
            return KEY, where.what
        argument, at = state.home(where)
        return (ARGUMENT, argument) if argument >= 0 else (STATE, names[at])

    def result(value: Any) -> Any:
        if isinstance(value, (Read, Result)):
            where = layout.source_of_result(value)
            if where is not None:
                return place(where)
            return STATIC, value.value if isinstance(value, Read) else None
        if isinstance(value, dict):
            return {key: result(x) for key, x in value.items()}
        return [*map(result, value)] if isinstance(value, list) else (*map(result, value), None)

    fetches = [place(x) for x in layout.forward.sources]
    names |= {value.at: value.name for value in state.values}  # constants among the fetches
    exprs = [None if x is None else inputs[x] for x, *_ in layout.forward.scalars]
    scalars = [
        (packed if x is None else x.value if x.expr is None else x.expr, kind)
        for x, (_, packed, kind) in zip(exprs, layout.forward.scalars, strict=True)
    ]
    arguments = list(zip([x.name for x in state.arguments], argument_specs(layout), strict=True))
    return SavedStep(
        code,
        arguments,
        fetches,
        scalars,
        {name: names[at] for name, at in state.numbers.items()},
        state.updates,
        [(names[at], place(where)) for at, where in layout.changes.items()],
        [names[at] for at in state.generators],
        result(layout.reading.value),
    )


def argument_specs(layout: StepLayout) -> list[Spec]:
    specs = {}
    for value in layout.state.call.names.objects.values():
        number = layout.state.argument_of.get(id(value))
        if number is not None:
            specs[number] = value.spec
    return [specs[i] for i in range(len(specs))]


def load_step(path: str | Path) -> "LoadedStep":
    """The step that `gh.save_step` wrote, with its state. The file holds code: load it only from
    people whose code you would run.

    Raises: CheckpointError for a damaged file, and one of another version, machine or settings
    """
    arrays, metadata = read_safetensors(check_path("load_step", path), needs_checksum=True)
    if CODE not in arrays or ABOUT not in metadata:
        raise CheckpointError(
            "load_step", f"{path} to hold a step", "tensors alone", "Use gh.load."
        )
    about, here = json.loads(metadata[ABOUT]), surroundings()
    for name, value in here.items():
        if about.get(name) != value:
            got = f"{about.get(name)}, not {value}"
            raise CheckpointError("load_step", f"the same {name} as here", got, "Save it here.")
    try:
        saved = pickle.loads(arrays.pop(CODE).tobytes())
        return LoadedStep(saved, {name: array.copy() for name, array in arrays.items()})
    except (StaleCode, CompileError) as error:
        fix = "Save it again here."
        raise CheckpointError("load_step", "code that runs here", error, fix) from error


class LoadedStep:
    """A step from a file: called as the function that was saved. `state` has its tensors and
    numbers by name, as arrays that may be written to."""

    def __init__(self, saved: SavedStep, state: dict[str, np.ndarray]) -> None:
        self.saved = saved
        self.state = state
        self.program: Program = Program(saved.code)

    def __call__(self, *inputs: Any) -> Any:
        """One call, which changes the state as the function does.

        Raises: ShapeError for inputs of other shapes or dtypes than those that it was saved for,
            IndexOutOfRangeError
        """
        saved, state = self.saved, self.state
        arguments = self.checked(inputs)
        keys = [self.draw(name) for name in saved.generators]
        numbers = {name: float(state[place][()]) for name, place in saved.numbers.items()}
        scalars = [
            x if isinstance(x, bytes) else pack(value_of(x, numbers), kind)
            for x, kind in saved.scalars
        ]
        values: dict[str, Any] = {STATE: state, ARGUMENT: arguments, KEY: keys}
        arrays = [row_major(values[kind][at]) for kind, at in saved.fetches]
        try:
            outputs = self.program.run(arrays, scalars)
        except IndexErrorInside:
            fix = "Check the inputs."
            raise IndexOutOfRangeError("step", "indices in range", "another", fix) from None
        values[OUTPUT] = outputs
        result = self.filled(saved.result, values)
        changes = [(name, values[kind][at]) for name, (kind, at) in saved.changes]
        changes += [
            (saved.numbers[name], np.array(value_of(expr, numbers))) for name, expr in saved.updates
        ]
        state.update(changes)
        return result

    def checked(self, inputs: Any) -> list[np.ndarray]:
        expected = [f"{name} {spec}" for name, spec in self.saved.arguments]
        values = [as_value(x, where="step") for x in inputs]
        if [x.spec for x in values] != [spec for _, spec in self.saved.arguments]:
            got = ", ".join(str(x.spec) for x in values)
            raise ShapeError("step", ", ".join(expected), got, "Save it for these too.")
        return [x.detach().numpy() if isinstance(x, Tensor) else np.asarray(x) for x in values]

    def draw(self, name: str) -> np.ndarray:
        """The next key of a generator, as `Generator.key` makes it."""
        first, second, draw = (int(x) for x in self.state[name])
        self.state[name] = np.array([first, second, draw + 1], np.uint64)
        words = [first, second, draw & 0xFFFFFFFF, draw >> 32 & 0xFFFFFFFF]
        return np.array(words, np.uint32)

    def filled(self, result: Any, values: dict[str, Any]) -> Any:
        """The result of a call."""
        if isinstance(result, dict):
            return {key: self.filled(x, values) for key, x in result.items()}
        if isinstance(result, list):
            return [self.filled(x, values) for x in result]
        if len(result) == 2 and isinstance(result[0], str):
            kind, at = result
            return at if kind == STATIC else adopt(values[kind][at].copy())
        return tuple(self.filled(x, values) for x in result[:-1])

    def save(self, path: str | Path) -> None:
        """Save the step with the state that it has now."""
        code = np.frombuffer(pickle.dumps(self.saved), np.uint8)
        about = {ABOUT: json.dumps(surroundings())}
        save_safetensors(check_path("step.save", path), {**self.state, CODE: code}, about)


def row_major(array: np.ndarray) -> np.ndarray:
    """The array, or a copy whose elements lie row by row."""
    return array if array.flags.c_contiguous else array.copy()
