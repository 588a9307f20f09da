"""The README's tour runs as printed."""

import doctest
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_tour_gives_the_printed_results():
    result = doctest.testfile(str(ROOT / "README.md"), module_relative=False)
    assert result.attempted > 20
    assert result.failed == 0


def test_named_files_exist():
    words = (ROOT / "README.md").read_text().replace("`", " ").split()
    named = {word.strip(".,:;()") for word in words if word.startswith(("docs/", "CONTRIBUTING"))}
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []
