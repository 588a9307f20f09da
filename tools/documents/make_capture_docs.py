"""Write the table of docs/inside/capture.md: captured Python, counted from the tests' cases.

Each function under `@case` in tests/unit/capture/test_language_*.py is compared with plain Python;
`whole=True` says that it is one graph, and PARTIAL in checking.py that it is taken in pieces.
"""

import ast
import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests" / "unit" / "capture"
PAGE = ROOT / "docs" / "inside" / "capture.md"
BEGIN, END = "<!-- made by tools/documents/make_capture_docs.py -->", "<!-- end -->"
TITLE = re.compile(r"# -- (.+?) -+$")


class TestedFunction(NamedTuple):
    """A function that is compared under capture: its section of the tests; whether it is known to
    be one graph."""

    name: str
    section: str
    whole: bool


def partial_names() -> set[str]:
    """The names in PARTIAL of checking.py."""
    for node in ast.parse((TESTS / "checking.py").read_text()).body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "PARTIAL":
            return set(next(x.value for x in ast.walk(node) if isinstance(x, ast.Constant)).split())
    raise LookupError("PARTIAL")


def tested_functions(path: Path) -> list[TestedFunction]:
    """The functions under `@case` of a file of tests, in order."""
    text = path.read_text()
    titles = {i + 1: m[1] for i, line in enumerate(text.splitlines()) if (m := TITLE.match(line))}
    results = []
    for node in ast.parse(text).body:
        cases = [d for d in getattr(node, "decorator_list", ()) if is_case(d)]
        if not cases:
            continue
        section = next((titles[at] for at in sorted(titles, reverse=True) if at < node.lineno), "")
        whole = any(k.arg == "whole" for d in cases for k in d.keywords)
        results.append(TestedFunction(node.name, section, whole))
    return results


def is_case(decorator: ast.expr) -> bool:
    called = isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Name)
    return called and decorator.func.id == "case"


def table() -> str:
    """The table, a row for each section of the tests."""
    partial = partial_names()
    lines = ["| what | functions | in one graph | in pieces, or captured again in each call |"]
    lines.append("| --- | ---: | ---: | --- |")
    totals = [0, 0, 0]
    for path in sorted(TESTS.glob("test_language_*.py")):
        functions = tested_functions(path)
        for section in dict.fromkeys(f.section for f in functions):
            mine = [f for f in functions if f.section == section]
            pieces = sorted({f.name for f in mine} & partial)
            whole = sum(f.whole and f.name not in partial for f in mine)
            title = section or path.stem.removeprefix("test_language_")
            listed = ", ".join(f"`{name}`" for name in pieces)
            lines.append(f"| {title} | {len(mine)} | {whole} | {listed} |")
            totals = [a + b for a, b in zip(totals, (len(mine), whole, len(pieces)), strict=True)]
    lines.append("| in all | {} | {} | {} |".format(*totals))
    return "\n".join(lines)


def page() -> str:
    """The document with the table as it is now."""
    head, _, rest = PAGE.read_text().partition(BEGIN)
    return f"{head}{BEGIN}\n\n{table()}\n\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page())
    print(PAGE)
