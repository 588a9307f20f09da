"""Versions of CPython that capture knows, and its behaviour on an unknown one."""

import dis
import opcode
import subprocess
import sys
import textwrap

import pytest

import glasshouse as gh
from glasshouse.base.interpreter import KNOWN_VERSIONS, NAMED, unknown_interpreter
from glasshouse.capture.bytecode import versions
from glasshouse.capture.bytecode.versions import VERSIONS, bytecode
from glasshouse.capture.rules.opcodes import HANDLERS, unknown_operation
from glasshouse.capture.rules.version_opcodes import BY_VERSION

since_3_14 = pytest.mark.skipif(sys.version_info < (3, 14), reason="syntax of 3.14")
# Operations that no function has that capture follows: of modules, classes, coroutines, except*,
# and what only the evaluator itself writes.
ELSEWHERE = set(
    "CACHE RESERVED EXTENDED_ARG INTERPRETER_EXIT EXIT_INIT_CHECK ENTER_EXECUTOR STORE_NAME "
    "DELETE_NAME LOAD_LOCALS LOAD_CLASSDEREF LOAD_FROM_DICT_OR_DEREF LOAD_FROM_DICT_OR_GLOBALS "
    "SETUP_ANNOTATIONS IMPORT_STAR PRINT_EXPR GET_AITER GET_ANEXT GET_AWAITABLE BEFORE_ASYNC_WITH "
    "END_ASYNC_FOR ASYNC_GEN_WRAP CHECK_EG_MATCH PREP_RERAISE_STAR CALL_INTRINSIC_2 "
    "JUMP_FORWARD JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT JUMP_NO_INTERRUPT "
    "LOAD_FAST_LOAD_FAST".split()
)


def operations() -> set[str]:
    """The operations of the interpreter that runs, without what it replaces while it runs."""
    least = getattr(opcode, "MIN_PSEUDO_OPCODE", 256)
    names = {name for name, number in dis.opmap.items() if number < least}
    return {name for name in names if not name.startswith("INSTRUMENTED_")}


def test_versions_that_are_known_have_a_table():
    assert [".".join(map(str, version)) for version in VERSIONS] == list(KNOWN_VERSIONS)
    assert set(BY_VERSION) <= set(VERSIONS)
    assert VERSIONS[sys.version_info[:2]] is bytecode
    assert not unknown_interpreter()


def test_each_operation_has_a_handler():
    from glasshouse.capture.bytecode.instructions import plain_name

    left = {name for name in operations() if plain_name(name) not in HANDLERS}
    assert left - ELSEWHERE == set()


def test_aliases_and_ends_of_loops_are_operations():
    assert set(bytecode.aliases) <= set(dis.opmap)
    assert {"POP_TOP", *bytecode.loop_end} <= set(dis.opmap)


@since_3_14
def test_tables_of_constants_are_those_of_the_interpreter():
    assert list(versions.COMMON_CONSTANTS) == opcode._common_constants
    assert list(versions.SPECIAL_METHODS) == opcode._special_method_names
    assert opcode._nb_ops[bytecode.subscript][0] == "NB_SUBSCR"


def test_references_of_a_name_are_counted():
    named = []
    assert sys.getrefcount(named) == NAMED
    holder = [named]
    assert sys.getrefcount(named) == NAMED + 1
    del holder


FAKED = """
import platform, sys, sysconfig, warnings
import ml_dtypes, numpy
import collections
{fake}
import glasshouse as gh
from glasshouse.compile.building import toolchain

compiled = []
def count(source, more=()):
    compiled.append(source)
    return build(source, more)
build, toolchain.compile_one = toolchain.compile_one, count

def fn(x):
    return x * 2 + 1

with warnings.catch_warnings(record=True) as kept:
    warnings.simplefilter("always")
    captured = [gh.optimize(fn), gh.optimize("eager")(fn)]
    for f in captured:
        assert f(gh.ones(3)).tolist() == [3.0] * 3
    with gh.optimize("eager"), gh.disable():
        fn(gh.ones(2))
texts = [str(x.message) for x in kept]
assert not any("Python.h" in source for source in compiled), compiled
x = gh.ones((4, 4), requires_grad=True)
(x @ x).sum().backward()
assert x.grad.shape == (4, 4)
print(len(texts), texts[0])
"""
VERSION_INFO = "collections.namedtuple('v', 'major minor micro releaselevel serial')"
FAKES = {
    "CPython 3.15": f"sys.version_info = {VERSION_INFO}(3, 15, 0, 'final', 0)",
    "free-threaded CPython": "real = sysconfig.get_config_var\n"
    "sysconfig.get_config_var = lambda name: 1 if name == 'Py_GIL_DISABLED' else real(name)",
    "PyPy": "platform.python_implementation = lambda: 'PyPy'",
}


