"""Words that sources avoid (CONTRIBUTING, "Words")."""

import ast
import re

from tests.structure.conftest import PACKAGE, SOURCES
from tests.structure.syntax import nodes_of

ROOT = PACKAGE.parents[1]

DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
BESIDE = (
    "tests",
    "tools",
    "benchmarks",
    "examples",
    "docs",
)  # folders of Python beside the package
PARTICIPLES = {"drawn", "found", "given", "known", "made", "seen", "told"}
TRANSLATED = {"behind": "after, below or through", "anew": "again"}


def test_docstrings_begin_with_a_verb_or_a_noun(modules):
    begun = [
        f"{file}:{getattr(node, 'lineno', 1)}: {text[:60]}"
        for file, tree in modules.items()
        for node in nodes_of(tree)
        if isinstance(node, DOCUMENTED)
        and (text := ast.get_docstring(node) or "").startswith(("What ", "Whatever "))
    ]
    assert begun == [], "Name the thing, or say what the function does."


def test_docstrings_beside_the_package_begin_so_too():
    begun = re.compile(r'^[ \t]*r?"""(What|Whatever) .*$', re.M)
    texts = [
        f"{path.relative_to(ROOT)}: {match[0].strip()}"
        for folder in BESIDE
        for path in sorted((ROOT / folder).rglob("*.py"))
        for match in begun.finditer(path.read_text())
    ]
    assert texts == []


def test_no_variable_or_parameter_is_named_by_a_bare_participle(modules):
    names = [f"{file}:{use}" for file, tree in modules.items() for use in participles_in(tree)]
    assert names == [], "Name the thing: inputs, results, saved values."


def test_names_beside_the_package_are_nouns_too():
    one_of_them = re.compile(rf"\b({'|'.join(PARTICIPLES)})\b")
    names = [
        f"{path.relative_to(ROOT)}:{use}"
        for folder in BESIDE
        for path in sorted((ROOT / folder).rglob("*.py"))
        if one_of_them.search(text := path.read_text())
        for use in participles_in(ast.parse(text))
    ]
    assert names == [], "Name the thing: inputs, results, saved values."


def participles_in(tree: ast.Module) -> list[str]:
    """Return "line: name" of each variable and parameter that a bare participle names."""
    named = ((node, name_bound_by(node)) for node in nodes_of(tree))
    return [f"{node.lineno}: {name}" for node, name in named if name in PARTICIPLES]


def name_bound_by(node: ast.AST) -> str:
    """Return the name of the variable or parameter that a node binds, or an empty text."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    return node.arg if isinstance(node, ast.arg) else ""


def test_translated_words_are_in_no_source():
    words = re.compile(rf"\b({'|'.join(TRANSLATED)})\b")
    uses = [
        f"{path.relative_to(PACKAGE)}:{number}: {match[0]}: write {TRANSLATED[match[0]]}"
        for path in SOURCES
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if (match := words.search(line))
    ]
    assert uses == []
