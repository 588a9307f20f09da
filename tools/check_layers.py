"""Check that imports go down only, and that no storey has outgrown its ceiling, as
src/glasshouse/layers.toml says; prints file:line. `--lines` prints the size of each storey."""

import ast
import functools
import re
import sys
import tomllib
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "src" / "glasshouse"


def imported_names(node) -> list[str]:
    """The modules that an import statement names; of `from package import module`, the module."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    module = node.module or ""
    parts = module.split(".")
    if parts[0] != PACKAGE.name:
        return [module]
    if len(parts) == 1:
        return [f"{module}.{alias.name}" for alias in node.names]
    folder = PACKAGE.joinpath(*parts[1:])
    modules = {f"{module}.{x.name}" for x in node.names if is_module(folder, x.name)}
    return sorted(modules) if len(modules) == len(node.names) else [*sorted(modules), module]


def is_module(folder: Path, name: str) -> bool:
    """Whether `from folder import name` gives a module, and not what the folder's page imports."""
    path = folder / name
    result = path.is_dir() or path.with_suffix(".py").exists()
    return result and name not in page_names(folder)


@functools.cache
def page_names(folder: Path) -> set[str]:
    """The names that the page of a folder imports from modules."""
    page = folder / "__init__.py"
    tree = ast.parse(page.read_text() if page.exists() else "")
    own = ".".join((PACKAGE.name, *folder.relative_to(PACKAGE).parts))
    imports = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module != own]
    return {alias.asname or alias.name for node in imports for alias in node.names}


def storey_of(module: str) -> str:
    """The storey of a module, "graph.record"; "." of the files of the front page."""
    first = module.partition(".")[0]
    return "." if PACKAGE.joinpath(first).with_suffix(".py").exists() else first


def import_statements(tree: ast.Module):
    """(statement, whether it is in a function, whether it is for types alone) of each import."""
    blocks = [(tree, False, False)]
    while blocks:
        block, is_inside, is_for_types = blocks.pop()
        is_inside |= isinstance(block, (ast.FunctionDef, ast.AsyncFunctionDef))
        if isinstance(block, ast.If):
            is_for_types |= ast.unparse(block.test) == "TYPE_CHECKING"
        for child in ast.iter_child_nodes(block):
            if isinstance(child, (ast.Import, ast.ImportFrom)):
                yield child, is_inside, is_for_types
            elif isinstance(child, (ast.stmt, ast.excepthandler, ast.match_case)):
                blocks.append((child, is_inside, is_for_types))


def check_file(path: Path, layers: dict) -> list[str]:
    """Messages about the imports of one file that its layer does not allow."""
    where = path.relative_to(PACKAGE)
    layer = storey_of(".".join(where.with_suffix("").parts))
    if layer not in layers:
        return [f"{where}:1: {layer} is not in layers.toml. Say there what it is for."]
    allowed = {layer, *layers[layer]["may_import"]}
    text = path.read_text()
    tree = ast.parse(text)
    problems = names_above(where, layer, tree, layers) if QUOTED.search(text) else []
    for node, is_inside, is_for_types in import_statements(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            problems.append(f"{where}:{node.lineno}: relative import. Name the module in full.")
        for name in imported_names(node):
            package, _, rest = name.partition(".")
            target = storey_of(rest) if rest else "."
            inner = file_of(rest)
            if package != PACKAGE.name:
                if is_inside and not may_defer(where, layers[layer]):
                    problems.append(f"{where}:{node.lineno}: {name} is imported inside a function.")
            elif is_inside:
                problems.append(f"{where}:{node.lineno}: {name} is imported inside a function.")
            elif target not in allowed and target != ".":
                problems.append(f"{where}:{node.lineno}: {layer} may not import {target}.")
            elif target == layer and is_for_types:
                pass  # types may stand above, in the same storey: nothing is imported when it runs
            elif target == layer and not may_enter(where, inner, layers[layer]):
                problems.append(f"{where}:{node.lineno}: {where.parent} may not import {inner}.")
            elif layer == "backends" and target == "backends" and other_backend(where, rest):
                problems.append(f"{where}:{node.lineno}: a backend may not import another one.")
    return problems


# A module of ours, or something in it, as a string; also how an f-string of one begins.
NAME = re.compile(rf"{PACKAGE.name}\.(\w+)(\.\w+)*(\.|:\w+)?")
# Without one of these, no string of a file begins with such a name.
QUOTED = re.compile(rf"""["']{PACKAGE.name}\.""")
NAMES_ABOVE = Path("base", "upper_storeys.py")  # the one file that may have such names


def names_above(where: Path, layer: str, tree: ast.Module, layers: dict) -> list[str]:
    """Messages about strings in a file that name a module of a storey above."""
    above = list(layers)[list(layers).index(layer) + 1 :] if where != NAMES_ABOVE else []
    constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant))
    named = ((node, NAME.fullmatch(str(node.value))) for node in constants)
    return [
        f"{where}:{node.lineno}: {layer} may not name {node.value!r}, above it."
        for node, match in named
        if match and match[1] in above
    ]