@pytest.mark.parametrize("name", FAKES)
def test_an_unknown_interpreter_is_told_of_once_and_all_else_works(name, tmp_path):
    script = textwrap.dedent(FAKED).format(fake=FAKES[name])
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    count, _, text = ran.stdout.strip().partition(" ")
    assert count == "1"
    assert text.count("\n") == 0 and len(text) < 200
    assert name in text and "3.11 to 3.14" in text
    assert "error" not in ran.stderr


def same(source: str, *args):
    """Return the results of a function written as text, plainly and three times captured."""
    names: dict = {"gh": gh}
    exec(textwrap.dedent(source), names)
    fn = names["fn"]
    captured = gh.optimize("eager")(fn)
    for _ in range(3):
        assert captured(*args) == fn(*args)
    return captured


NOTHING = "pass"
METHODS = {name: f"def {name}(self, *a): return self" for name in ("__enter__", "__exit__")}
ASYNCHRONOUS = ["__aenter__ = __aexit__ = None", "__aenter__ = __aexit__ = lambda self, *a: 1"]


@pytest.mark.parametrize("module", ["__main__", "builtins", "a.program"])
@pytest.mark.parametrize("body", [NOTHING, *METHODS.values(), *ASYNCHRONOUS])
def test_what_is_no_context_manager_is_told_in_the_words_of_python(module, body):
    same(
        f"""
        class Outer:
            class Kind:
                __module__ = {module!r}
                {body}
        def fn(x):
            try:
                with Outer.Kind() as kind:
                    x = x + 1
            except TypeError as error:
                return str(error), x.tolist()
        """,
        gh.ones(3),
    )


@since_3_14
@pytest.mark.parametrize("tail", ["", "!r", ":>8", "!s:{width}"])
def test_template_strings(tail):
    captured = same(
        f"""
        def fn(x):
            width, n = 4, 7
            made = t"a{{n{tail}}}b{{x.sum().item(){tail}}}c"
            fields = [(i.value, i.expression, i.conversion) for i in made.interpolations]
            forms = [i.format_spec for i in made.interpolations]
            return made.strings, fields, forms, (x * 2).tolist()
        """,
        gh.ones(3),
    )
    assert unknown_operation(captured.fn.__code__) == ""


@since_3_14
def test_an_inner_function_has_deferred_annotations():
    captured = same(
        """
        def fn(x):
            size = 3
            def inner(a: size, b: "text", *, c: Missing = 1) -> list[int]:
                return a + b
            try:
                found = inner.__annotations__
            except NameError as error:
                found = str(error)
            return found, inner.__annotate__ is None, (inner(x, 1)).tolist()
        """,
        gh.ones(3),
    )
    assert captured.capture.entries


ANNOTATED = """
class Kind:
    value: {what}
def other(a: {what}): ...
def fn(x):
    what = "value" if KIND is Kind else "a"
    try:
        found = KIND.__annotations__[what]
    except NameError as error:
        found = str(error)
    return found, (x * 2).tolist()
"""


@since_3_14
@pytest.mark.parametrize("kind", ["Kind", "other"])
def test_annotations_are_made_when_they_are_asked_for(kind):
    outputs = []
    for wrap in (lambda fn: fn, gh.optimize("eager")):
        names: dict = {"gh": gh}
        exec(ANNOTATED.format(what="Missing"), names)
        names["KIND"] = names[kind]
        fn, results = wrap(names["fn"]), []
        for step in range(6):
            if step == 3:
                names["Missing"] = int
            results.append(fn(gh.ones(2)))
        names["Missing"] = str  # asked for once, they stay
        outputs.append((results, fn(gh.ones(2))))
    assert outputs[0] == outputs[1]


@since_3_14
def test_an_inner_function_that_is_returned_keeps_its_annotations():
    import annotationlib

    names: dict = {"gh": gh}
    exec(
        "def fn(x, size):\n"
        "    y = x * 2\n"
        "    def inner(a: size, b: Missing = 1) -> 'text':\n"
        "        return y\n"
        "    return inner\n",
        names,
    )
    captured = gh.optimize("eager")(names["fn"])
    forward = annotationlib.Format.FORWARDREF
    for size in (3, 3, 4, 3):
        inner = captured(gh.ones(2), size)
        result = annotationlib.get_annotations(inner, format=forward)
        assert result["a"] == size and result["return"] == "text"
        assert result["b"].__forward_arg__ == "Missing"
        assert inner(1).tolist() == [2.0, 2.0]
