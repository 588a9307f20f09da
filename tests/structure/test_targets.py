"""Nothing outside a target's folder asks for one of its ways to compute by name."""

import ast
import functools
from pathlib import Path

import pytest
from tests.structure.syntax import nodes_of

import glasshouse as gh
from glasshouse.compile.building import toolchain
from glasshouse.compile.kernels.c_text import guarded
from glasshouse.targets.cpu.kernels import bf16x6

PACKAGE = Path(gh.__file__).parent
FLAGS = ("onednn", "winograd", "bf16x6", "amx", "few_bits")  # which base/flags.py has
GENERAL = ("kernel", "host")  # labels that mean more than a lowerer


@functools.cache
def names() -> set[str]:
    """Return the names of the CPU's lowerers: their labels and classes."""
    labels = {lowerer.label for lowerer in gh.targets.CPU.lowerers}
    return {*labels, *(type(lowerer).__name__ for lowerer in gh.targets.CPU.lowerers)} - {*GENERAL}


def asked_for(tree: ast.Module) -> set[str]:
    """The names of lowerers that occur in a source as strings, attributes or imports."""
    results = set()
    for node in nodes_of(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            results.add(node.value)
        elif isinstance(node, ast.Attribute):
            results.add(node.attr)
        elif isinstance(node, ast.ImportFrom):
            results.update(alias.name for alias in node.names)
            results.add((node.module or "").rpartition(".")[2])
    return results & names()


INSIDE = PACKAGE / "targets"
FILES = [path for path in sorted(PACKAGE.rglob("*.py")) if not path.is_relative_to(INSIDE)]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_lowerer_is_asked_for_by_name(modules, path):
    allowed = {*FLAGS} if path.name == "flags.py" else set()
    # A card's kernel text is made by a function called so.
    allowed |= {"template"} if "template(" in path.read_text() else set()
    assert asked_for(modules[path.relative_to(PACKAGE).as_posix()]) <= allowed


def test_the_check_finds_what_it_is_for():
    assert {"winograd", "onednn", "template", "ScatterKernels"} <= names()
    for text, name in (
        ('if step.kind == "winograd": pass', "winograd"),
        ("from glasshouse.targets.cpu import onednn", "onednn"),
        ("from glasshouse.targets.cpu import WindowKernels", "WindowKernels"),
        ("self.template", "template"),
    ):
        assert asked_for(ast.parse(text)) == {name}


def test_the_headers_of_kernels_can_be_in_one_file(tmp_path):
    """Kernels of one Program are compiled together."""
    folder = INSIDE / "cpu" / "headers"
    first = ["gh_vectors.h", "gh_threads.h", "gh_turn.h", "gh_transpose.h"]  # which others need
    others = sorted(path.name for path in folder.glob("gh_*.h") if path.name not in first)
    of_tiles = ("gh_tiles.h", "gh_bf16.h", "gh_bf16x6.h")
    others = [*(of_tiles if bf16x6.has_tiles() else ()), *(x for x in others if x not in of_tiles)]
    text = "".join(guarded((folder / name).read_text()) for name in [*first, *others])
    source = tmp_path / "all.c"
    source.write_text('#include "gh_kernel.h"\n' + text)
    command = [*toolchain.find_compiler(), *toolchain.OPTIONS, "-fsyntax-only", "-w"]
    done = toolchain.run([*command, f"-I{toolchain.NATIVE}", str(source)], 60)
    assert done.returncode == 0, done.stderr
