"""The audit of what traces read: nothing is found where all is guarded, and each kind of guard that
is left out is found, by the line that reads."""

import ast
import enum
import inspect
import re
import sys
import types
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

import glasshouse as gh
from glasshouse.capture.guards import read_audit
from glasshouse.capture.guards.class_reads import ReadClasses
from glasshouse.capture.guards.guard_set import GuardSet
from glasshouse.capture.guards.read_audit import audited
from glasshouse.capture.rules import inlining
from glasshouse.capture.rules.attributes import FUNCTION_PARTS

LIMIT = 3
TABLE = {"a": 1, "b": [1, 2]}
MODULE = types.ModuleType("a_module_of_the_user")
MODULE.SCALE = 2


class Base:
    size = 5

    def method(self):
        return self.size


class Child(Base):
    def __init__(self):
        self.own = 2

    @property
    def computed(self):
        return self.own + 1

    def __len__(self):
        return 4


class Slotted:
    __slots__ = ("value", "unset")

    def __init__(self):
        self.value = 3


class Color(enum.Enum):
    RED = 1
    BLUE = 2


def helper(x, by=2):
    return x * by


child, slotted = Child(), Slotted()
FUNCTIONS = {
    "global": lambda x: x * LIMIT,
    "builtin that a global would hide": lambda x: x * len((1, 2)),
    "item": lambda x: x * TABLE["a"],
    "item in an item": lambda x: x * TABLE["b"][1],
    "absent item": lambda x: x * TABLE.get("none", 1),
    "module": lambda x: x * MODULE.SCALE,
    "absent in a module": lambda x: x * getattr(MODULE, "none", 1),
    "attribute": lambda x: x * child.own,
    "absent attribute": lambda x: x * hasattr(child, "none"),
    "data of a class": lambda x: x * child.size,
    "data of a class, read there": lambda x: x * Child.size,
    "method": lambda x: x * child.method(),
    "property": lambda x: x * child.computed,
    "special method": lambda x: x * len(child),
    "slot": lambda x: x * slotted.value,
    "unset slot": lambda x: x * getattr(slotted, "unset", 1),
    "function": lambda x: helper(x),
    "member of an enum": lambda x: x * Color(1).value,
}
PARTS = sorted(FUNCTION_PARTS - {"__doc__"})  # which everything has
FUNCTIONS |= {f"{name} of a function": eval(f"lambda x: x * hasattr(helper, {name!r})", globals())
              for name in PARTS}  # fmt: skip
# What is left out of the guards: where reads must be found that have none.
PLANTED = {
    "classes": (ReadClasses, "add", ["method", "property", "special method", "absent attribute"]),
    "functions": (inlining, "rely_on_function", ["method", "property"]),
    "all that is loaded or absent": (GuardSet, "add", [
        "global", "builtin that a global would hide", "item", "item in an item",
        "module", "attribute", "data of a class", "data of a class, read there", "slot",
        "unset slot", "absent in a module", "absent attribute", "member of an enum",
    ]),
}  # fmt: skip


def audit(name: str) -> read_audit.AuditFindings:
    fn = FUNCTIONS[name]
    gh.reset()
    with audited() as findings:
        gh.optimize("eager")(fn)(gh.ones(2))
    return findings


@pytest.mark.parametrize("name", FUNCTIONS)
def test_all_that_is_read_has_a_guard(name):
    before = dict(vars(Child)), dict(vars(Base)), dict(vars(child)), dict(globals())
    findings = audit(name)
    assert findings.entries == 1 and findings.changes > 0
    assert findings.unguarded == []
    after = dict(vars(Child)), dict(vars(Base)), dict(vars(child)), dict(globals())
    assert before == after and slotted.value == 3 and not hasattr(slotted, "unset")


@pytest.mark.parametrize(
    "what, name", [(what, name) for what, (_, _, names) in PLANTED.items() for name in names]
)
def test_a_guard_that_is_left_out_is_found(monkeypatch, what, name):
    owner, method, _ = PLANTED[what]
    monkeypatch.setattr(owner, method, lambda *args: None)
    assert audit(name).unguarded


