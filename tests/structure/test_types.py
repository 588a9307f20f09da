"""Public functions say the types of their parameters and results."""

import ast
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def is_public(name: str) -> bool:
    return not name.startswith("_") or (name.startswith("__") and name.endswith("__"))


def public_functions(body: list[ast.stmt], of: str = ""):
    """(name, node, whether it is a method with a first parameter of its own) of public ones."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and is_public(node.name):
            static = "staticmethod" in map(ast.unparse, node.decorator_list)
            yield of + node.name, node, bool(of) and not static
        elif isinstance(node, ast.ClassDef) and is_public(node.name):
            yield from public_functions(node.body, f"{of}{node.name}.")
        elif isinstance(node, ast.If | ast.Try | ast.With):
            yield from public_functions([*node.body, *getattr(node, "orelse", [])], of)


def missing_types(node: ast.FunctionDef, is_method: bool) -> list[str]:
    """The parameters of a function without a type; "return" where its result has none."""
    args = node.args
    by_position = [*args.posonlyargs, *args.args][is_method:]
    every = [*by_position, *args.kwonlyargs, *filter(None, (args.vararg, args.kwarg))]
    missing = [arg.arg for arg in every if arg.annotation is None]
    return missing + ["return"] * (node.returns is None)


@pytest.mark.quick(".")
def test_public_functions_are_annotated(modules):
    missing = [
        f"{file}:{node.lineno} {name}: {', '.join(names)}"
        for file, tree in modules.items()
        for name, node, is_method in public_functions(tree.body)
        if (names := missing_types(node, is_method))
    ]
    assert missing == [], "Give each parameter and the result a type; Any where all is accepted."


def test_the_stub_of_tensors_methods_is_current():
    tool = runpy.run_path(str(ROOT / "tools" / "documents" / "make_tensor_stub.py"))
    assert tool["STUB"].read_text() == tool["stub"]()
