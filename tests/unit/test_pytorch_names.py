"""The table of PyTorch's names in docs/reference/pytorch_names.md, which
tools/documents/make_names_table.py writes."""

import runpy
import warnings
from pathlib import Path

import pytest

pytest.importorskip("torch")
TOOL = Path(__file__).parents[2] / "tools" / "documents" / "make_names_table.py"


@pytest.fixture(scope="module")
def table():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tool = runpy.run_path(str(TOOL))
        return tool, {space: tool["sorted_names"](space) for space in tool["SPACES"]}


def test_at_least_97_of_100_names_are_there(table):
    _, parts = table
    there = sum(len(names) for names, _, _ in parts.values())
    missing = sum(len(names) for _, names, _ in parts.values())
    assert there / (there + missing) >= 0.97


def test_every_name_that_the_page_lists_is_there(table):
    """If it is stale: python tools/documents/make_names_table.py. Names that came since do no
    harm."""
    tool, parts = table
    text = tool["PAGE"].read_text().partition("## There")[2]
    for space, (there, _, _) in parts.items():
        listed = text.partition(f"**`{space}`**: ")[2].partition(".\n")[0]
        assert set(listed.replace("`", "").split(", ")) <= set(there), space


def test_each_missing_name_has_a_reason(table):
    tool, parts = table
    spaces = ("torch.Tensor", "torch", "torch.linalg", "torch.fft", "torch.special")
    for space in spaces:
        assert all(tool["reason_of"](space, name) for name in parts[space][1]), space


@pytest.mark.parametrize("part", ["WITHOUT", "MISSING"])
def test_each_reason_is_of_a_name_that_pytorch_has(table, part):
    tool, parts = table
    everywhere = {n for _, missing, _ in parts.values() for n in missing}
    families = {family for _, _, without in parts.values() for family in without}
    if part == "WITHOUT":
        assert families == set(tool["WITHOUT"])
    else:
        match = tool["fnmatch"].fnmatchcase
        for space, patterns in tool["MISSING"]:
            names = [*parts[space][0], *everywhere]
            assert any(match(n, p) for n in names for p in patterns.split()), patterns


def test_the_page_says_that_no_name_differs_in_silence(table):
    tool, _ = table
    section = tool["PAGE"].read_text().partition("## Whether calls give the same")[2]
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| `torch")]
    counts = [row for row in rows if len(row) == 7]
    assert len(counts) == 5 and all(row[5] == "0" for row in counts)
