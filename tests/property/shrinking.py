"""Makes what fails smaller."""


def fewest(parts: list, fails) -> list:
    """A part of a list that still fails: halves, quarters and so on are left out in turn."""
    size = max(1, len(parts) // 2)
    while parts:
        start = 0
        while start < len(parts):
            rest = parts[:start] + parts[start + size :]
            if fails(rest):
                parts = rest
            else:
                start += size
        if size == 1:
            break
        size = size // 2
    return parts
