"""Private names of PyTorch stand in torch/patches alone, and no production code uses mocks."""

import ast
import re

import pytest
from tests.structure.syntax import nodes_of

PATCHES = "torch/patches/"
# What begins with an underscore in Python's own library, and is documented.
PYTHONS = {"_asdict", "_current_frames", "_fields", "_getframe", "_make", "_replace"}
OPERATORS = {"of_aten", "of_lists"}  # of the dispatcher, by names that schemas have too
PRIVATE_PATH = re.compile(r"(^|[^\w`])torch(\.\w+)*\._([a-zA-Z]|$)")


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def is_of_torch(name: str | None) -> bool:
    return (name or "").partition(".")[0] == "torch"


def imported(node) -> list[str]:
    """The full names that an import statement takes of PyTorch."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names if is_of_torch(alias.name)]
    if isinstance(node, ast.ImportFrom) and is_of_torch(node.module):
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def docstrings(tree) -> set[int]:
    """The strings that stand alone, by id."""
    alone = (node for node in nodes_of(tree) if isinstance(node, ast.Expr))
    return {id(node.value) for node in alone}


def private_uses(tree: ast.Module, leaves: set[str] = frozenset()) -> list[tuple[int, str]]:
    """(line, name) of each private name of PyTorch that a file uses: in an import, as an attribute
    of another object, as the path of a module, or, of `leaves`, as a string."""
    nodes, alone = list(nodes_of(tree)), docstrings(tree)
    paths = [(node.lineno, path) for node in nodes for path in imported(node)]
    uses = [(line, path) for line, path in paths if any(map(is_private, path.split(".")))]
    own = {x.attr for x in nodes if isinstance(x, ast.Attribute) and isinstance(x.ctx, ast.Store)}
    for node in nodes:
        if isinstance(node, ast.Attribute) and paths and is_private(node.attr):
            is_self = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            is_ours = is_self and node.attr not in leaves or node.attr in own - leaves
            if not (is_ours or node.attr in PYTHONS):
                uses.append((node.lineno, node.attr))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            is_leaf = paths and node.value in leaves
            if id(node) not in alone and (is_leaf or PRIVATE_PATH.search(node.value)):
                uses.append((node.lineno, node.value))
    return uses


def leaves_of(tree: ast.Module) -> set[str]:
    """The private attributes that a file of patches looks up, but for names of operators."""
    calls = (node for node in nodes_of(tree) if isinstance(node, ast.Call))
    named = {id(x) for c in calls if getattr(c.func, "id", "") in OPERATORS for x in ast.walk(c)}
    nodes = [node for node in nodes_of(tree) if id(node) not in named]
    texts = [x.value for x in nodes if isinstance(x, ast.Constant) and isinstance(x.value, str)]
    results = {x for text in texts if " " not in text for x in re.findall(r"(?<![\w])_\w+$", text)}
    return {
        x
        for x in results | {x.attr for x in nodes if isinstance(x, ast.Attribute)}
        if is_private(x)
    }


@pytest.fixture(scope="module")
def leaves(modules) -> set[str]:
    trees = (tree for path, tree in modules.items() if path.startswith(PATCHES))
    return set().union(*map(leaves_of, trees))


def test_private_names_of_pytorch_stand_in_patches_alone(modules, leaves):
    others = {path: tree for path, tree in modules.items() if not path.startswith(PATCHES)}
    uses = [
        f"{path}:{line}: {name}"
        for path, tree in others.items()
        for line, name in private_uses(tree, leaves)
    ]
    assert not uses, "\n".join(["move these to torch/patches:", *uses])


def test_no_production_code_uses_mocks(modules):
    for path, tree in modules.items():
        for node in nodes_of(tree):
            names = [x.name for x in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.startswith("unittest") for name in names), path


def test_patches_know_what_is_private(leaves):
    private = {"_version", "_cdata", "_schema", "_call_impl", "_backward_hooks", "_orig_mod"}
    assert private | {"_get_sequence_nr", "_sequence_nr", "_boxed_call", "_current_level"} <= leaves
    assert not {"_unsafe_view", "_foreach_add"} & leaves


@pytest.mark.parametrize(
    "line",
    [
        "import torch._dynamo",
        "from torch._inductor import codecache",
        "from torch.fx import _symbolic_trace",
        "from torch.utils import _pytree as trees",
        "f = torch._C._nn.gelu",
        "with torch._dynamo.config.patch(x=1): pass",
        "def f(x): return x._version",
        "def f(x): return x.untyped_storage()._cdata",
        "def f(x): return getattr(x, '_version')",
        "def f(self): self._version = 1",
        "MODULES = {'torch._C._nn'}",
        "NAME = f'torch._{1}'",
        "op = torch.ops.aten._softmax.default",
    ],
)
def test_the_rule_finds_private_names(line):
    assert private_uses(ast.parse(f"import torch\n{line}"), {"_version"}), line


@pytest.mark.parametrize(
    "line",
    [
        "def f(x): return x._replace(a=1)",
        "class A:\n    def f(self): return self._own",
        "def f():\n    '''What torch._dynamo does.'''",
        "@aten('_softmax')\ndef f(x): pass",
        "def f(x): x._gh_entries = 1; return x._gh_entries",
        "from glasshouse.torch.patches import names",
    ],
)
def test_the_rule_leaves_other_names_alone(line):
    assert not private_uses(ast.parse(f"import torch\n{line}"), {"_version"}), line
