"""A Griffe extension: our docstrings as Markdown, for mkdocstrings.

`Shapes:`, `Raises:` and the like begin a line of their own in bold, an `Example:` is a block of
code, and brackets are text, not links."""

import re
from collections.abc import Iterator
from textwrap import dedent

import griffe

LABELS = "Shapes|Dtypes|Units|Raises|Source|Formula|Returns|Example|Examples"
LABEL = re.compile(rf"^({LABELS}):\s*(.*)$")
CODE = re.compile(r"(`[^`]*`)")


def to_markdown(text: str) -> str:
    """A docstring as Markdown."""
    return "\n".join(lines_of(text.splitlines()))


def lines_of(lines: list[str]) -> Iterator[str]:
    """The lines of the Markdown."""
    at = 0
    while at < len(lines):
        line, at = lines[at], at + 1
        label = LABEL.match(line)
        if label is None:
            yield escaped(line) if line[:4].strip() or not line.strip() else line
            continue
        indented = at
        while indented < len(lines) and (lines[indented][:1] == " " or not lines[indented].strip()):
            indented += 1
        body, at = lines[at:indented], indented
        yield f"\n**{label[1]}:** {escaped(label[2])}"
        if label[1].startswith("Example"):
            yield f"\n```pycon\n{dedent(chr(10).join(body)).strip()}\n```\n"
        else:
            yield from (escaped(x.strip()) for x in body)


def escaped(line: str) -> str:
    """A line of text in which brackets, stars and angle brackets outside of code are themselves."""
    parts = CODE.split(line)
    parts[::2] = [re.sub(r"([\[\]<>*_])", r"\\\1", part) for part in parts[::2]]
    return "".join(parts)


class DocstringMarkdown(griffe.Extension):
    """Rewrites each docstring when its object has been read."""

    def on_object(self, *, obj: griffe.Object, **options) -> None:
        if obj.docstring is not None:
            obj.docstring.value = to_markdown(obj.docstring.value)
