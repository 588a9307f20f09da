"""A captured step as a file of C: its kernels, and the tables that `runtime/glasshouse.c` reads."""

import json
from collections.abc import Iterable
from typing import Any

from glasshouse.base.errors import BackendError, DTypeError, ShapeError
from glasshouse.compile.programs.code import StepCode
from glasshouse.compile.steps.emitted import CKernel, Dialect
from glasshouse.standalone.layout import StepLayout, ValuePlace
from glasshouse.standalone.numbers import c_number
from glasshouse.standalone.onednn_calls import OnednnCalls
from glasshouse.targets.cpu.onednn.library import PrimitiveCall
from glasshouse.targets.cpu.scan import LoopCall

DTYPES = {
    "bool": "GH_BOOL", "int8": "GH_I8", "int16": "GH_I16", "int32": "GH_I32", "int64": "GH_I64",
    "uint8": "GH_U8", "uint16": "GH_U16", "uint32": "GH_U32", "uint64": "GH_U64",
    "float16": "GH_F16", "bfloat16": "GH_BF16", "float32": "GH_F32", "float64": "GH_F64",
}  # fmt: skip
MOST_AXES = 8  # GH_MOST_AXES of runtime/glasshouse.h
# How many there are of each table of a program.
COUNTS = {"input": "inputs", "output": "outputs", "fetch": "fetches", "result": "results",
          "key": "keys", "move": "moves"}  # fmt: skip
SCALARS = {"float": "double", "int": "int64_t", "bool": "int64_t", "uint": "uint64_t"}
HEAD = """\
/* {name}: {about}. Made by glasshouse; see {name}.json. */
#include "gh_kernel.h"
#include "{header}.h"

static inline double gh_modulo(double a, double b) {{
  const double rest = fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}}
"""


