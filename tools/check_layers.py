"""Check that imports go down only, as src/glasshouse/layers.toml says; prints file:line."""

import ast
import sys
import tomllib
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "src" / "glasshouse"


def imported_names(node) -> list[str]:
    """The modules that an import statement names."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if node.module == PACKAGE.name:
        return [f"{PACKAGE.name}.{alias.name}" for alias in node.names]
    return [node.module or ""]


def storey_of(module: str, layers: dict) -> str:
    """The storey of a module, "graph.record": the entry of layers.toml with most of its path.
    A folder stands for its page of names, "analyze.__init__", which may have its own entry."""
    parts = module.split(".")
    if PACKAGE.joinpath(*parts).is_dir():
        parts.append("__init__")
    names = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    front = PACKAGE.joinpath(parts[0]).with_suffix(".py").exists() or parts[0] == "__init__"
    return "." if front else next((name for name in names if name in layers), parts[0])


def check_file(path: Path, layers: dict) -> list[str]:
    """Messages about the imports of one file that its layer does not allow."""
    where = path.relative_to(PACKAGE)
    layer = storey_of(".".join(where.with_suffix("").parts), layers)
    if layer not in layers:
        return [f"{where}:1: {layer} is not in layers.toml. Say there what it is for."]
    allowed = {layer, *layers[layer]["may_import"]}
    tree = ast.parse(path.read_text())
    inside = {
        id(child)
        for fn in ast.walk(tree)
        if isinstance(fn, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for child in ast.walk(fn)
    }
    problems = []
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        if isinstance(node, ast.ImportFrom) and node.level:
            problems.append(f"{where}:{node.lineno}: relative import. Name the module in full.")
        for name in imported_names(node):
            package, _, rest = name.partition(".")
            target = storey_of(rest, layers) if rest else "."
            if package != PACKAGE.name:
                if id(node) in inside and not may_defer(where, layers[layer]):
                    problems.append(f"{where}:{node.lineno}: {name} is imported inside a function.")
            elif id(node) in inside:
                problems.append(f"{where}:{node.lineno}: {name} is imported inside a function.")
            elif target not in allowed and target != ".":
                problems.append(f"{where}:{node.lineno}: {layer} may not import {target}.")
            elif layer == "backends" and target == "backends" and other_backend(where, rest):
                problems.append(f"{where}:{node.lineno}: a backend may not import another one.")
    return problems


def may_defer(where: Path, layer: dict) -> bool:
    """Whether a file of a layer may import third-party packages inside functions."""
    places = layer.get("may_defer_third_party", ())
    return any(where.is_relative_to(place) for place in places)


def other_backend(where: Path, rest: str) -> bool:
    """Whether a module of one backend imports from another's folder."""
    parts = rest.split(".")
    return len(where.parts) > 2 and len(parts) > 1 and parts[1] != where.parts[1]


def main() -> int:
    """Print every problem; 1 if there is one."""
    layers = tomllib.loads((PACKAGE / "layers.toml").read_text())
    problems = [p for path in sorted(PACKAGE.rglob("*.py")) for p in check_file(path, layers)]
    print("\n".join(problems) or "layers: imports go down only")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
