"""The pages of the documentation, and their blocks of code."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def blocks_of(page: Path) -> list[tuple[str, str, int]]:
    """(language, text, line) of each fenced block of a page."""
    text = page.read_text()
    matches = re.finditer(r"^```(\w*)[^\n]*\n(.*?)^```$", text, re.S | re.M)
    return [(m[1], m[2], text[: m.start()].count("\n") + 1) for m in matches]


def python_of(page: Path) -> list[str]:
    """The texts of a page's blocks of Python that are no examples with prompts."""
    blocks = [text for language, text, _ in blocks_of(page) if language == "python"]
    return [text for text in blocks if not text.startswith(">>>")]
