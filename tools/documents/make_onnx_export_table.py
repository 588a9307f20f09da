"""Make docs/reference/onnx_export.md: which layers of nn and which models `gh.onnx.export` writes,
with what operators, and how near onnxruntime's results are.

    PYTHONPATH=src python tools/documents/make_onnx_export_table.py    # needs onnxruntime"""

import runpy
import tempfile
from collections import Counter
from pathlib import Path

import onnx
import onnxruntime

from glasshouse.onnx.writing.table import ABSENT

ROOT = Path(__file__).parents[2]
TOOL = runpy.run_path(str(ROOT / "tools" / "judges" / "onnx_export_cases.py"))
PAGE = ROOT / "docs" / "reference" / "onnx_export.md"
MOST_NAMED = 5  # operators of a row
NEAR = 1e-5
TITLES = {
    "nn": "Layers of nn",
    "quantised": "Layers and networks of 8 bits",
    "vision": "Models of vision",
    "speech": "Models of speech, and features of sound",
    "text": "Models of text",
}
HEAD = """# What is exported to ONNX

Made by `tools/documents/make_onnx_export_table.py`, with onnx {onnx} and onnxruntime {runtime}.
Each row was exported with sizes that vary (a batch; for sequences and some images a length, a
height and a width), passed ONNX's full check, and was run by onnxruntime and by our importer at the
examples' sizes and at others (`tools/judges/onnx_export_cases.py`). The last column is the larger
distance of both from our own results, as a part of the largest number. Models have random weights,
and are as small as their classes allow.

{near} of {all} rows are within 1e-5.

Primitives that ONNX has no operators for: {absent}.
"""


def row(case, folder: Path) -> tuple[str, bool]:
    """A line of the table, and whether all results are near."""
    result = TOOL["outcome"](case, folder)
    if result.refusal:
        return f"| `{case.name}` | refused | | {result.refusal} |", False
    counts = Counter(result.operators).most_common()
    named = [f"{op} {n}" if n > 1 else op for op, n in counts[:MOST_NAMED]]
    rest = [f"and {len(counts) - MOST_NAMED} more"] if len(counts) > MOST_NAMED else []
    worst = max(result.runtime, result.importer)
    shown = f"{worst:.0e}" if worst else "0"
    text = ", ".join(named + rest)
    return f"| `{case.name}` | {len(result.operators)} | {text} | {shown} |", worst <= NEAR


def main() -> None:
    parts, near = [], []
    for family, cases in TOOL["FAMILIES"].items():
        lines = [f"\n## {TITLES[family]}\n", "| name | nodes | operators | distance |",
                 "| --- | --- | --- | --- |"]  # fmt: skip
        for case in cases():
            with tempfile.TemporaryDirectory() as folder:
                line, is_near = row(case, Path(folder))
            lines.append(line)
            near.append(is_near)
        parts.append("\n".join(lines))
    head = HEAD.format(
        onnx=onnx.__version__,
        runtime=onnxruntime.__version__,
        near=sum(near),
        all=len(near),
        absent=", ".join(f"`{name}`" for name in sorted(ABSENT)),
    )
    PAGE.write_text(head + "\n".join(parts) + "\n")
    print(f"{PAGE}: {sum(near)} of {len(near)} near")


if __name__ == "__main__":
    main()
