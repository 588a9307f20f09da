"""The table from ATen: its page is true, and each entry's name is an operator of PyTorch's."""

import runpy
from pathlib import Path

import pytest

pytestmark = pytest.mark.quick

torch = pytest.importorskip("torch")

TOOLS = Path(__file__).parents[3] / "tools" / "documents"


def test_the_page_of_operators_is_made_from_the_table():
    tool = runpy.run_path(str(TOOLS / "make_torch_docs.py"))
    assert tool["PAGE"].read_text() == tool["page"]()


def test_entries_are_operators():
    from glasshouse.torch.aten import recurrent_operators as recurrent  # noqa: F401  (registers the operators of ours)
    from glasshouse.torch.aten.table import TABLE

    unknown = []
    for name in TABLE:
        if name.startswith("prims."):
            continue
        if name.startswith("glasshouse."):
            packet, overload = name.removeprefix("glasshouse."), "default"
            result = getattr(torch.ops.glasshouse, packet, None)
        else:
            packet, _, overload = name.partition(".")
            result = getattr(torch.ops.aten, packet, None)
        if result is None or overload not in result.overloads():
            unknown.append(name)
    assert unknown == []


def test_the_core_operators_have_entries_or_a_reason():
    from glasshouse.torch import aten  # noqa: F401
    from glasshouse.torch.aten.table import TABLE, WITHOUT_ENTRY, core_operators, name_of

    names = {name_of(op) for op in core_operators()}
    assert len(names) > 150
    assert names - set(TABLE) - set(WITHOUT_ENTRY) == set()
    assert set(WITHOUT_ENTRY) & set(TABLE) == set()
