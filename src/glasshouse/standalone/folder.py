"""Folders of C: programs that train and predict without Python."""

import json
import re
from collections.abc import Iterable, Sequence
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
from glasshouse.targets import ONEDNN, PLAIN, Target
from glasshouse.targets.cpu.onednn.library import library
from glasshouse.version import __version__

RUNTIME = Path(__file__).parent / "runtime"
COPIED = {"runner.c": "gh_runner.c", "gh_kernel.h": "gh_kernel.h", "gh_math.h": "gh_math.h"}
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
TAKEN = ("glasshouse", "safetensors", "example", "gh_runner", "gh_onednn", "main")
# Of a program: the target, the end of its file, and when that is compiled.
FORMS = {
    PLAIN.name: (PLAIN, ".c", "#ifndef"),
    ONEDNN.name: (ONEDNN, f".{ONEDNN.name}.c", "#ifdef"),
}
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
    forms: Sequence[str] = (PLAIN.name,),
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

    `forms` are "plain", which needs no library, "onednn", whose products and convolutions are
    oneDNN's, or both: the second is built where GH_ONEDNN is defined. They have one state.

    The folder has the kernels (`NAME.c`), `glasshouse.h`, the state (`NAME.safetensors`), a
    manifest (`NAME.json`), a CMakeLists.txt and examples in C, C++ and Python. Several programs may
    lie in one folder under different names; `gh_copy` brings over state that they have in common.

    Raises: OptionError for an invalid step, a name that C does not take, another form, or "onednn"
        where that is not installed; CaptureError for a call
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
    check_forms(forms)
    layouts = {form: layouts_of(step, [inputs, *more], FORMS[form][0]) for form in forms}
    state = common_state(layouts.values())
    texts = {f"{name}{FORMS[form][1]}": text_of(form, layouts, name) for form in layouts}
    manifest = manifest_of(layouts, name)
    folder.mkdir(parents=True, exist_ok=True)
    for _, end, _ in FORMS.values():
        (folder / f"{name}{end}").unlink(missing_ok=True)
    for source, target in COPIED.items():
        (folder / target).write_text((NATIVE / source).read_text())
    for file in RUNTIME.glob("*.[ch]"):
        if ONEDNN.name in forms or not file.name.startswith("gh_onednn"):
            (folder / file.name).write_text(file.read_text())
    for file_name, text in texts.items():
        (folder / file_name).write_text(text)
    (folder / f"{name}.h").write_text(
        f'#include "glasshouse.h"\n\n#ifdef __cplusplus\nextern "C"\n#else\nextern\n#endif\n'
        f"const gh_program {name};\n"
    )
    (folder / f"{name}.json").write_text(json.dumps(manifest, indent=1) + "\n")
    save_safetensors(folder / f"{name}.safetensors", state)
    (folder / "CMakeLists.txt").write_text(cmake_of(folder))
    for example in ("example.c", "example.cpp", "example.py"):
        example_text = (RUNTIME / f"{example}.in").read_text().replace("@NAME@", name)
        (folder / example).write_text(example_text)
    return folder


def check_forms(forms: Sequence[str]) -> None:
    """Check the forms of a program.

    Raises: OptionError
    """
    if isinstance(forms, str) or not forms or not set(forms) <= set(FORMS):
        raise OptionError(WHERE, f"forms among {tuple(FORMS)}", repr(forms), "Give a tuple.")
    if ONEDNN.name in forms and library() is None:
        fix = "Install onednn-cpu-gomp, or leave the form out."
        raise OptionError(WHERE, "oneDNN for the form 'onednn'", "none", fix)


def common_state(forms: Iterable[list[StepLayout]]) -> dict[str, Any]:
    """The state of all forms by name: that of the first which has a value. A constant that another
    form has otherwise gets another name there."""
    state: dict[str, Any] = {}
    for layouts in forms:
        values = layouts[-1].state.values
        for i, value in enumerate(values):
            while value.is_constant and not value.fits(state.get(value.name, value.array)):
                value = values[i] = value._replace(name=f"{value.name}'")
            state.setdefault(value.name, value.array)
    return state


def text_of(form: str, layouts: dict[str, list[StepLayout]], name: str) -> str:
    """The C of a form of a program, which is compiled for that form alone."""
    changes = any(x.changes or x.state.updates for x in layouts[form])
    about = "a step that trains" if changes else "a function"
    text = ProgramText(layouts[form], name, about).text()
    if len(layouts) > 1:
        return f"{FORMS[form][2]} GH_ONEDNN\n{text}#endif\n"
    if form == PLAIN.name:
        return text
    return f'#ifndef GH_ONEDNN\n#error "{name} calls oneDNN: define GH_ONEDNN"\n#endif\n{text}'


def layouts_of(step: Any, calls: Sequence[Sequence[Any]], target: Target) -> list[StepLayout]:
    """A step captured for a target and the inputs of several calls, with one state.

    Raises: OptionError for calls that differ in more than sizes
    """
    layouts: list[StepLayout] = []
    for inputs in calls:
        if not isinstance(inputs, tuple | list) or len(inputs) != len(calls[0]):
            expected = f"tuples of {len(calls[0])} inputs in `more`"
            got = len(inputs) if isinstance(inputs, tuple | list) else type_name(inputs)
            raise OptionError(WHERE, expected, got, "Pass all arguments of a call in each.")
        arguments = tuple(as_tensor(x) for x in inputs)
        call = capture_call(step, arguments, target)
        layout = StepLayout(call, layouts[-1] if layouts else None)
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


def manifest_of(forms: dict[str, list[StepLayout]], name: str) -> dict[str, Any]:
    """Describe a program for other programs; entries that name no size are the first size's, and
    those that name no form the first form's."""

    def values(items: Any) -> list[dict[str, Any]]:
        return [{"name": x.name, "dtype": x.dtype, "shape": list(x.shape)} for x in items]

    dnnl = library() if ONEDNN.name in forms else None
    layouts = next(iter(forms.values()))
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
        "forms": {
            form: {
                "source": f"{name}{FORMS[form][1]}",
                "library": f"oneDNN {dnnl.version}" if dnnl and form == ONEDNN.name else None,
                "block_bytes": own[0].block_bytes,
            }
            for form, own in forms.items()
        },
    }


def cmake_of(folder: Path) -> str:
    """The CMakeLists.txt of the programs in a folder: a library for all, and the examples."""
    programs = sorted(x.stem for x in folder.glob("*.json") if (folder / f"{x.stem}.h").exists())
    ends = [(x, end) for x in programs for _, end, _ in FORMS.values()]
    files = [f"{x}{end}" for x, end in ends if (folder / f"{x}{end}").exists()]
    calls_it = any(file.endswith(FORMS[ONEDNN.name][1]) for file in files)
    needed = "OFF" if all(f"{x}.c" in files for x in programs) else "ON"
    sources = [
        "glasshouse.c",
        "safetensors.c",
        "gh_runner.c",
        *["gh_onednn.c"] * calls_it,
        *files,
    ]
    text = (RUNTIME / "CMakeLists.txt.in").read_text()
    before, about_library, after = text.split("# --- oneDNN\n")
    text = before + about_library * calls_it + after
    names = {"@SOURCES@": " ".join(sources), "@OPTIONS@": OPTIONS, "@NEEDED@": needed}
    for word, value in names.items():
        text = text.replace(word, value)
    return text