def file_of(module: str) -> Path:
    """The file of a module, relative to the package: of a folder its `__init__`."""
    path = Path(*module.split("."))
    return path / "__init__.py" if (PACKAGE / path).is_dir() else path.with_suffix(".py")


def room_of(file: Path, rooms) -> str:
    """The innermost room of a storey in which a file is; "" of the storey's other files."""
    path = file.relative_to(file.parts[0]).with_suffix("") if len(file.parts) > 1 else Path()
    around = (place.as_posix() for place in (path, *path.parents))
    return next((place for place in around if place in rooms), "")


def may_enter(file: Path, other: Path, layer: dict) -> bool:
    """Whether a file of a storey may import from another one: in the same room, in a room that its
    own names, or in one inside its own. The storey's other files stand above its rooms."""
    rooms = layer.get("rooms", {})
    room, wanted = room_of(file, rooms), room_of(other, rooms)
    inside = wanted == room or wanted.startswith(f"{room}/")
    return not room or inside or wanted in rooms[room]


def rooms_in_disorder(layers: dict) -> list[str]:
    """Messages about rooms that name one above them, and about folders that are no rooms."""
    problems = []
    for storey, layer in layers.items():
        rooms, place = layer.get("rooms", {}), PACKAGE / storey
        for number, (room, below) in enumerate(rooms.items()):
            wrong = set(below) - set(list(rooms)[:number])
            problems += [f"{storey}/{room} may not import {name}, above it" for name in wrong]
        folders = {path.parent.relative_to(place).as_posix() for path in place.glob("*/**/*.py")}
        files = {room for room in rooms if (place / room).with_suffix(".py").exists()}
        if rooms and (missing := folders ^ (rooms.keys() - files)):
            problems.append(f"{storey}: the rooms of layers.toml are not its folders: {missing}")
    return problems


def may_defer(where: Path, layer: dict) -> bool:
    """Whether a file of a layer may import third-party packages inside functions."""
    places = layer.get("may_defer_third_party", ())
    return any(where.is_relative_to(place) for place in places)


def other_backend(where: Path, rest: str) -> bool:
    """Whether a module of one backend imports from another's folder."""
    parts = rest.split(".")
    return len(where.parts) > 2 and len(parts) > 1 and parts[1] != where.parts[1]


def lines_by_storey() -> dict[str, int]:
    """The non-blank lines of Python of each storey."""
    sizes: dict[str, int] = {}
    for path in PACKAGE.rglob("*.py"):
        storey = storey_of(".".join(path.relative_to(PACKAGE).with_suffix("").parts))
        lines = sum(bool(line.strip()) for line in path.read_text().splitlines())
        sizes[storey] = sizes.get(storey, 0) + lines
    return sizes


def outgrown(layers: dict, sizes: dict[str, int]) -> list[str]:
    """Messages about storeys that have more lines than their ceilings, or no ceiling."""
    return [
        f"{storey}: {size:,} lines; expected at most {ceiling:,} (`ceiling` in layers.toml). "
        "Compose what is there, or raise it and say why in the commit."
        for storey, size in sizes.items()
        if size > (ceiling := layers.get(storey, {}).get("ceiling", 0))
    ]


def print_lines(layers: dict, sizes: dict[str, int]) -> None:
    """Print a table: storey, lines, ceiling."""
    rows = [(name, sizes.get(name, 0), layer.get("ceiling", 0)) for name, layer in layers.items()]
    rows.append(("all", *(sum(row[i] for row in rows) for i in (1, 2))))
    for name, size, ceiling in rows:
        print(f"{name:15} {size:8,} {ceiling:8,}")


def main(arguments: list[str]) -> int:
    """Print every problem; 1 if there is one."""
    layers = tomllib.loads((PACKAGE / "layers.toml").read_text())
    sizes = lines_by_storey()
    if "--lines" in arguments:
        print_lines(layers, sizes)
        return 0
    problems = [p for path in sorted(PACKAGE.rglob("*.py")) for p in check_file(path, layers)]
    problems += rooms_in_disorder(layers) + outgrown(layers, sizes)
    print("\n".join(problems) or "layers: imports go down only")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
