"""Words that sources avoid (CONTRIBUTING, "Words")."""

import ast
import re

from tests.structure.conftest import PACKAGE, SOURCES

DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
TRANSLATED = {"behind": "after, below or through", "anew": "again"}


def test_docstrings_begin_with_a_verb_or_a_noun(modules):
    begun = [
        f"{file}:{getattr(node, 'lineno', 1)}: {text[:60]}"
        for file, tree in modules.items()
        for node in ast.walk(tree)
        if isinstance(node, DOCUMENTED)
        and (text := ast.get_docstring(node) or "").startswith(("What ", "Whatever "))
    ]
    assert begun == [], "Name the thing, or say what the function does."


def test_translated_words_are_in_no_source():
    words = re.compile(rf"\b({'|'.join(TRANSLATED)})\b")
    uses = [
        f"{path.relative_to(PACKAGE)}:{number}: {match[0]}: write {TRANSLATED[match[0]]}"
        for path in SOURCES
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if (match := words.search(line))
    ]
    assert uses == []
