"""The table from ATen: its page is true, and each entry's name is an operator of PyTorch's."""

import runpy
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

TOOLS = Path(__file__).parents[3] / "tools"


def test_the_page_of_operators_is_made_from_the_table():
    made = runpy.run_path(str(TOOLS / "make_torch_docs.py"))
    assert made["PAGE"].read_text() == made["page"]()


def test_entries_are_operators():
    from glasshouse.torch.table import TABLE

    unknown = []
    for name in TABLE:
        packet, _, overload = name.partition(".")
        if name.startswith("prims."):
            continue
        found = getattr(torch.ops.aten, packet, None)
        if found is None or overload not in found.overloads():
            unknown.append(name)
    assert unknown == []
