"""A captured step as a file of C: its kernels, and the tables that `runtime/glasshouse.c` reads."""

import json
from collections.abc import Iterable
from typing import Any

from glasshouse.base.errors import BackendError, DTypeError, ShapeError
from glasshouse.compile.programs.code import StepCode
from glasshouse.compile.steps.emitted import CKernel, Dialect
from glasshouse.standalone.layout import StepLayout, ValuePlace
from glasshouse.standalone.numbers import c_number
from glasshouse.targets.cpu.scan import LoopCall

DTYPES = {
    "bool": "GH_BOOL", "int8": "GH_I8", "int16": "GH_I16", "int32": "GH_I32", "int64": "GH_I64",
    "uint8": "GH_U8", "uint16": "GH_U16", "uint32": "GH_U32", "uint64": "GH_U64",
    "float16": "GH_F16", "bfloat16": "GH_BF16", "float32": "GH_F32", "float64": "GH_F64",
}  # fmt: skip
MOST_AXES = 8  # GH_MOST_AXES of runtime/glasshouse.h
SCALARS = {"float": "double", "int": "int64_t", "bool": "int64_t", "uint": "uint64_t"}
HEAD = """\
/* {name}: {about}. Made by glasshouse; see {name}.json. */
#include "gh_kernel.h"
#include "gh_program.h"

static inline double gh_modulo(double a, double b) {{
  const double rest = fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}}
"""


class ProgramText:
    """The C of a step under a name."""

    def __init__(self, layout: StepLayout, name: str, about: str) -> None:
        self.layout = layout
        self.name = name
        self.about = about
        self.kernels: dict[CKernel, str] = {}
        self.texts: list[str] = []
        self.lines: list[str] = []

    def text(self) -> str:
        """The whole file."""
        program = self.layout.program
        steps = []
        for i in range(program.count):
            what = program.sources.get(i) or program.native_calls[i]
            args = list(program.args[i])[: program.steps[i].count]
            steps.append(StepCode(args, what))
        table = self.add_steps(steps, "step")
        self.add_specs()
        self.add_places()
        self.add_numbers()
        self.add_program(table)
        head = HEAD.format(name=self.name, about=self.about)
        return "\n".join([head, *self.texts, *self.lines, ""])

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
        """A step's function, and what it gets beside its arguments."""
        if isinstance(what, CKernel):
            function = self.kernels.get(what)
            if function is None:
                function = self.kernels[what] = f"kernel{len(self.kernels)}"
                text = Dialect().adapted(what).named(function)
                self.texts.append(text.replace(f"void {function}(", f"static void {function}(", 1))
            return function, "0"
        if isinstance(what, LoopCall):
            return "gh_run_loop", f"(void *)&{self.add_loop(what, name)}"
        expected, fix = "kernels and loops", "Report it."
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

    def add_specs(self) -> None:
        layout = self.layout
        results = [argument for argument, _ in layout.results]
        for kind, values in (
            ("input", layout.state.arguments),
            ("output", results),
            ("state", layout.state.values),
        ):
            self.add_array(
                "gh_spec", f"{kind}s", [spec_text(x.name, x.dtype, x.shape) for x in values]
            )
        self.add_array("int64_t", "state_places", [x.at for x in layout.state.values])

    def add_places(self) -> None:
        layout = self.layout
        self.add_array("gh_place", "fetches", map(braced, layout.fetches))
        self.add_array("int64_t", "results", layout.outputs)
        keys = zip(layout.state.generators, layout.state.keys, strict=True)
        self.add_array("gh_key", "keys", map(braced, keys))
        self.add_array("gh_move", "gives", [move_text(source, 0) for _, source in layout.results])
        self.add_array("gh_move", "moves", [move_text(*copy) for copy in layout.copies])

    def add_numbers(self) -> None:
        """Add the functions that compute numbers."""
        layout = self.layout
        places = {
            name: f"(*(const double *)(block + {at}))" for name, at in layout.state.numbers.items()
        }
        lines = [
            "static void numbers(const char *block, int64_t *scalars) {",
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
        lines += ["}", "", "static void advance(char *block) {", "  (void)block;"]
        for i, (_, expr) in enumerate(layout.state.updates):
            lines.append(f"  const double x{i} = {c_number(expr, places)};")
        for i, (name, _) in enumerate(layout.state.updates):
            lines.append(f"  *(double *)(block + {layout.state.numbers[name]}) = x{i};")
        self.lines += [*lines, "}", ""]

    def add_program(self, steps: str) -> None:
        layout = self.layout
        counts = {
            "steps": layout.program.count,
            "inputs": len(layout.state.arguments),
            "outputs": len(layout.results),
            "states": len(layout.state.values),
            "fetches": len(layout.fetches),
            "results": len(layout.outputs),
            "scalars": len(layout.forward.scalars),
            "keys": len(layout.state.keys),
            "moves": len(layout.copies),
        }
        arrays = {
            "input": ("inputs", counts["inputs"]),
            "output": ("outputs", counts["outputs"]),
            "state": ("states", counts["states"]),
            "state_at": ("state_places", counts["states"]),
            "fetch": ("fetches", counts["fetches"]),
            "result": ("results", counts["results"]),
            "key": ("keys", counts["keys"]),
            "gives": ("gives", counts["outputs"]),
            "move": ("moves", counts["moves"]),
        }
        fields = [f'.name = "{self.name}"', f".block_bytes = {layout.state.nbytes}"]
        fields += [f".arena_at = {layout.arena_at}", f".step = {steps}"]
        fields += [f".{name} = {count}" for name, count in counts.items()]
        fields += [f".{x} = {name if count else 0}" for x, (name, count) in arrays.items()]
        fields += [".numbers = numbers", ".advance = advance"]
        self.lines += [f"const gh_program {self.name} = {{", *(f"  {x}," for x in fields), "};"]


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

    Raises: DTypeError, ShapeError for what C has no form of
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
