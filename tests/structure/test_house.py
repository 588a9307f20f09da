"""The order of the house: layers, names, flags, and what an import loads."""

import ast
import importlib
import os
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.structure.syntax import nodes_of

import glasshouse as gh
import glasshouse.interop
from glasshouse.base.flags import declared

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "glasshouse"
FILES = sorted(PACKAGE.rglob("*.py"))
SNAPSHOT = Path(__file__).with_name("public_names.txt")
PACKAGES = ("", "autograd", "backends", "data", "dispatch", "fft", "interop", "linalg", "metrics",
            "nn", "nn.functional", "nn.init", "nn.utils", "nn.utils.parametrizations",
            "nn.utils.parametrize", "nn.utils.prune", "nn.utils.rnn", "optim", "random", "special",
            "targets", "transforms", "tree")  # fmt: skip


@pytest.fixture(scope="module")
def layers():
    return runpy.run_path(str(ROOT / "tools" / "check_layers.py"))


def test_imports_go_down_only(capsys, layers):
    assert layers["main"]([]) == 0, capsys.readouterr().out


def test_no_storey_outgrows_its_ceiling(layers):
    storeys = {"ops": {"ceiling": 10}, "nn": {"ceiling": 20}, "cli": {}}
    messages = layers["outgrown"](storeys, {"ops": 11, "nn": 20, "cli": 1})
    assert [text.partition(":")[0] for text in messages] == ["ops", "cli"]
    assert "11 lines; expected at most 10" in messages[0]


def test_the_size_of_each_storey_is_printed(capsys, layers):
    assert layers["main"](["--lines"]) == 0
    *rows, total = (line.split() for line in capsys.readouterr().out.splitlines())
    assert [row[0] for row in rows] == list(tomllib.loads((PACKAGE / "layers.toml").read_text()))
    sizes = [int(row[1].replace(",", "")) for row in (*rows, total)]
    assert sizes[-1] == sum(sizes[:-1]) > 50_000


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("from glasshouse.nn import Module", "ops may not import nn"),
        ("import glasshouse.tensor.handle", "ops may not import tensor"),
        ("from glasshouse import optim", "ops may not import optim"),
        ("def f():\n    from glasshouse.base import dtype", "inside a function"),
        ("def f():\n    import torch", "inside a function"),
        ("from . import cast", "relative import"),
        ('PLACE = "glasshouse.torch.front.torch_front:TorchFront"', "ops may not name"),
        ('x = __import__(f"glasshouse.nn.{__name__}")', "ops may not name"),
        ('HOME = "glasshouse.tensor"', "ops may not name"),
    ],
)
def test_the_layer_check_finds_violations(tmp_path, layers, line, message):
    result = problems_of(line, "ops/bad.py", tmp_path, layers)
    assert any(message in text and "ops/bad.py:" in text for text in result), result


@pytest.mark.parametrize(
    ("file", "line", "message"),
    [
        ("graph/recompute/x.py", "from glasshouse.analyze.planner import chain", "analyze"),
        ("compile/x.py", "from glasshouse.analyze.planner.chain import Chain", "analyze"),
        ("compile/x.py", "from glasshouse.graph.recompute.recompute import recompute", None),
        ("profile/x.py", "from glasshouse.analyze.step import step", "analyze"),
        ("analyze/planner/x.py", "from glasshouse.analyze.step import step", None),
        ("interop/x.py", "def f():\n    import scipy", None),
        ("graph/recompute/x.py", "def f():\n    import scipy", "inside a function"),
        (
            "capture/values/x.py",
            "from glasshouse.capture.rules.builtins.methods import call",
            "rules",
        ),
        ("capture/values/x.py", "from glasshouse.capture import rules", "__init__"),
        ("capture/values/x.py", "from glasshouse.capture.api import optimize", "api"),
        ("capture/rules/x.py", "from glasshouse.capture.values.var import Var", None),
        ("capture/rules/x.py", "from glasshouse.capture.rules.builtins.methods import call", None),
        ("capture/x.py", "from glasshouse.capture.rules.builtins.methods import call", None),
        ("base/upper_storeys.py", 'BACKENDS = "glasshouse.backends"', None),
        ("capture/x.py", 'HOME = "glasshouse.ops.checks"', None),
    ],
)
def test_parts_of_storeys_have_rules_of_their_own(tmp_path, layers, file, line, message):
    result = problems_of(line, file, tmp_path, layers)
    assert bool(result) == bool(message) and (message or "") in "".join(result), result


