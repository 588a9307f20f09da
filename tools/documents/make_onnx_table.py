"""Make docs/reference/onnx_operators.md: ONNX's operators, since which opset we compose each, and
how many of the tests that ONNX has for it pass.

    PYTHONPATH=src python tools/documents/make_onnx_table.py    # needs pip install 'onnx>=1.23'"""

import runpy
from collections import defaultdict
from pathlib import Path

import onnx

import glasshouse as gh
from glasshouse.onnx.table import OPERATORS

ROOT = Path(__file__).parents[2]
TOOL = runpy.run_path(str(ROOT / "tools" / "judges" / "onnx_node_tests.py"))
PAGE = ROOT / "docs" / "reference" / "onnx_operators.md"
HEAD = """# ONNX's operators

Made by `tools/documents/make_onnx_table.py`, with onnx {version}. An operator is composed by a
function of `glasshouse/onnx/operators`, in the file that its row names, with versions where its
meaning changed; or by ONNX's own definition of it by others. The last columns count the tests that
ONNX makes for the operator (`tools/judges/onnx_node_tests.py`): those that pass, and those that
need strings, float8 or numbers of 2 and 4 bits, which are not computed here.

{passed} of {all} tests without these pass ({share:.1%}); {listed} are of these kinds.

| operator | composed in | from opset | tests passed | not computed |
| --- | --- | --- | --- | --- |
"""


def rows() -> tuple[list[str], dict[str, int]]:
    """Lines of the table, and the sums."""
    counts: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    sums = {"passed": 0, "all": 0, "listed": 0}
    for case in TOOL["cases"]():
        node = case.model.graph.node[0]
        key = node.domain, node.op_type
        is_listed = bool(TOOL["listed"](case))
        is_passed = not is_listed and not TOOL["fault"](case)
        sums["listed"] += is_listed
        sums["all"] += not is_listed
        sums["passed"] += is_passed
        if "_expanded" not in case.name:
            own = counts[key]
            own[0], own[1], own[2] = (
                own[0] + is_passed,
                own[1] + (not is_listed),
                own[2] + is_listed,
            )
    lines = []
    first: dict[tuple[str, str], int] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        key = schema.domain, schema.name
        first[key] = min(schema.since_version, first.get(key, schema.since_version))
    schemas = {(s.domain, s.name): s for s in onnx.defs.get_all_schemas() if not s.deprecated}
    for key in sorted({*schemas, *OPERATORS} - {("", "Constant")}):
        domain, name = key
        schema = schemas.get(key)
        entries = OPERATORS.get(key, ())
        defined = schema and (schema.has_function or schema.has_context_dependent_function)
        if not entries and not defined:
            continue
        place = "ONNX's definition"
        if entries:
            place = f"`{entries[0].function.__module__.rpartition('.')[2]}`"
        least = first.get(key, 1) if domain else max(first.get(key, 1), 7)
        sinces = [max(e.since, least) for e in reversed(entries)] or [least]
        versions = ", ".join(map(str, dict.fromkeys(sinces)))
        own = counts[key]
        shown = f"{own[0]} of {own[1]}" if own[1] else "none"
        label = f"{domain}:{name}".lstrip(":")
        lines.append(f"| `{label}` | {place} | {versions} | {shown} | {own[2] or ''} |")
    return lines, sums


def main() -> None:
    lines, sums = rows()
    share = sums["passed"] / sums["all"]
    head = HEAD.format(version=onnx.__version__, share=share, **sums)
    PAGE.write_text(head + "\n".join(lines) + "\n")
    print(f"{PAGE}: {len(lines)} operators, {gh.__version__}")


if __name__ == "__main__":
    main()
