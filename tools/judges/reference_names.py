"""Public names that no page of the built site's reference has.

    mkdocs build --strict --site-dir SITE && python tools/judges/reference_names.py SITE

A name is on a page where objects.inv has the place that defines it, or a page of reference/api has
a heading of its own for it. Modules count by their page. Ends with 1 where a name is missing."""

import pkgutil
import re
import sys
import types
import zlib
from pathlib import Path

NAMES = Path(__file__).parents[2] / "tests" / "structure" / "public_names.txt"


def names_of_inventory(site: Path) -> set[str]:
    """Return the names of objects.inv: after four lines of text, compressed lines that begin so."""
    packed = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    return {line.split()[0] for line in zlib.decompress(packed).decode().splitlines()}


def headings(site: Path) -> set[str]:
    """Return the anchors of all headings of the API's pages."""
    pages = (site / "reference" / "api").rglob("index.html")
    return {x for page in pages for x in re.findall(r'<h\d id="([^"]+)"', page.read_text())}


def is_listed(name: str, listed: set[str]) -> bool:
    """Whether a public name, such as gh.nn.Linear, is on a page."""
    value = pkgutil.resolve_name(name.replace("gh.", "glasshouse.", 1))
    if isinstance(value, types.ModuleType):
        return True
    place = f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')}"
    short = name.rpartition(".")[2]
    return bool({place, name, name.replace("gh.", "glasshouse.", 1), short} & listed)


def missing_names(site: Path) -> list[str]:
    """Return the public names that no page has."""
    listed = names_of_inventory(site) | headings(site)
    return [name for name in NAMES.read_text().split() if not is_listed(name, listed)]


def main() -> None:
    missing = missing_names(Path(sys.argv[1]))
    print(*missing, sep="\n")
    print(f"{len(NAMES.read_text().split())} public names, {len(missing)} on no page")
    sys.exit(bool(missing))


if __name__ == "__main__":
    main()
