"""Nothing outside a target's folder asks for one of its ways to compute by name."""

import ast
from pathlib import Path

import pytest

import glasshouse as gh

PACKAGE = Path(gh.__file__).parent
FLAGS = ("onednn", "winograd")  # which base/flags.py has
GENERAL = ("kernel", "host")  # labels that mean more than a lowerer


def names() -> set[str]:
    """What the lowerers of the CPU are called: their labels and classes."""
    labels = {lowerer.label for lowerer in gh.targets.CPU.lowerers}
    return {*labels, *(type(lowerer).__name__ for lowerer in gh.targets.CPU.lowerers)} - {*GENERAL}


def asked_for(text: str) -> set[str]:
    """The names of lowerers that occur in a source as strings, attributes or imports."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.ImportFrom):
            found.update(alias.name for alias in node.names)
            found.add((node.module or "").rpartition(".")[2])
    return found & names()


INSIDE = PACKAGE / "targets"
FILES = [path for path in sorted(PACKAGE.rglob("*.py")) if not path.is_relative_to(INSIDE)]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_lowerer_is_asked_for_by_name(path):
    allowed = {*FLAGS} if path.name == "flags.py" else set()
    # A card's kernel text is made by a function called so.
    allowed |= {"template"} if "template(" in path.read_text() else set()
    assert asked_for(path.read_text()) <= allowed


def test_the_check_finds_what_it_is_for():
    assert {"winograd", "onednn", "template", "ScatterKernels"} <= names()
    assert asked_for('if step.kind == "winograd": pass') == {"winograd"}
    assert asked_for("from glasshouse.targets.cpu import onednn") == {"onednn"}
    assert asked_for("from glasshouse.targets.cpu import WindowKernels") == {"WindowKernels"}
    assert asked_for("self.template") == {"template"}
