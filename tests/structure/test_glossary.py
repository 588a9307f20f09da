"""The glossary of docs/inside/architecture.md names what is there; retired names stay away."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest
from tests.structure.conftest import PACKAGE, SOURCES
from tests.structure.syntax import nodes_of

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "inside" / "architecture.md").read_text()
GLOSSARY = PAGE.partition("## Glossary\n")[2].partition("\n## ")[0]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in GLOSSARY.splitlines()
    if line.startswith("| ") and not line.startswith(("| term", "| ---"))
]
CLASSES = [name for row in ROWS for name in re.findall(r"`(\w+)`", row[1])]
RETIRED = re.findall(r"`(\w+)`", GLOSSARY.partition("Retired: ")[2])


def test_each_class_of_the_glossary_is_defined_once(modules):
    nodes = (node for tree in modules.values() for node in nodes_of(tree))
    defined = Counter(node.name for node in nodes if isinstance(node, ast.ClassDef))
    assert len(CLASSES) > 20
    assert {name: defined[name] for name in CLASSES} == dict.fromkeys(CLASSES, 1)


def test_each_term_is_told_in_one_sentence():
    assert len({row[0] for row in ROWS}) == len(ROWS) > 20
    for term, _, meaning in ROWS:
        assert meaning.endswith(".") and ". " not in meaning, (term, meaning)


@pytest.fixture(scope="module")
def words():
    """All words of each source."""
    return {
        str(path.relative_to(PACKAGE)): {*re.findall(r"\w+", path.read_text())} for path in SOURCES
    }


@pytest.mark.parametrize("word", RETIRED)
def test_retired_names_occur_nowhere_in_the_sources(words, word):
    assert [path for path, own in words.items() if word in own] == []


CATCH_ALLS = {"found", "known", "seen", "settle", "again"}  # they say that there is something


def bound_names(tree: ast.AST):
    """(name, line) of all that a module binds: functions, classes, parameters, variables."""
    for node in nodes_of(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.ExceptHandler) and node.name:
            yield node.name, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr, node.lineno


def test_nothing_has_a_catch_all_word_for_its_name(modules):
    caught = [
        f"{file}:{line}: {name}"
        for file, tree in modules.items()
        for name, line in bound_names(tree)
        if name in CATCH_ALLS
    ]
    assert caught == []


def test_some_names_are_retired():
    assert {"door", "Lazy"} <= set(RETIRED)