class ProgramText:
    """The C of a step under a name, for one size or several."""

    def __init__(self, layouts: list[StepLayout], name: str, about: str) -> None:
        self.layouts = layouts
        self.name = name
        self.about = about
        self.layout: StepLayout = layouts[0]
        self.prefix: str = ""  # of names of a size that is not the first
        self.states: tuple[int, str] = (0, "0")
        self.places: str = "0"
        self.kernels: dict[CKernel, str] = {}
        self.calls: OnednnCalls = OnednnCalls()  # of the size
        self.texts: list[str] = []
        self.lines: list[str] = []

    def text(self) -> str:
        """The whole file."""
        values = self.layouts[-1].state.values
        rows = [spec_text(x.name, x.dtype, x.shape) for x in values]
        self.states = len(values), self.add_array("gh_spec", "states", rows)
        self.places = self.add_array("int64_t", "state_places", [x.at for x in values])
        others: list[str] = []
        for number in reversed(range(len(self.layouts))):  # the first has the others
            self.layout, self.prefix = self.layouts[number], f"size{number}_" if number else ""
            if not number and others:
                self.add_array("gh_program *const", "others", others)
            others.insert(0, f"&{self.add_size(len(others))}")
        header = "gh_onednn" if any("gh_library" in line for line in self.lines) else "gh_program"
        head = HEAD.format(name=self.name, about=self.about, header=header)
        return "\n".join([head, *self.texts, *self.lines, ""])

    def add_size(self, others: int) -> str:
        """Add the program of one size; its name."""
        program = self.layout.program
        self.calls = OnednnCalls()
        steps = []
        for i in range(program.count):
            what = program.sources.get(i) or program.native_calls[i]
            args = list(program.args[i])[: program.steps[i].count]
            steps.append(StepCode(args, what))
        table = self.add_steps(steps, f"{self.prefix}step")
        arrays = {**self.add_specs(), **self.add_places()}
        self.add_numbers()
        return self.add_program(table, arrays, others)

    # -- steps -----------------------------------------------------------------------------------

    def add_steps(self, steps: list[StepCode], name: str) -> str:
        """Add a table of steps, and the name of it."""
        rows = []
        for i, step in enumerate(steps):
            args = self.add_array("int64_t", f"{name}{i}_args", step.args)
            function, extra = self.function_of(step.what, f"{name}{i}")
            rows.append(f"{{(void *){function}, {extra}, {args}, {len(step.args)}}}")
        return self.add_array("gh_step", f"{name}_table", rows)

    def function_of(self, what: Any, name: str) -> tuple[str, str]:
        """A step's function, and its extra argument."""
        if isinstance(what, CKernel):
            function = self.kernels.get(what)
            if function is None:
                function = self.kernels[what] = f"kernel{len(self.kernels)}"
                text = Dialect().adapted(what).named(function)
                self.texts.append(text.replace(f"void {function}(", f"static void {function}(", 1))
            return function, "0"
        if isinstance(what, LoopCall):
            return "gh_run_loop", f"(void *)&{self.add_loop(what, name)}"
        if isinstance(what, PrimitiveCall):
            rows = [braced(x) for x in self.calls.arguments(what.call)]
            args = self.add_array("gh_onednn_arg", f"{name}_arguments", rows)
            values = braced((self.calls.number(what.call.desc), len(rows), args))
            self.lines.append(f"static const gh_onednn_call {name}_call = {values};")
            return "gh_run_onednn", f"(void *)&{name}_call"
        expected, fix = "kernels, loops and primitives", "Report it."
        raise BackendError("export_program", expected, type(what).__name__, fix)

    def add_loop(self, call: LoopCall, name: str) -> str:
        layout = call.layout
        once = self.add_steps([*call.code.steps] * layout.lanes, f"{name}_body")
        parts = [
            self.add_array("gh_loop_input", f"{name}_inputs", map(braced, layout.inputs)),
            self.add_array("gh_loop_output", f"{name}_outputs", map(braced, layout.outputs)),
            self.add_array("int64_t", f"{name}_carried", layout.carried),
            self.add_array("gh_loop_copy", f"{name}_copies", map(braced, layout.copies)),
        ]
        counts = [len(x) for x in (layout.inputs, layout.outputs, layout.carried, layout.copies)]
        numbers = [call.code.kept_steps, len(call.code.steps), layout.length, int(layout.reverse)]
        numbers += [layout.lanes, layout.lane_bytes, layout.gate, *counts]
        values = ", ".join([once, *map(str, numbers), *parts])
        self.lines.append(f"static const gh_loop {name}_loop = {{{values}}};")
        return f"{name}_loop"

    def add_array(self, kind: str, name: str, rows: Iterable[Any]) -> str:
        """Add a constant array; its name, or 0 for an empty one."""
        words = [str(x) for x in rows]
        if not words:
            return "0"
        self.lines.append(f"static const {kind} {name}[] = {{")
        self.lines += lines_of(words)
        self.lines.append("};")
        return name

    # -- values ----------------------------------------------------------------------------------

    def add_specs(self) -> dict[str, tuple[str, int]]:
        """Add the specs of a run's inputs and outputs: the program's fields, (name, count)."""
        layout = self.layout
        arrays = {}
        for kind, values in (
            ("input", layout.state.arguments),
            ("output", [argument for argument, _ in layout.results]),
        ):
            rows = [spec_text(x.name, x.dtype, x.shape) for x in values]
            arrays[kind] = self.add_array("gh_spec", f"{self.prefix}{kind}s", rows), len(rows)
        return arrays

    def add_places(self) -> dict[str, tuple[str, int]]:
        layout = self.layout
        keys = zip(layout.state.generators, layout.state.keys, strict=True)
        tables: dict[str, tuple[str, list[Any]]] = {
            "fetch": ("gh_place", [*map(braced, layout.fetches)]),
            "result": ("int64_t", layout.outputs),
            "key": ("gh_key", [*map(braced, keys)]),
            "gives": ("gh_move", [move_text(source, 0) for _, source in layout.results]),
            "move": ("gh_move", [move_text(*copy) for copy in layout.copies]),
        }
        return {
            field: (self.add_array(kind, f"{self.prefix}{field}_table", rows), len(rows))
            for field, (kind, rows) in tables.items()
        }

    def add_numbers(self) -> None:
        """Add the functions that compute numbers."""
        layout = self.layout
        places = {
            name: f"(*(const double *)(block + {at}))" for name, at in layout.state.numbers.items()
        }
        lines = [
            f"static void {self.prefix}numbers(const char *block, int64_t *scalars) {{",
            "  (void)block, (void)scalars;",
        ]
        for i, (at, packed, kind) in enumerate(layout.forward.scalars):
            if at is None:
                bits = int.from_bytes(packed, "little", signed=True)
                lines.append(f"  scalars[{i}] = {bits}LL;")
                continue
            read = (layout.reading.inputs or [])[at]
            value = read.value if read.expr is None else read.expr
            c = SCALARS[kind]
            text = f"const {c} x = ({c}){c_number(value, places)}"
            lines.append(f"  {{ {text}; memcpy(scalars + {i}, &x, 8); }}")
        lines += ["}", "", f"static void {self.prefix}advance(char *block) {{", "  (void)block;"]
        for i, (_, expr) in enumerate(layout.state.updates):
            lines.append(f"  const double x{i} = {c_number(expr, places)};")
        for i, (name, _) in enumerate(layout.state.updates):
            lines.append(f"  *(double *)(block + {layout.state.numbers[name]}) = x{i};")
        self.lines += [*lines, "}", ""]

    def add_program(self, steps: str, arrays: dict[str, tuple[str, int]], others: int) -> str:
        """Add the program itself; its name."""
        layout = self.layout
        counts = {COUNTS[x]: count for x, (_, count) in arrays.items() if x in COUNTS}
        counts |= {
            "steps": layout.program.count,
            "states": self.states[0],
            "scalars": len(layout.forward.scalars),
            "others": 0 if self.prefix else others,
        }
        tables = {x: array for x, (array, _) in arrays.items()}
        tables |= {"step": steps, "state": self.states[1], "state_at": self.places}
        tables["other"] = "others" if counts["others"] else "0"
        if self.calls.lines:
            self.lines += self.calls.text(f"{self.prefix}library")
            tables["library"] = f"&{self.prefix}library"
        fields = [f'.name = "{self.name}"', f".block_bytes = {layout.block_bytes}"]
        fields += [f".arena_at = {layout.arena_at}"]
        fields += [f".{x} = {value}" for x, value in (counts | tables).items()]
        fields += [f".{x} = {self.prefix}{x}" for x in ("numbers", "advance")]
        name, scope = (f"{self.prefix}program", "static ") if self.prefix else (self.name, "")
        self.lines += [f"{scope}const gh_program {name} = {{", *(f"  {x}," for x in fields), "};"]
        return name


