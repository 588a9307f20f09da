"""Numbers and tables as text, and where text is written."""

from pathlib import Path

from glasshouse.base import OptionError, having

SHORTEST = 16  # least width of a name, as long as cards' are; columns are dropped first
UNITS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def si_text(value: float, unit: str = "") -> str:
    """A number with four digits and a prefix: 24.30 G."""
    for size, prefix in UNITS:
        if abs(value) >= size:
            return f"{digits(value / size)} {prefix}{unit}"
    return f"{digits(value)} {unit}".rstrip() if value else "0"


def digits(value: float) -> str:
    """Four significant digits, integers whole."""
    if value == int(value) and abs(value) < 10_000:
        return str(int(value))
    return f"{value:.{max(0, 3 - len(str(int(abs(value)))) + 1)}f}"


def milliseconds(ns: float) -> str:
    """A time in ms, or µs where it is short."""
    if not ns:
        return "0"
    return f"{ns / 1e6:,.3f} ms" if abs(ns) >= 1e5 else f"{ns / 1e3:.2f} µs"


def writable(where: str, path: str | Path, endings: tuple[str, ...] = ("",)) -> Path:
    """A path to write to.

    Raises: OSError or OptionError for a wrong one.
    """
    path = Path(path)
    if not path.name.endswith(endings):
        expected = f"a path that ends in {' or '.join(endings)}"
        raise OptionError(where, expected, repr(path.name), "Rename it.")
    if path.is_dir():
        raise IsADirectoryError(
            f"{where}: expected the path of a file; got the folder {path}. Name a file in it."
        )
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"{where}: expected a path in a folder that exists; got {path}. Make the folder."
        )
    return path


def percent(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else ""


class Tabular:
    """Something that prints as its table."""

    def table(self) -> str:
        """The text of the table."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return self.table()


class CurrentWidth:
    columns: int | None = None  # of the lines of tables; None: as wide as they are


def within(columns: int | None) -> having:
    """Context: tables are made to fit lines of so many characters."""
    return having(CurrentWidth, columns=columns)


def table(headings: list[str], rows: list[list[str]], left: int = 1, limit: int = 60) -> str:
    """Aligned columns, the first `left` of them to the left and at most `limit` wide. Where lines
    have a width, names are shortened to fit; the last columns that still do not are named below."""
    cells = [list(headings), *([str(cell) for cell in row] for row in rows)]
    cells = [[*(shortened(cell, limit) for cell in row[:left]), *row[left:]] for row in cells]
    if CurrentWidth.columns is None:
        return aligned(cells, left)
    cells, left_out = fitted(cells, left, CurrentWidth.columns)
    note = f"not shown in {CurrentWidth.columns} columns: {', '.join(left_out)}"
    return "\n".join([aligned(cells, left), *[note] * bool(left_out)])


def fitted(cells: list[list[str]], left: int, columns: int) -> tuple[list[list[str]], list[str]]:
    """The cells that fit, and the headings of the columns that do not."""
    widths = widths_of(cells)
    left_out: list[str] = []
    while len(widths) > left + 1:
        rest = columns - sum(width + 2 for width in widths[left:])  # for the names
        if rest >= sum(min(width, SHORTEST) + 2 for width in widths[:left]) - 2:
            break
        left_out.insert(0, cells[0][len(widths) - 1])
        widths.pop()
    names = widths[:left]
    while sum(width + 2 for width in widths) - 2 > columns and max(names) > SHORTEST:
        names[names.index(max(names))] -= 1  # the longest gives way
        widths[:left] = names
    fits = [
        [*(shortened(cell, width) for cell, width in zip(row, names)), *row[left : len(widths)]]
        for row in cells
    ]
    return fits, left_out


def widths_of(cells: list[list[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*cells, strict=True)]


def aligned(cells: list[list[str]], left: int) -> str:
    widths = widths_of(cells)
    lines = [
        "  ".join(
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def shortened(text: str, limit: int) -> str:
    """At most `limit` characters: a path (of a module or file) loses its beginning, other text its
    middle."""
    if len(text) <= limit:
        return text
    if " " not in text.lstrip():
        return f"…{text[len(text) - limit + 1 :]}"
    return f"{text[: limit // 2 - 1]}…{text[len(text) - (limit - limit // 2) :]}"
