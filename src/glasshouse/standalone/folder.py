"""Folders of C: programs that train and predict without Python."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from glasshouse.base.errors import OptionError, type_name
from glasshouse.compile.building.toolchain import NATIVE
from glasshouse.dispatch.value import Value, as_value
from glasshouse.interop import save_safetensors
from glasshouse.ops.checks import check_path
from glasshouse.standalone.capturing import WHERE, capture_call, check_steps
from glasshouse.standalone.layout import StepLayout, place_arenas
from glasshouse.standalone.tables import ProgramText
from glasshouse.targets import PLAIN
from glasshouse.version import __version__

RUNTIME = Path(__file__).parent / "runtime"
COPIED = {"runner.c": "gh_runner.c", "gh_kernel.h": "gh_kernel.h", "gh_math.h": "gh_math.h"}
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
TAKEN = ("glasshouse", "safetensors", "example", "gh_runner", "main")
# As compile/building/toolchain.py has them: bits depend on no other.
OPTIONS = (
    "-O3 -fopenmp-simd -fwrapv -fno-math-errno -fno-trapping-math -ffp-contract=off "
    "-fno-semantic-interposition"
)


def export_program(
    step: Any,
    path: str | Path,
    *inputs: Any,
    name: str = "program",
    more: Sequence[Sequence[Any]] = (),
) -> Path:
    """Write a step as a folder of C that needs neither Python nor a library: inference, or training
    with its backward pass, optimizer and random numbers. Returns the path of the folder.

    `step` is a function, a method or a Module; `inputs` are its arguments, tensors or arrays of the
    shapes and dtypes that it is compiled for. It is captured on copies: nothing of the user's
    changes, and no random numbers are drawn. Tensors that the step reads are the program's state,
    with the names that they have in Python; so are numbers such as `lr`, which C sets. State that
    only the first step makes, as an optimizer's, is that of the copies after the calls that the
    manifest counts; call the step once before to begin with your own.

    `more` has other inputs, each all arguments of a call, for the step in more sizes: one program
    with one state, which takes inputs of any of them.

    The folder has the kernels (`NAME.c`), `glasshouse.h`, the state (`NAME.safetensors`), a
    manifest (`NAME.json`), a CMakeLists.txt and examples in C, C++ and Python. Several programs may
    lie in one folder under different names; `gh_copy` brings over state that they have in common.

    Raises: OptionError for an invalid step or a name that C does not take; CaptureError for a call
        that is not one graph, or changes objects that C cannot change; BackendError with the
        primitive and the user's line for one that plain C does not compute
    Example:
        >>> import glasshouse as gh
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = gh.export_program(lambda x: gh.exp(x) + 1, folder, gh.ones(3), name="curve")
        ...     print(sorted(file.name for file in path.glob("curve*")))
        ['curve.c', 'curve.h', 'curve.json', 'curve.safetensors']
    """
    if not isinstance(name, str) or not NAME.fullmatch(name) or name in TAKEN:
        fix = "Use letters, digits and _."
        raise OptionError(WHERE, "a name that C takes, and that is free", repr(name), fix)
    folder = check_path(WHERE, path)
    layouts = layouts_of(step, [inputs, *more])
    changes = any(x.changes or x.state.updates for x in layouts)
    text = ProgramText(layouts, name, "a step that trains" if changes else "a function").text()
    manifest = manifest_of(layouts, name)
    folder.mkdir(parents=True, exist_ok=True)
    for source, target in COPIED.items():
        (folder / target).write_text((NATIVE / source).read_text())
    for file in RUNTIME.glob("*.[ch]"):
        (folder / file.name).write_text(file.read_text())
    (folder / f"{name}.c").write_text(text)
    (folder / f"{name}.h").write_text(
        f'#include "glasshouse.h"\n\n#ifdef __cplusplus\nextern "C"\n#else\nextern\n#endif\n'
        f"const gh_program {name};\n"
    )
    (folder / f"{name}.json").write_text(json.dumps(manifest, indent=1) + "\n")
    state = {x.name: x.array for x in layouts[-1].state.values}
    save_safetensors(folder / f"{name}.safetensors", state)
    programs = sorted(x.stem for x in folder.glob("*.json") if (folder / f"{x.stem}.c").exists())
    (folder / "CMakeLists.txt").write_text(cmake_of(programs))
    for example in ("example.c", "example.cpp", "example.py"):
        example_text = (RUNTIME / f"{example}.in").read_text().replace("@NAME@", name)
        (folder / example).write_text(example_text)
    return folder


def layouts_of(step: Any, calls: Sequence[Sequence[Any]]) -> list[StepLayout]:
    """A step captured for the inputs of several calls, with one state.

    Raises: OptionError for calls that differ in more than sizes
    """
    layouts: list[StepLayout] = []
    for inputs in calls:
        if not isinstance(inputs, tuple | list) or len(inputs) != len(calls[0]):
            expected = f"tuples of {len(calls[0])} inputs in `more`"
            got = len(inputs) if isinstance(inputs, tuple | list) else type_name(inputs)
            raise OptionError(WHERE, expected, got, "Pass all arguments of a call in each.")
        arguments = tuple(as_tensor(x) for x in inputs)
        layout = StepLayout(capture_call(step, arguments, PLAIN), layouts[-1] if layouts else None)
        check_steps(layout.program)
        taken = [[(x.shape, x.dtype) for x in one.state.arguments] for one in (*layouts, layout)]
        if taken[-1] in taken[:-1]:
            got, fix = f"{taken[-1]} again", "Leave one out."
            raise OptionError(WHERE, "inputs of other shapes or dtypes in `more`", got, fix)
        layouts.append(layout)
    place_arenas(layouts)
    return layouts


def as_tensor(x: Any) -> Any:
    """An array as a tensor; numbers and other things stay."""
    return as_value(x) if hasattr(x, "__array_interface__") and not isinstance(x, Value) else x


def manifest_of(layouts: list[StepLayout], name: str) -> dict[str, Any]:
    """Describe a program for other programs; entries that name no size are the first size's."""

    def values(items: Any) -> list[dict[str, Any]]:
        return [{"name": x.name, "dtype": x.dtype, "shape": list(x.shape)} for x in items]

    infos = [layout.program.step_infos() for layout in layouts]
    sizes = [
        {
            "inputs": values(layout.state.arguments),
            "outputs": values([argument for argument, _ in layout.results]),
            "arena_bytes": layout.program.arena_bytes,
            "flops": sum(info.flops for info in steps),
        }
        for layout, steps in zip(layouts, infos, strict=True)
    ]
    first = layouts[0].state
    return {
        "name": name,
        "glasshouse": __version__,
        "format": 1,
        **sizes[0],
        "sizes": sizes,
        "state": values(layouts[-1].state.values),
        "calls_before": 0 if first.is_original else first.call.calls,
        "block_bytes": layouts[0].block_bytes,
        "steps": [{"kind": x.kind, "name": x.name, "flops": x.flops} for x in infos[0]],
        "options": OPTIONS,
    }