def test_rooms_are_in_order(tmp_path, layers):
    storeys = {"ops": {"rooms": {"low": ["high"], "high": ["low"]}}}
    for room in ("high", "other"):
        (tmp_path / "ops" / room).mkdir(parents=True)
        (tmp_path / "ops" / room / "__init__.py").touch()
    scope = layers["check_file"].__globals__
    before, scope["PACKAGE"] = scope["PACKAGE"], tmp_path
    try:
        result = layers["rooms_in_disorder"](storeys)
    finally:
        scope["PACKAGE"] = before
    assert result[0] == "ops/low may not import high, above it"
    assert "low" in result[1] and "other" in result[1] and "high" not in result[1]


def test_rooms_say_what_they_are_for():
    storeys = tomllib.loads((PACKAGE / "layers.toml").read_text())
    rooms = [PACKAGE / name / room for name in storeys for room in storeys[name].get("rooms", ())]
    for path in filter(Path.is_dir, rooms):
        said = ast.get_docstring(ast.parse((path / "__init__.py").read_text())) or ""
        assert 4 <= said.count("\n") + 1 <= 8 and "Read `" in " ".join(said.split()), path


def problems_of(text: str, file: str, tmp_path, layers) -> list[str]:
    """Return the complaints of the layer check about a file with this text."""
    path = tmp_path / "src" / "glasshouse" / file
    for package in ("analyze/planner", "graph/recompute", "capture/rules"):
        path.parents[file.count("/")].joinpath(package).mkdir(parents=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")
    scope = layers["check_file"].__globals__
    before = scope["PACKAGE"]
    scope["PACKAGE"] = tmp_path / "src" / "glasshouse"
    try:
        rules = tomllib.loads((PACKAGE / "layers.toml").read_text())
        return layers["check_file"](path, rules)
    finally:
        scope["PACKAGE"] = before


def public_names() -> list[str]:
    """Every public name, as `package.name`."""
    results = []
    for package in PACKAGES:
        module = gh
        for part in filter(None, package.split(".")):
            module = getattr(module, part)
        names = getattr(module, "__all__", None)
        if names is None and package and hasattr(module, "__path__"):
            names = imported_names(Path(module.__file__))
        if names is None:
            names = [n for n in dir(module) if not n.startswith("_")]
            parts = {n: getattr(module, n) for n in names}
            is_function = {n: callable(x) or not hasattr(x, "__path__") for n, x in parts.items()}
            names = [n for n in names if package or is_function[n]]
            own = module.__name__.partition(".")[0]
            names = [n for n in names if in_our_house(getattr(module, n), own) or not package]
        results += [".".join(filter(None, ("gh", package, n))) for n in names]
    return sorted(results)


def imported_names(path: Path) -> list[str]:
    """The names of a front page without `__all__`: what it imports; by *, a module's `__all__`."""
    names = []
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            names += importlib.import_module(node.module).__all__
        elif isinstance(node, ast.ImportFrom):
            names += [alias.asname or alias.name for alias in node.names]
    return names


def in_our_house(x, own: str) -> bool:
    return getattr(x, "__module__", "").startswith(own) or not callable(x)


def test_public_names_are_those_of_the_snapshot():
    """Update with: python tests/structure/test_house.py"""
    assert public_names() == SNAPSHOT.read_text().split()


def test_init_files_hold_imports_only():
    for path in PACKAGE.rglob("__init__.py"):
        for node in ast.parse(path.read_text()).body:
            docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            names = isinstance(node, ast.Assign) and node.targets[0].id == "__all__"
            assert docstring or names or isinstance(node, (ast.Import, ast.ImportFrom)), path


# Folders that PyTorch's programs import by such a name, and that hold what PyTorch has there.
NAMED_BY_PYTORCH = {"nn/utils": "`from torch.nn.utils import …` stands in many programs"}


def test_names_of_leftovers_are_not_used():
    leftovers = {"core", "utils", "util", "common", "helpers", "helper", "misc"}
    results = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*")}
    results = {name for name in results if Path(name).stem in leftovers}
    assert results == set(NAMED_BY_PYTORCH)


def test_every_module_says_what_it_is(modules):
    for path, tree in modules.items():
        text = ast.get_docstring(tree)
        assert text and len(text) > 15, path


def test_environment_is_read_in_one_place():
    for path in FILES:
        # The CLI also looks at settings of others: threads of BLAS, columns of the terminal.
        allowed = path.relative_to(PACKAGE).parts[0] in ("base", "bench", "cli")
        assert allowed or "environ" not in path.read_text(), path
        if path.name != "flags.py":
            assert not re.search(r"environ\W.*GH_", path.read_text()), path


def test_flags_are_documented():
    text = (ROOT / "docs" / "inside" / "architecture.md").read_text() + (
        ROOT / "README.md"
    ).read_text()
    for flag in declared:
        assert flag.variable in text, f"{flag.variable} is in no document"


def test_every_storey_says_what_it_is_for():
    storeys = tomllib.loads((PACKAGE / "layers.toml").read_text())
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert folders | {"."} == set(storeys)
    assert all(storey["purpose"].endswith(".") for storey in storeys.values())


def test_the_version_is_the_same_everywhere():
    released = re.search(r"^## (\d\S*) ", (ROOT / "CHANGELOG.md").read_text(), re.M)[1]
    cited = re.search(r"^version: (\S+)", (ROOT / "CITATION.cff").read_text(), re.M)[1]
    assert gh.__version__ == released == cited


def quick_storeys() -> set[str]:
    """The storeys with a test marked quick: the folder under tests/unit, or those that it names."""
    results = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        for named in re.findall(
            r"^(?:@|pytestmark = )pytest\.mark\.quick(.*)$", path.read_text(), re.M
        ):
            results |= set(re.findall(r'"([\w.]+)"', named)) or {path.parent.name}
    return results


def test_every_storey_has_a_quick_test():
    """`pytest -m quick` looks into each once."""
    storeys = tomllib.loads((PACKAGE / "layers.toml").read_text())
    assert quick_storeys() == set(storeys)


@pytest.mark.quick(".")
def test_import_loads_no_heavy_library():
    heavy = ("torch", "sklearn", "scipy", "matplotlib", "rich", "typer", "click", "safetensors",
             "plotext", "numpy.random", "importlib.metadata", "PIL", "jax")  # fmt: skip
    code = f"import glasshouse, sys; print([m for m in {heavy} if m in sys.modules])"
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.strip() == "[]"


def raised_messages(modules):
    """(file:line, text) of every message given to one of our errors, whole or in four parts."""
    classes = {n for n in dir(gh.base.errors) if n.endswith("Error")}
    for path, tree in modules.items():
        for node in nodes_of(tree):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            if node.func.id not in classes or not node.args:
                continue
            where = f"{path}:{node.lineno}"
            if len(node.args) > 1:
                parts = [*map(ast.unparse, node.args), "", ""]
                yield where, "{}: expected {}; got {}. {}".format(*parts)
            elif isinstance(node.args[0], (ast.Constant, ast.JoinedStr)):
                yield where, ast.unparse(node.args[0])


def test_errors_have_the_house_form(modules):
    wrong = [
        (where, text)
        for where, text in raised_messages(modules)
        if not re.search(r":.*expected .*; (?:but )?got .*\. ?\S", text, re.S)
    ]
    assert wrong == []


def test_capture_asks_for_the_version_of_python_in_one_file(modules):
    names = {"version_info", "hexversion", "VERSION"}
    places = {
        file
        for file, tree in modules.items()
        if file.startswith(("capture/", "torch/front/"))
        for node in nodes_of(tree)
        if getattr(node, "attr", getattr(node, "id", "")) in names
    }
    assert places == {"capture/bytecode/versions.py"}


if __name__ == "__main__":
    SNAPSHOT.write_text("\n".join(public_names()) + "\n")
