"""Write docs/reference/torch_operators.md: ATen's operators that have an entry, by family."""

import sys
from pathlib import Path

from glasshouse.torch import aten  # noqa: F401  (fills the table)
from glasshouse.torch.aten.table import TABLE, WITHOUT_ENTRY

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "torch_operators.md"
HEAD = """\
# Operators of PyTorch with an entry

`torch.compile(model, backend="glasshouse")` computes these as compositions of cards. What is not
here is decomposed by PyTorch itself where it can be, and else computed by PyTorch, as a step of the
host. This page is made by `python tools/documents/make_torch_docs.py`.

An entry that has an array function of the same name calls it, so both agree at the ends of each
dtype (`tests/unit/torch/test_twins.py`). Max pooling takes integers; running sums and products
are carried in float64. `torch.cond`, `while_loop`, `scan`, `map`, `flex_attention`, regions of
`nested_compile_region` and checkpoints, also with dropout, are compiled: branches and bodies of
loops are Programs of their own (`torch/aten/higher_order.py`). Results may be resized as eager's
(`resize_`, `out=`, `untyped_storage().resize_()`). An index from an axis without elements is
eager's error.

A graph that writes to its inputs and raises leaves the call to PyTorch, which writes what it
writes and raises what it raises. If PyTorch raises nothing, the error is a fault of ours: one
warning names it, and `GH_STRICT=1` or `options={"strict": True}` raises it.
"""


def page() -> str:
    """The text of the page."""
    families: dict[str, list[str]] = {}
    for name, entry in TABLE.items():
        family = entry.compute.__module__.rpartition(".")[2]
        families.setdefault(family, []).append(name.removesuffix(".default"))
    parts = [HEAD]
    for family, names in sorted(families.items()):
        doc = sys.modules[f"glasshouse.torch.aten.{family}"].__doc__.partition("\n")[0]
        listed = ", ".join(f"`{name}`" for name in sorted(names))
        parts.append(f"\n## {family} ({len(names)})\n\n{doc}\n\n{listed}\n")
    parts.append(f"\nIn all {len(TABLE)} operators.\n")
    parts.append("\n## Core ATen operators without an entry\n\n| operator | why |\n| --- | --- |\n")
    parts += [
        f"| `{name.removesuffix('.default')}` | {why} |\n"
        for name, why in sorted(WITHOUT_ENTRY.items())
    ]
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
    print(PAGE)
