"""Sizes of memory as people write them: 1.5GiB, 800MB, 60%, 4096.

A whole number is bytes, in Python and as text; a text may name a unit. Where a part of a whole
makes sense, it is a float of at most 1, or a percentage. Ambiguous values are refused."""

import math
import re
from dataclasses import dataclass
from typing import Any, Self

from glasshouse.base.errors import OptionError

UNITS = {"": 1, "B": 1} | {
    f"{letter}{infix}B": base**power
    for infix, base in (("", 1000), ("i", 1024))
    for power, letter in enumerate("KMGT", 1)
}
FACTORS = {unit.lower(): factor for unit, factor in UNITS.items()}
NUMBER = re.compile(r"(\d+\.?\d*|\.\d+)\s*([A-Za-z]*|%)", re.ASCII)


class ByteCount(int):
    """A number of bytes, from a whole number or a text such as "1.5GiB" or "800MB".

    Units: KB, MB, GB and TB are powers of 1000; KiB, MiB, GiB and TiB powers of 1024.
    Raises: ValueError for another text, and for less than 0

    Example:
        >>> ByteCount("1.5GiB") + 0
        1610612736
        >>> print(ByteCount("800 MB"), ByteCount(3 << 20))
        800MB 3MiB
    """

    expected = "a number of bytes such as 1.5GiB, 800MB or 4096"

    def __new__(cls, value: Any) -> Self:
        return super().__new__(cls, parse_text(value) if isinstance(value, str) else value)

    def __str__(self) -> str:
        return format_bytes(self)


@dataclass(frozen=True)
class MemoryBudget:
    """A limit of memory: bytes, or a part of a whole; prints as it was written."""

    words: str
    nbytes: int | None = None
    part: float = 0.0

    def bytes_of(self, whole_bytes: int) -> int:
        """The bytes of the limit, if the whole has so many."""
        return int(self.part * whole_bytes) if self.nbytes is None else self.nbytes

    def described(self, nbytes: int) -> str:
        """The limit as it was written; of a part, its bytes too."""
        return self.words if self.nbytes is not None else f"{self} of the peak: {nbytes:,} bytes"

    def __str__(self) -> str:
        return self.words


def parse_text(text: str) -> int:
    """The number of bytes that a text names.

    Raises: ValueError with examples of valid texts
    """
    match = NUMBER.fullmatch(text.strip())
    number, unit = match.groups() if match else ("", "?")
    factor = FACTORS.get(unit.lower())
    if factor is not None and (unit or "." not in number):
        return (
            math.floor(float(number) * factor) if unit and "." in number else int(number) * factor
        )
    problem = f"{text!r} is no number of bytes such as 1.5GiB or 800MB"
    if unit in ("", "K", "M", "G", "T", "k", "m", "g", "t"):
        letter = unit.upper() or "G"
        problem += f": write {number}{letter}iB (powers of 1024) or {number}{letter}B (of 1000)"
    raise ValueError(problem)


def parse_bytes(where: str, value: str | float | None, more: str = "") -> ByteCount:
    """A number of bytes: an int, or a text such as "1.5GiB". `more` is text for the error message.

    Raises: OptionError for other values, and for numbers not above 0

    Example:
        >>> int(parse_bytes("limit", "2KiB"))
        2048
    """
    if isinstance(value, str) or hasattr(value, "__index__") and not isinstance(value, bool):
        try:
            nbytes = ByteCount(value)
        except ValueError as error:
            raise OptionError(where, ByteCount.expected + more, repr(value), f"{error}.") from None
        if nbytes > 0:
            return nbytes
    fix = 'Write a whole number of bytes, or a text with a unit such as "1.5GiB".'
    raise OptionError(where, f"{ByteCount.expected}, above 0{more}", repr(value), fix)


def parse_budget(where: str, value: Any) -> MemoryBudget:
    """A limit: bytes as for `parse_bytes`, or a part of a whole above 0 and at most 1: a float, or
    a text such as "60%".

    Raises: OptionError for all else

    Example:
        >>> parse_budget("plan", "60%").bytes_of(1000), parse_budget("plan", 0.25).bytes_of(1000)
        (600, 250)
        >>> print(parse_budget("plan", "1.5 GiB"), "or", parse_budget("plan", 1_600_000_000))
        1.5 GiB or 1,600,000,000 bytes
    """
    if isinstance(value, MemoryBudget):
        return value
    words, part = part_in(value)
    if part is None:
        nbytes = int(parse_bytes(where, value, ', or a part such as 0.6 or "60%"'))
        has_unit = isinstance(value, str) and not value.strip().isdigit()
        return MemoryBudget(value.strip() if has_unit else f"{nbytes:,} bytes", nbytes)
    if 0 < part <= 1:
        return MemoryBudget(words, part=part)
    expected = 'bytes (1610612736, "1.5GiB"), or a part above 0 and at most 1 (0.6, "60%")'
    fix = 'Write 0.5 or "50%" for half of the peak.'
    if part >= 10_000:
        fix = f"Write {int(part)} for bytes."
    elif part > 1 and not words.endswith("%"):
        fix = f'Write "{words}GiB" for that many GiB, a whole number for bytes.'
    raise OptionError(where, expected, repr(value), fix)


def part_in(value: Any) -> tuple[str, float | None]:
    """The part of a whole that a float, a percentage or a text such as "0.6" names, after its
    words; None where it is no such thing."""
    if not isinstance(value, str):
        is_real = hasattr(value, "__float__") and not hasattr(value, "__index__")
        return (str(value), float(value)) if is_real else ("", None)
    match = NUMBER.fullmatch(value.strip())
    number, unit = match.groups() if match else ("", "")
    if unit == "%":
        return value.strip(), float(number) / 100
    return number, float(number) if "." in number and not unit else None


def format_bytes(nbytes: int) -> str:
    """A number of bytes in the unit that shows it exactly, else to three digits.

    Example:
        >>> format_bytes(200_000_000), format_bytes(256 << 20), format_bytes(1_234_567)
        ('200MB', '256MiB', '1.23MB')
    """
    for unit, factor in sorted(UNITS.items(), key=lambda pair: -pair[1]):
        if unit and nbytes and nbytes % factor == 0 and nbytes // factor < 10_000:
            return f"{nbytes // factor}{unit}"
    for letter, factor in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if nbytes >= factor:
            return f"{nbytes / factor:.3g}{letter}"
    return f"{nbytes}B"