def cmake_of(programs: list[str]) -> str:
    """The CMakeLists.txt of programs: a library for all, and the example."""
    sources = " ".join(
        ["glasshouse.c", "safetensors.c", "gh_runner.c", *(f"{x}.c" for x in programs)]
    )
    return f"""\
cmake_minimum_required(VERSION 3.10)
project(glasshouse_programs C)
set(CMAKE_C_STANDARD 11)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
option(GH_NATIVE "Use all instructions of this processor" OFF)
option(GH_OPENMP "Use all cores" OFF)
add_library(glasshouse_programs SHARED {sources})
target_compile_options(glasshouse_programs PRIVATE {OPTIONS})
target_link_libraries(glasshouse_programs PUBLIC m)
if(GH_NATIVE)
  target_compile_options(glasshouse_programs PRIVATE -march=native)
endif()
if(GH_OPENMP)
  find_package(OpenMP REQUIRED)
  target_link_libraries(glasshouse_programs PUBLIC OpenMP::OpenMP_C)
endif()
add_executable(example example.c)
target_link_libraries(example glasshouse_programs)
include(CheckLanguage)
check_language(CXX)
if(CMAKE_CXX_COMPILER)
  enable_language(CXX)
  add_executable(example_cpp example.cpp)
  target_link_libraries(example_cpp glasshouse_programs)
endif()
"""
