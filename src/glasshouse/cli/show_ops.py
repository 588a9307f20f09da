"""`glasshouse ops`: the primitive cards as a table, one field of all of them, or one card whole."""

from typing import Any

import numpy as np
from rich.console import Console
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Column, Table
from rich.text import Text

import glasshouse.backends.lazy  # noqa: F401  sets the target that cards are computed on
from glasshouse.base import Spec, as_dtype, check_known, from_numpy_dtype
from glasshouse.cli.source import source_text
from glasshouse.compile.lowering.missing_kernels import computed_by
from glasshouse.dispatch import DTYPE_GROUPS, LINEAR, Arr, Primitive, Sample, primitives

TEXT_FIELDS = ("doc", "why", "source", "kind", "dtypes", "traits", "num_outputs")
CODE_FIELDS = ("infer", "ref", "vjp", "jvp", "batch", "flops", "bytes")
SAMPLE_FIELDS = ("samples", "error_samples")
PYTHON = Syntax("", "python", theme="ansi_dark", background_color="default")
KERNEL_FIELDS = ("kernel", "composition")
FIELDS = (*TEXT_FIELDS, *KERNEL_FIELDS, *CODE_FIELDS, *SAMPLE_FIELDS)


def families() -> dict[str, list[Primitive]]:
    cards_of_kind: dict[str, list[Primitive]] = {}
    for card in primitives.values():
        cards_of_kind.setdefault(card.kind, []).append(card)
    return cards_of_kind


def show_table(console: Console) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False, header_style="dim")
    for column in ("card", "what it computes", "vjp", "jvp", "dtypes"):
        table.add_column(column, no_wrap=column != "what it computes")
    for kind, cards in families().items():
        table.add_row()
        table.add_row(Text(kind, "bold cyan"), Text(f"{len(cards)} cards", "dim"))
        for card in cards:
            table.add_row(card.name, card.doc, mark(card.vjp), mark(card.jvp), dtype_group(card))
    console.print(table)
    console.print(
        f"\n{len(primitives)} cards. [dim]One whole:[/] glasshouse ops conv   "
        "[dim]One field of all:[/] glasshouse ops --field vjp"
    )


def mark(rule: Any) -> str:
    if rule is None or (isinstance(rule, tuple) and not any(rule)):
        return "[dim]·[/]"
    linear = rule == LINEAR or (isinstance(rule, tuple) and set(rule) <= {LINEAR, None})
    return "lin" if linear else "yes"


def dtype_group(card: Primitive) -> str:
    for name, group in DTYPE_GROUPS.items():
        if group == card.dtypes:
            return name
    return " ".join(dtype.name for dtype in card.dtypes)


def show_field(console: Console, field: str) -> None:
    check_known("ops", "the name of a field", field, FIELDS)
    for kind, cards in families().items():
        console.print(f"\n[bold cyan]{kind}[/]")
        for card in cards:
            show_entry(console, Text(card.name, "bold"), field, card)


def show_card(console: Console, card: Primitive) -> None:
    console.print(f"[bold cyan]{card.name}[/]  [dim]{card.kind}[/]")
    for field in FIELDS:
        if field != "kind":
            show_entry(console, Text(field, "bold"), field, card)


def show_entry(console: Console, label: Text, field: str, card: Primitive) -> None:
    """Print a label and a field's content: beside it if it is one line of text, else below it."""
    lines = describe(field, card)
    if field in (*TEXT_FIELDS, *KERNEL_FIELDS) and len(lines) < 2 or field == "kernel":
        table = Table(Column(width=18), "", box=None, show_header=False, padding=(0, 2, 0, 0))
        table.add_row(label, Text("\n".join(lines)))
        console.print(Padding(table, (0, 0, 0, 2)))
        return
    console.print(Text("  ") + label)
    for line in PYTHON.highlight("\n".join(lines)).split("\n"):
        console.print(Text("      ") + line, soft_wrap=True)


def describe(field: str, card: Primitive) -> list[str]:
    value = getattr(card, field)
    if field == "dtypes":
        return [dtype_group(card)]
    if field == "traits":
        return [", ".join(sorted(value)) or "none"]
    if field == "samples":
        return [sample_text(card, sample) for sample in value] or ["none"]
    if field == "error_samples":
        lines = [f"{call_text(card, s)}  # {s.error.__name__}: … {s.text} …" for s in value]
        return lines or ["none"]
    if field == "kernel":
        return [f"computed by {computed_by(card)}", *(card.kernel.lines() if card.kernel else [])]
    if field == "composition":
        return ["none"] if value is None else source_text(value).splitlines()
    if field in ("vjp", "jvp"):
        return rule_lines(value)
    return (source_text(value) if field in CODE_FIELDS else str(value)).splitlines()


def rule_lines(rules: Any) -> list[str]:
    if not isinstance(rules, tuple):
        return source_text(rules).splitlines()
    texts = [source_text(rule) for rule in rules]
    if len(set(texts)) == 1:
        return texts[0].splitlines()
    return [line for i, text in enumerate(texts) for line in f"# operand {i}\n{text}".splitlines()]


def operand_spec(card: Primitive, operand: Arr) -> Spec:
    if not isinstance(operand, Arr):
        array = np.asarray(operand)
        return Spec(array.shape, from_numpy_dtype(array.dtype))
    names = [dtype.name for dtype in card.dtypes]
    main = "float32" if "float32" in names else names[0]
    return Spec(operand.shape, as_dtype(operand.dtype or main))


def call_text(card: Primitive, sample: Sample) -> str:
    """A sample as the call that it stands for: `sum(float32[2,3], axes=(0,))`."""
    specs = [operand_spec(card, operand) for operand in sample.args]
    operands = [f"{spec.dtype.name}[{','.join(map(str, spec.shape))}]" for spec in specs]
    attrs = [f"{name}={value!r}" for name, value in sample.attrs.items()]
    return f"{card.name}({', '.join(operands + attrs)})"


def sample_text(card: Primitive, sample: Sample) -> str:
    specs = [operand_spec(card, operand) for operand in sample.args]
    out = card.infer(*specs, **sample.attrs)
    shapes = ", ".join(str(spec.shape) for spec in (out if isinstance(out, tuple) else (out,)))
    flops, moved = card.flops(*specs, **sample.attrs), card.bytes(*specs, **sample.attrs)
    return f"{call_text(card, sample)} -> {shapes}  # {flops} FLOPs, {moved} bytes"