def braced(row: Iterable[Any]) -> str:
    return "{" + ", ".join(map(str, row)) + "}"


def lines_of(words: list[str]) -> list[str]:
    """Words with commas, in lines of a hundred characters."""
    lines = [" "]
    for word in words:
        if len(lines[-1]) + len(word) > 98 and len(lines[-1]) > 1:
            lines.append(" ")
        lines[-1] += f" {word},"
    return lines


def spec_text(name: str, dtype: str, shape: tuple[int, ...]) -> str:
    """A spec in C.

    Raises: DTypeError, ShapeError for a dtype or a shape that C has no form of
    """
    where = f"export_program: {name}"
    if dtype not in DTYPES:
        raise DTypeError(where, "a real dtype", dtype, "Pass the parts of complex numbers.")
    if len(shape) > MOST_AXES:
        raise ShapeError(where, f"at most {MOST_AXES} axes", shape, "Reshape it.")
    sizes = ", ".join(map(str, shape)) or "0"
    return f"{{{json.dumps(name)}, {DTYPES[dtype]}, {len(shape)}, {{{sizes}}}}}"


def move_text(source: ValuePlace, to: int) -> str:
    sizes = [", ".join(map(str, x)) or "0" for x in (source.shape, source.strides)]
    where = f"{{{source.argument}, {source.at}}}, {to}, {source.itemsize}, {len(source.shape)}"
    return f"{{{where}, {{{sizes[0]}}}, {{{sizes[1]}}}}}"
