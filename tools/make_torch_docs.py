"""Write docs/torch_operators.md: every operator of ATen's that has an entry, by family."""

import sys
from pathlib import Path

from glasshouse.torch import aten  # noqa: F401  (fills the table)
from glasshouse.torch.table import TABLE, WITHOUT_ENTRY

PAGE = Path(__file__).parents[1] / "docs" / "torch_operators.md"
HEAD = """\
# Operators of PyTorch with an entry

`torch.compile(model, backend="glasshouse")` computes these as compositions of cards. What is not
here is decomposed by PyTorch itself where it can be, and else computed by PyTorch, as a step of the
host. This page is made by `python tools/make_torch_docs.py`.
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
