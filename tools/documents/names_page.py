"""The common part of the pages that compare names: counts, what is missing and why, families that
mean nothing here, what is there."""

import sys
from pathlib import Path


def lines_of(parts: dict, reason_of, without: dict) -> list[str]:
    """The page after its introduction. `parts` has (names there, names missing, {family: names})
    of each namespace; `reason_of(space, name)` says why one is missing."""
    lines = ["| namespace | count | there | missing | share |", "| --- | --- | --- | --- | --- |"]
    total = [0, 0]
    for space, (there, missing, _) in parts.items():
        count = len(there) + len(missing)
        total = [total[0] + count, total[1] + len(there)]
        share = f"{len(there) / count:.1%}"
        lines.append(f"| `{space}` | {count} | {len(there)} | {len(missing)} | {share} |")
    lines.append(
        f"| all | {total[0]} | {total[1]} | {total[0] - total[1]} | {total[1] / total[0]:.1%} |"
    )
    lines += ["", "## Missing, and why", "", "| namespace | name | why |", "| --- | --- | --- |"]
    for space, (_, missing, _) in parts.items():
        for name in missing:
            lines.append(f"| `{space}` | `{name}` | {reason_of(space, name) or 'not yet'} |")
    lines += ["", "## Families that mean nothing here", ""]
    for family, (reason, _) in without.items():
        names = {n for _, _, others in parts.values() for n in others.get(family, ())}
        listed = ", ".join(f"`{n}`" for n in sorted(names))
        lines += [f"**{family.capitalize()}**: {reason}. {listed}.", ""]
    lines += ["## There", ""]
    for space, (there, _, _) in parts.items():
        lines += [f"**`{space}`**: " + ", ".join(f"`{n}`" for n in there) + ".", ""]
    return lines


def write_or_check(path: Path, text: str, script: str) -> int:
    """Write a page of names, or with --check say whether it is fresh; the exit status."""
    if "--check" in sys.argv:
        fresh = path.exists() and path.read_text() == text
        print("fresh" if fresh else f"stale: run python tools/documents/{script}")
        return 0 if fresh else 1
    path.write_text(text)
    print(next(line for line in text.splitlines() if line.startswith("| all")))
    return 0
