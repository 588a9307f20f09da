"""The sources of the package, for the tests that read them."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "glasshouse"
SOURCES = sorted(p for p in PACKAGE.rglob("*") if p.suffix in (".py", ".c", ".h"))


@pytest.fixture(scope="session")
def modules() -> dict[str, ast.Module]:
    """The parsed Python files of the package by path; only a process that asks for them parses."""
    paths = sorted(PACKAGE.rglob("*.py"))
    return {path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text()) for path in paths}
