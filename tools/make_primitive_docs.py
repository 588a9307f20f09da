"""Write docs/primitives.md from the cards; with --check, say whether it is up to date."""

import sys
from itertools import groupby
from pathlib import Path

import numpy as np

import glasshouse.ops  # noqa: F401  fills the registry
from glasshouse.base.dtype import as_dtype
from glasshouse.base.shape import Spec
from glasshouse.dispatch import LINEAR, primitives
from glasshouse.dispatch.primitive import DTYPE_GROUPS

PAGE = Path(__file__).parent.parent / "docs" / "primitives.md"
INTRO = """# Primitives

{count} operations; everything else in Glasshouse is composed of them. This page is made from their
cards by `python tools/make_primitive_docs.py`. Operands of a card have equal shapes and dtypes
where that applies: operators and array functions broadcast and promote before they bind a card.

`vjp` and `jvp`: whether the card has a derivative to pull back and push forward ("linear": the
primitive applied to the tangent). Dtype groups: real = integers and floats, inexact = floats and
complex, ordered = all but complex, bitwise = booleans and integers.
"""


def dtype_group(card) -> str:
    """The name of the card's set of dtypes."""
    return next((n for n, d in DTYPE_GROUPS.items() if d == card.dtypes), "own")


def derivatives(card) -> str:
    """What derivatives the card has, in a word."""
    if card.vjp is None:
        return "none"
    return "linear" if card.jvp == LINEAR else "yes"


def cost(card) -> str:
    """FLOPs of the first sample that computes something, as an example."""
    for sample in card.samples:
        dtype = next((d for d in card.dtypes if d.name == "float32"), card.dtypes[0])
        arrays = sample.fill(np.random.default_rng(0), dtype.name)
        specs = [Spec(a.shape, as_dtype(a.dtype)) for a in arrays]
        if all(spec.size for spec in specs):
            flops = card.flops(*specs, **sample.attrs)
            shapes = ", ".join(str(spec.shape) for spec in specs) or "no operand"
            return f"{flops} FLOPs for {shapes}"
    return "0 FLOPs"


def attrs(card) -> str:
    """The names of the card's static attributes."""
    return ", ".join(f"`{name}`" for name in card.samples[0].attrs) or "none"


def page() -> str:
    """The whole document."""
    parts = [INTRO.format(count=len(primitives))]
    cards = sorted(primitives.values(), key=lambda c: c.kind)
    for kind, group in groupby(cards, key=lambda c: c.kind):
        group = list(group)
        parts.append(f"\n## {kind}\n\n| card | meaning | why it is no composite | derivative |")
        parts.append("\n| --- | --- | --- | --- |")
        for card in group:
            doc, why = card.doc.replace("|", "\\|"), card.why.replace("|", "\\|")
            parts.append(f"\n| `{card.name}` | {doc} | {why} | {derivatives(card)} |")
        parts.append("\n")
        for card in group:
            parts.append(
                f"\n**`{card.name}`**: attrs {attrs(card)}; dtypes {dtype_group(card)}; "
                f"{cost(card)}; source: {card.source}.\n"
            )
    return "".join(parts)


def main() -> int:
    """Write the page, or compare it: 1 if it differs."""
    if "--check" in sys.argv[1:]:
        same = PAGE.exists() and PAGE.read_text() == page()
        print("docs/primitives.md is up to date" if same else "docs/primitives.md: run this tool")
        return not same
    PAGE.write_text(page())
    print(f"wrote {PAGE.name}: {len(primitives)} cards")
    return 0


if __name__ == "__main__":
    sys.exit(main())
