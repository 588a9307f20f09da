"""How large files and functions are, and that each class has a name of its own."""

import ast
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from tests.structure.conftest import PACKAGE, SOURCES
from tests.structure.syntax import nodes_of

ROOT = Path(__file__).parents[2]
MOST_LINES = 500  # of a file
MOST_FILES = 30  # of a folder
MOST_LINES_OF_A_FUNCTION = 50  # without its docstring

# Files above, each with why. A file that has become short is taken out of here.
LONG_FILES = {
    "capture/trace/front.py": "an interface: a method for each question of the trace, with types",
    "capture/rules/opcodes.py": "a table: one short function for each opcode",
    "jax/lax/primitives.py": "a table of functions, with their types",
    "jax/numpy/arrays.py": "a table of array functions, with their types",
    "native/frame_hook.c": "a C extension is one translation unit",
    "native/replay.c": "a C extension is one translation unit",
    "ops/linalg.py": "cards: a table of factorisations with their derivatives",
    "tensor/random.py": "a table of distributions, with their types",
    "tensor/standard/elementwise.py": "a table of array functions",
    "tensor/standard/manipulate.py": "a table of array functions",
    "tensor/torch_names/scatter.py": "a table of array functions, with their types",
}
LONG_FUNCTIONS: dict[str, str] = {}

# Parameters that may be given by position. Those that have to be named are not counted: a call
# says what each is. So `analyze.step`, `max_batch`, `sweep`, `plan` and `symbolic_trace` take what
# they are about first and their options by name, as PyTorch's users expect, and not in an object
# that they would have to make.
MOST_PARAMETERS = 6
MANY_PARAMETERS = {
    "jax/": "names, order and defaults are JAX's",
    "nn/": "names, order and defaults are PyTorch's",
    "autograd/backward.py:grad": "names, order and defaults are PyTorch's",
    "distributed/tensor_parallel/styles.py:forward": "names, order and defaults are PyTorch's",
    "onnx/operators/": "the inputs of ONNX's operators, in their order",
    "optim/": "names, order and defaults are PyTorch's",
    "data/loader.py": "names, order and defaults are PyTorch's",
    "torch/aten/": "the signatures are those of ATen's operators",
    "torch/formulas/": "the signatures are those of PyTorch's operators",
    "capture/rules/builtins/methods.py": "rules: the trace stands first, as self in a method",
    "capture/rules/builtins/context_variables.py:context_method": "a rule, as those of methods are",
    "bench/torch_twins.py": "sizes of published models, as their own constructors take them",
    "speech/models.py": "sizes of published models, with their defaults",
    "text/models/plain.py": "sizes of published models, with their defaults",
    "vision/models/vit.py": "sizes of published models, with their defaults",
    "cli/": "options of a subcommand, which its parser gives by name",
    "compile/programs/replay.py:collect_function": "native/replay.c calls it, by position",
    "tensor/torch_names/eigenpairs.py:lobpcg": "names, order and defaults are PyTorch's",
    "tensor/torch_names/short_time.py": "names, order and defaults are PyTorch's",
    "tensor/standard/elementwise.py": "columns of a table of functions",
    "tensor/random.py:truncated_normal": "shape, dtype and generator stand as in all draws",
}


def lines_of(path: Path) -> int:
    return path.read_text().count("\n")


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def test_files_are_short_but_those_with_a_reason():
    long = {name_of(p) for p in SOURCES if lines_of(p) > MOST_LINES}
    assert sorted(long - LONG_FILES.keys()) == []
    assert sorted(LONG_FILES.keys() - long) == []  # no longer
    written = sum(bool(line.strip()) for p in SOURCES for line in p.read_text().splitlines())
    print(f"src: {written:,} lines that are not blank")


def test_folders_hold_few_files():
    folders = Counter(p.parent for p in SOURCES)
    assert {name_of(p): count for p, count in folders.items() if count > MOST_FILES} == {}


def functions_of(tree: ast.Module):
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return [node for node in nodes_of(tree) if isinstance(node, kinds)]


def lines_without_docstring(node) -> int:
    text = ast.get_docstring(node, clean=False)
    return node.end_lineno - node.lineno + 1 - (len(text.splitlines()) if text else 0)


def test_functions_are_short_but_those_with_a_reason(modules):
    long = {
        f"{file}:{node.name}"
        for file, tree in modules.items()
        for node in functions_of(tree)
        if lines_without_docstring(node) > MOST_LINES_OF_A_FUNCTION
    }
    assert sorted(long - LONG_FUNCTIONS.keys()) == []
    assert sorted(LONG_FUNCTIONS.keys() - long) == []  # no longer


def parameters_of(node: ast.FunctionDef) -> list[str]:
    """The parameters of ours that may be given by position."""
    names = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args)]
    return [name for name in names if name not in ("self", "cls") and name[0] != "_"]


def test_functions_take_few_parameters_but_those_with_a_reason(modules):
    many = {
        f"{file}:{node.name}"
        for file, tree in modules.items()
        for node in functions_of(tree)
        if len(parameters_of(node)) > MOST_PARAMETERS
    }
    excused = {name: {x for x in many if x.startswith(name)} for name in MANY_PARAMETERS}
    assert sorted(many - set().union(*excused.values())) == []
    assert [name for name, functions in excused.items() if not functions] == []  # no longer


@pytest.mark.parametrize("reasons", [LONG_FILES, LONG_FUNCTIONS, MANY_PARAMETERS])
def test_a_reason_is_a_sentence(reasons):
    assert all(len(reason.split()) > 3 for reason in reasons.values())


def test_each_class_has_a_name_of_its_own(modules):
    places = defaultdict(list)
    for file, tree in modules.items():
        for node in nodes_of(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{file}:{node.lineno}")
    assert {name: where for name, where in places.items() if len(where) > 1} == {}
