"""Numbers of bytes as people write them: 1.5GiB, 800MB, 4096."""

import math
import re

UNITS = {"": 1, "B": 1} | {
    f"{letter}{infix}B": base**power
    for infix, base in (("", 1000), ("i", 1024))
    for power, letter in enumerate("KMGT", 1)
}
SPELLINGS = {unit.lower(): factor for unit, factor in UNITS.items()}


class ByteCount(int):
    """A number of bytes, made of a whole number or of a text such as "1.5GiB" or "800MB".

    Units: KB, MB, GB and TB are powers of 1000; KiB, MiB, GiB and TiB powers of 1024.
    Raises: ValueError for another text, and for less than 0

    Example:
        >>> ByteCount("1.5GiB") + 0
        1610612736
        >>> print(ByteCount("800 MB"), ByteCount(3 << 20))
        800MB 3MiB
    """

    def __new__(cls, value):
        return super().__new__(cls, parsed(value) if isinstance(value, str) else value)

    def __str__(self):
        return format_bytes(self)


def parsed(text: str) -> int:
    match = re.fullmatch(r"([0-9.]+)\s*([A-Za-z]*)", text.strip())
    factor = SPELLINGS.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise ValueError(f"{text!r} is no number of bytes such as 1.5GiB or 800MB")
    return math.floor(float(match[1]) * factor)


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
