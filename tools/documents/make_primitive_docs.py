"""Write docs/reference/primitives.md from the cards; with --check, say whether it is up to date."""

import inspect
import sys
from itertools import groupby
from pathlib import Path

import numpy as np

import glasshouse.backends.lazy
import glasshouse.ops  # noqa: F401  fills the registry
from glasshouse.base.dtype import as_dtype
from glasshouse.base.shape import Spec
from glasshouse.compile.lowering.missing_kernels import computed_by
from glasshouse.dispatch import LINEAR, primitives
from glasshouse.dispatch.primitive import DTYPE_GROUPS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "primitives.md"
INTRO = """# Primitives

{count} operations; everything else in Glasshouse is composed of them. This page is made from their
cards by `python tools/documents/make_primitive_docs.py`. Operands of a card have equal shapes and
dtypes where that applies: operators and array functions broadcast and promote before they bind a
card.

The column "derivative": "yes" if the card has rules to pull cotangents back (vjp) and to push
tangents forward (jvp); "linear" if the latter is the primitive itself, applied with one operand
replaced by its tangent; "none" if there is no derivative. Below a table stand the calls, operands
before the semicolon and static attributes after it. Dtype groups: numeric = all but bool, real =
integers and floats, inexact = floats and complex, linalg = the inexact of 32 bits and more per
part, ordered = all but complex, bitwise = booleans and integers. FLOPs are those of one sample, a
multiply-add being 2. "Computed by" says what computes a call in Programs on the default backend, of
real numbers and where that has a way for its dtype; the rest the host computes by the card's
reference. A kernel text is the C of one element; its cost is in cycles for a vector of results, an
addition being 1 ([Add a primitive](../how_to/write_a_primitive.md)).
"""


def dtype_group(card) -> str:
    """The name of the card's set of dtypes, or all of their names."""
    named = next((n for n, d in DTYPE_GROUPS.items() if d == card.dtypes), None)
    return named or ", ".join(d.name for d in card.dtypes)


def derivatives(card) -> str:
    """Return the derivatives of a card, in a word."""
    if card.vjp is None:
        return "none"
    rules = card.jvp if isinstance(card.jvp, tuple) else (card.jvp,)
    return "linear" if all(rule == LINEAR for rule in rules) else "yes"


def operands(card) -> str:
    """The card's call, as `name(x, y; axis)`: operands before the semicolon, attrs after it."""
    attrs = list(card.samples[0].attrs)
    parameters = inspect.signature(card.infer).parameters.values()
    names = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    if callable(card.vjp):
        names = ["*xs"]
    elif any(p.kind is p.VAR_POSITIONAL for p in parameters):
        names = list("xyz"[: len(card.samples[0].args)])
    return f"{card.name}({', '.join(names)}{'; ' if attrs else ''}{', '.join(attrs)})"


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


def kernel(card) -> str:
    """Say how Programs compute the card, with its kernel text."""
    by = f"computed by {computed_by(card)}"
    if card.kernel is None:
        return by
    *texts, effort = card.kernel.lines()
    shown = ", ".join(f"`{text.partition('  ')[0]}`" for text in texts if "{" in text)
    return f"{by}{' ' * bool(shown)}{shown}, {effort}"


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
                f"\n`{operands(card)}`: dtypes {dtype_group(card)}; {cost(card)}; "
                f"{kernel(card)}; source: {card.source}.\n"
            )
    return "".join(parts)


def main() -> int:
    """Write the page, or compare it: 1 if it differs."""
    if "--check" in sys.argv[1:]:
        same = PAGE.exists() and PAGE.read_text() == page()
        print(
            "docs/reference/primitives.md is up to date"
            if same
            else "docs/reference/primitives.md: run this tool"
        )
        return not same
    PAGE.write_text(page())
    print(f"wrote {PAGE.name}: {len(primitives)} cards")
    return 0


if __name__ == "__main__":
    sys.exit(main())
