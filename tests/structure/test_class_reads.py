"""Rules of capture read classes in one place: a trace relies on what it reads there."""

import ast

import pytest
from tests.structure.syntax import nodes_of

# What a class is, and the rules that look into one.
DOORS = ("capture/guards/class_reads.py", "capture/rules/class_lookups.py")
# Files of capture that are no rules: they run before a trace, after it, or on our own objects.
NO_RULES = {
    "capture/api.py": "what users call",
    "capture/decorator.py": "what users call",
    "capture/emit/expressions.py": "writes the replacement, of values that the trace loaded",
    "capture/sessions/entries.py": "how entries live",
    "capture/sessions/dispatching.py": "which entry answers",
    "capture/guards/read_audit.py": "changes what a trace read, after it",
    "capture/report.py": "texts of reports",
    "capture/sessions/reproduce.py": "scripts that reproduce a call",
    "capture/check/verification.py": "plain Python beside a captured call",
    "capture/check/world.py": "copies for plain Python beside a captured call",
    "capture/values/plain.py": "look-ups that run nothing, which rules reach through the tracer",
}
# Functions without a tracer. Their callers loaded the value, and so rely on its class.
WITHOUT_TRACER = {
    "capture/rules/descriptors.py:class_written": "classes that the trace itself wrote to",
    "capture/rules/builtins/class_checks.py:rely_on_registry": "guards what it reads",
    "capture/rules/containers.py:hashes_in_python": "of a key that was loaded",
    "capture/rules/builtins/copies.py:is_its_attributes": "of a value that was loaded",
    "capture/rules/builtins/copies.py:looks_up_in_python": "of a value that was loaded",
    "capture/trace/front.py:apply": "the method of a tensor's class, which the graph calls by name",
    "capture/rules/imports.py:has_in_its_dict": "the class of a module",
    "capture/rules/builtins/methods.py:calls_back": "of a value that was loaded",
    "capture/rules/builtins/methods.py:is_own_method": "of a value that was loaded",
    "capture/rules/builtins/methods.py:method_of": "of a value that was loaded",
    "capture/fronts/network_front.py:sets_plainly": "of a module that was loaded",
    "capture/rules/constants.py:compares_in_python": "of a value that was loaded",
    "capture/values/var.py:stored": "reads a source",
}
SPECIAL = {"__name__", "__qualname__", "__module__", "__flags__"}  # that no rule goes by


def is_type_call(node) -> bool:
    """Whether an expression is `type(x)`."""
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    return called and node.func.id == "type" and len(node.args) == 1


def is_read(node) -> bool:
    """Whether an expression looks into a class."""
    if isinstance(node, ast.Attribute):
        name = node.attr
        dunder = name[:2] == "__" and name not in SPECIAL
        return name in ("__mro__", "__bases__") or dunder and is_type_call(node.value)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return False
    of_type = bool(node.args) and is_type_call(node.args[0])
    return node.func.id == "static_lookup" or node.func.id in ("getattr", "hasattr") and of_type


def reads(file: str, tree: ast.AST):
    """(function, line) of each look into a class."""
    for function in nodes_of(tree):
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                if is_read(node):
                    yield f"{file}:{function.name}", node.lineno


def test_rules_read_classes_in_one_place(modules):
    strays = [
        f"{where}, line {line}"
        for file, tree in modules.items()
        if file.startswith("capture/") and file not in DOORS and file not in NO_RULES
        for where, line in reads(file, tree)
        if where not in WITHOUT_TRACER
    ]
    assert strays == [], "Read the class through tracer.look_up, has or own_method."


def test_the_exceptions_are_needed(modules):
    files = {where.partition(":")[0] for where in WITHOUT_TRACER}
    needed = {where for file in files for where, _ in reads(file, modules[file])}
    assert sorted(set(WITHOUT_TRACER) - needed) == []
    assert sorted(set(NO_RULES) - set(modules)) == []


@pytest.mark.parametrize(
    "text, count",
    [
        ("type(x).__len__", 1),
        ("hasattr(type(x), 'y')", 1),
        ("static_lookup(cls, 'y')", 1),
        ("cls.__mro__", 1),
        ("type(x).__name__", 0),
        ("tracer.has(x, 'y')", 0),
    ],
)
def test_a_stray_look_is_seen(text, count):
    assert len(list(reads("f", ast.parse(f"def f():\n    return {text}")))) == count
