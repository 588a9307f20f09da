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


def check_file(path: Path, layers: dict) -> list[str]:
    """Messages about the imports of one file that its layer does not allow."""
    where = path.relative_to(PACKAGE)
    layer = where.parts[0] if len(where.parts) > 1 else "."
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
            target = rest.partition(".")[0]
            if not target or (PACKAGE / f"{target}.py").exists():
                target = "."
            if package != PACKAGE.name:
                if id(node) in inside and not may_defer(where, layers):
                    problems.append(f"{where}:{node.lineno}: {name} is imported inside a function.")
            elif id(node) in inside:
                problems.append(f"{where}:{node.lineno}: {name} is imported inside a function.")
            elif target not in allowed and target != ".":
                problems.append(f"{where}:{node.lineno}: {layer} may not import {target}.")
            elif layer == "backends" and target == "backends" and other_backend(where, rest):
                problems.append(f"{where}:{node.lineno}: a backend may not import another one.")
    return problems


def may_defer(where: Path, layers: dict) -> bool:
    """Whether a file may import third-party packages inside functions."""
    places = layers.get(where.parts[0], {}).get("may_defer_third_party", ())
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
