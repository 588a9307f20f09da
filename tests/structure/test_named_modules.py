"""Tests, tools, benchmarks and examples name modules of ours that exist.

Slow tests run in turn and tools by hand, so a module that moved would be missed for days."""

import ast
import importlib
import types
import warnings
from pathlib import Path

import pytest
from tests.structure.syntax import nodes_of

ROOT = Path(__file__).parents[2]
FILES = [
    path.relative_to(ROOT).as_posix()
    for folder in ("tests", "tools", "benchmarks", "examples")
    for path in sorted((ROOT / folder).rglob("*.py"))
]


def imported_names(tree):
    """Of each name that an import of ours binds: the module, and the name taken from it or None."""
    for node in nodes_of(tree):
        if isinstance(node, ast.ImportFrom) and is_ours(node.module):
            for alias in node.names:
                yield alias.asname or alias.name, (node.module, alias.name)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if is_ours(alias.name):
                    name = alias.name if alias.asname else "glasshouse"
                    yield alias.asname or "glasshouse", (name, None)


def is_ours(module):
    return (module or "").split(".")[0] == "glasshouse"


def rebound_names(tree):
    """Names that assignments or parameters bind too: an attribute may belong to either value."""
    stores = (
        n.id for n in nodes_of(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    )
    return {*stores, *(n.arg for n in nodes_of(tree) if isinstance(n, ast.arg))}


def attribute_chain(node):
    """The name that a chain of attributes starts from, and the attributes."""
    attributes = []
    while isinstance(node, ast.Attribute):
        attributes.append(node.attr)
        node = node.value
    return (node.id if isinstance(node, ast.Name) else None), attributes[::-1]


def load(module, name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded = importlib.import_module(module)
    return loaded if name is None or name == "*" else member(loaded, name)


def member(owner, name):
    """An attribute of a module, or its submodule that nothing has loaded yet."""
    try:
        return getattr(owner, name)
    except AttributeError:
        return importlib.import_module(f"{owner.__name__}.{name}")


def missing_names(source):
    """Line and name of each attribute of our modules in a source that does not exist."""
    tree = ast.parse(source)
    targets, rebound, loaded = {}, rebound_names(tree), {}
    for bound, target in imported_names(tree):
        targets.setdefault(bound, set()).add(target)
    for bound, (module, name) in ((b, t) for b, result in targets.items() for t in result):
        try:
            value = load(module, name)
        except ModuleNotFoundError as error:
            if is_ours(error.name):
                yield 0, f"{module}.{name}"
            continue  # an optional package that is not installed
        if bound not in rebound and len(targets[bound]) == 1:
            loaded[bound] = value
    for node in nodes_of(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            start, attributes = attribute_chain(node)
            value = loaded.get(start)
            for attribute in attributes:
                if not isinstance(value, types.ModuleType):
                    break
                try:
                    value = member(value, attribute)
                except ModuleNotFoundError as error:
                    if is_ours(error.name):
                        yield node.lineno, f"{value.__name__}.{attribute}"
                    break


@pytest.mark.parametrize("file", FILES)
def test_modules_have_what_is_read_of_them(file):
    assert list(missing_names((ROOT / file).read_text())) == []


@pytest.mark.parametrize(
    ("source", "missing"),
    [
        ("import glasshouse as gh\ngh.compile.program.programs", "glasshouse.compile.program"),
        ("def f():\n    from glasshouse.compile import nothing", "glasshouse.compile.nothing"),
        ("import glasshouse.nowhere as n", "glasshouse.nowhere.None"),
        ("from glasshouse import memory\ndef f(memory): return memory.tensors", None),
        ("import glasshouse as gh\ngh.compile.programs.program.programs.clear()", None),
    ],
)
def test_a_name_that_moved_is_found(source, missing):
    assert {name for _, name in missing_names(source)} == {missing} - {None}