def test_a_read_without_a_guard_has_its_line(monkeypatch):
    monkeypatch.setattr(ReadClasses, "add", lambda *args: None)
    line = FUNCTIONS["special method"].__code__.co_firstlineno
    result = audit("special method").unguarded
    assert f"{__file__}:{line}: Child.__len__ is read, and has no guard" in result


def test_what_the_entry_reads_again_needs_no_guard():
    box = [1.5, "unused", [2]]

    @gh.optimize("eager")
    def fn(x):
        return x, box[2]

    with audited() as findings:
        fn(gh.ones(2))
    assert findings.entries == 1 and findings.unguarded == []


def test_an_entry_that_writes_to_what_it_read_is_counted():
    box = [1]

    @gh.optimize("eager")
    def fn(x):
        box[0] = 2 if box[0] == 1 else 3
        return x

    with audited() as findings:
        fn(gh.ones(2))
    assert (findings.entries, findings.skipped) == (0, 1)


class Answering:
    """Answers for any attribute, and can be read by any key."""

    def __getattr__(self, name):
        print("asked for", name)
        raise AttributeError(name)

    def __str__(self):
        print("written")
        return "key"


answering, key = Answering(), Answering()
BY_OBJECT = {key: 2}


@pytest.mark.parametrize(
    "fn", [lambda x: x * (answering in (1, 2)), lambda x: x * hasattr(answering, "none"),
           lambda x: x * BY_OBJECT[key]],
)  # fmt: skip
def test_an_audit_runs_no_code_of_the_user(capsys, fn):
    printed = []
    for is_audited in (False, True):
        gh.reset()
        with audited() if is_audited else nullcontext():
            gh.optimize("eager")(fn)(gh.ones(2))
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]


def test_what_decides_nothing_needs_no_guard():
    """Nothing is compared with what is looked for in an empty list, and only errors of
    `__getattr__` are told what was asked for."""
    sought, empty, box = [2], [], [Child()]

    class Holder:
        def __contains__(self, one):
            raise AttributeError("none")

    holder = Holder()

    def fn(x):
        with suppress(AttributeError):
            box[0] in holder  # noqa: B015
        return x * (sought[0] in empty)

    gh.reset()
    with audited() as findings:
        gh.optimize("eager")(fn)(gh.ones(2))
    assert findings.entries == 1 and findings.unguarded == []


def test_a_name_of_a_module_that_is_imported_and_not_used_needs_no_guard(monkeypatch):
    monkeypatch.setitem(sys.modules, MODULE.__name__, MODULE)

    @gh.optimize("eager")
    def fn(x, uses):
        from a_module_of_the_user import SCALE

        return x * SCALE if uses else x

    with audited() as unused:
        fn(gh.ones(2), False)
    with audited() as used:
        fn(gh.ones(2), True)
    assert unused.unguarded == used.unguarded == []
    assert used.changes > unused.changes  # the name is changed where it is used


def test_nothing_is_noted_without_an_audit():
    assert read_audit.new_reads() is None


def test_libraries_are_left_alone():
    assert not read_audit.is_users(gh.nn.Linear)
    assert not read_audit.is_users(inspect)
    assert not read_audit.is_users(re.Pattern)
    assert read_audit.is_users(Child) and read_audit.is_users(helper)


def test_the_rules_that_are_named_are_there():
    """`PASSING_ON` and `BY_TYPE` name rules: none that is gone."""
    names = read_audit.PASSING_ON | read_audit.BY_TYPE
    result = "\n".join(
        path.read_text() for path in Path(read_audit.__file__).parents[1].rglob("*.py")
    )
    for name in sorted(names):
        assert f"def {name.rpartition('.')[2]}(" in result, name


def test_rules_that_the_audit_names_exist():
    """One that is renamed or parted would be audited as one that depends on what it reads."""
    defined = set()
    for path in Path(gh.__file__).parent.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef):
                defined.add(node.name)
            elif isinstance(node, ast.ClassDef):
                methods = (x.name for x in node.body if isinstance(x, ast.FunctionDef))
                defined |= {f"{node.name}.{name}" for name in methods}
    assert defined >= read_audit.PASSING_ON | read_audit.BY_TYPE
