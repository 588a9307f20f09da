"""Turn the results of a benchmark into tables of Markdown, whatever their shape.

A record is nested dicts and lists. A dict of numbers becomes rows of two columns, a dict of dicts
or a list of dicts becomes a row for each, and anything deeper becomes a table under its own name.
Units are read off the ends of names: `step_s`, `peak_bytes`, `call_us`."""

import math
from collections.abc import Iterator

TIMES = {"_s": 1.0, "_ms": 1e-3, "_us": 1e-6, "_ns": 1e-9}
LONGEST_LIST = 3  # longer lists are the runs behind a median
ABBREVIATIONS = {"cpu": "processor", "rss": "resident"}


def three_digits(value: float) -> str:
    """A number with three significant digits, in plain notation where that is short."""
    if value and (abs(value) >= 1e6 or abs(value) < 1e-3):
        return f"{value:.2e}"
    digits = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:,.{digits}f}"


def seconds(value: float) -> str:
    """A time with the unit that gives it one to three digits before the point."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(value) >= size:
            return f"{three_digits(value / size)} {unit}"
    return f"{three_digits(value / 1e-9)} ns"


def size(value: float) -> str:
    """A number of bytes."""
    for unit, bytes_ in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(value) >= bytes_:
            return f"{three_digits(value / bytes_)} {unit}"
    return f"{value:,.0f} B"


def is_timing(value) -> bool:
    """Whether a value is a median with its spread."""
    return isinstance(value, dict) and ("median_s" in value or "least_s" in value)


def is_leaf(value) -> bool:
    """Whether a value fits into a cell."""
    if isinstance(value, list):
        return all(not isinstance(x, (dict, list)) for x in value)
    return not isinstance(value, dict)


def cell(name: str, value) -> str:
    """The text of one cell; the name of its column gives the unit."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(cell(name, x) for x in value)
    if isinstance(value, str):
        return value.replace("|", "\\|")
    if name == "bytes_per_s":
        return f"{size(value)}/s"
    for ending, unit in TIMES.items():
        if name.endswith(ending):
            return seconds(value * unit)
    if name.endswith("bytes"):
        return size(value)
    return f"{value:,}" if isinstance(value, int) else three_digits(value)


def heading(name: str) -> str:
    """A column's heading: the name without its unit."""
    for ending in (*TIMES, "_bytes"):
        name = name.removesuffix(ending)
    words = [ABBREVIATIONS.get(word, word) for word in name.split("_")]
    return " ".join(words)


def flat(row: dict, prefix: str = "") -> dict[str, str]:
    """The cells of a row by heading. A nested dict gives a column for each entry, a timing its
    median alone, and the single runs none."""
    cells = {}
    for name, value in row.items():
        label = f"{prefix}{heading(name)}"
        if is_timing(value):
            cells[label] = seconds(value.get("median_s", value.get("least_s")))
        elif isinstance(value, dict):
            inner = prefix if f"_{name}" in TIMES else f"{prefix}{heading(name)}, "
            cells |= flat(with_unit(name, value), inner)
        elif isinstance(value, list) and (not is_leaf(value) or len(value) > LONGEST_LIST):
            continue
        else:
            cells[label] = cell(name, value)
    return cells


def with_unit(name: str, values: dict) -> dict:
    """The entries of a dict whose own name has the unit, as `{"us": {"nothing": 1.2}}`."""
    unit = next((x for x in (*TIMES, "_bytes") if f"_{name}".endswith(x)), "")
    return {f"{key}{unit}": value for key, value in values.items()} if unit else values


def table(rows: list[dict[str, str]]) -> str:
    """A table of rows that map headings to texts, without columns that are empty throughout."""
    columns = dict.fromkeys(c for row in rows for c in row)
    columns = [c for c in columns if any(row.get(c) for row in rows)]
    numeric = [is_numeric([row.get(c, "") for row in rows]) for c in columns[1:]]
    rules = ["---", *("---:" if x else "---" for x in numeric)]
    lines = [f"| {' | '.join(columns)} |", f"| {' | '.join(rules)} |"]
    lines += [f"| {' | '.join(row.get(c, '') for c in columns)} |" for row in rows]
    return "\n".join(lines)


def is_numeric(cells: list[str]) -> bool:
    """Whether a column's cells begin with digits, so that they stand to the right."""
    return all(cell[:1] in "-0123456789" for cell in cells if cell)


def timing_row(name: str, value: dict) -> dict[str, str]:
    """A row with a median and its quartiles, or with whatever a timing has."""
    return {"case": name} | {heading(k): cell(k, v) for k, v in value.items()}


def tables(results, name: str = "") -> Iterator[str]:
    """The tables of a record's results, each under its name where there are several."""
    has_title = name and name != "rows"
    title = f"**{name[:1].upper()}{heading(name[1:])}**\n\n" if has_title else ""
    if isinstance(results, list):
        rows = [flat(row) for row in results if isinstance(row, dict)]
        if rows:
            yield title + table(rows)
    elif all(is_timing(value) for value in results.values()):
        yield title + table([timing_row(k, v) for k, v in results.items()])
    elif all(isinstance(x, dict) and is_row(x) for x in results.values()):
        yield title + table([case_of(k, v) | flat(with_unit(k, v)) for k, v in results.items()])
    else:
        leaves = {k: v for k, v in results.items() if is_leaf(v)}
        if leaves:
            yield title + table([{"": heading(k), "value": cell(k, v)} for k, v in leaves.items()])
        for key, value in results.items():
            if key not in leaves:
                yield from tables(with_unit(key, value) if isinstance(value, dict) else value, key)


def case_of(name: str, row: dict) -> dict[str, str]:
    """The first column of a row, unless the row itself says what it is of."""
    return {} if {"model", "program"} & set(row) else {"case": name.replace("_", " ")}


def is_row(value: dict) -> bool:
    """Whether a dict is one row of a table: cells and timings, and dicts of these alone."""
    return not any(isinstance(x, dict) and not is_timing(x) and any(map(is_deep, x.values()))
                   for x in value.values())  # fmt: skip


def is_deep(value) -> bool:
    """Whether a value has dicts inside that are no timings."""
    return isinstance(value, dict) and not is_timing(value)
