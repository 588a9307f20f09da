"""Keyword arguments of a user may have any name, also that of a parameter of the code that handles
the call: `d.update(t=1)`, `f(self=x)`."""

import ast
import collections
import functools
from pathlib import Path

import pytest

import glasshouse as gh

SOURCES = Path(gh.__file__).parent
FOLDERS = ["capture", "transforms", "base", "onnx/network.py"]  # they call functions of a user


def functions(*folders):
    """All functions of these folders and files, with the place of each."""
    for folder in folders:
        place = SOURCES / folder
        for path in [place] if place.is_file() else sorted(place.rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.FunctionDef):
                    yield f"{path.relative_to(SOURCES)}:{node.lineno}", node


def parameter_names():
    """The names of all parameters of capture's rules."""
    return sorted({x.arg for _, f in functions("capture/rules") for x in f.args.args} | {"self"})


class Called:
    def __call__(self, /, **named):
        return named

    def method(self, /, **named):
        return named

    @classmethod
    def of_class(cls, /, **named):
        return named

    @staticmethod
    def of_none(**named):
        return named


class Filled:
    def __init__(self, /, **named):
        self.named = named


class Subclass(dict):
    pass


def names_of(*args, **named):
    return args, named


def updated(*args, **named):
    whole = {"first": 0}
    whole.update(*args, **named)
    return whole


def called_in_a_handler(**named):
    try:
        raise ValueError
    except ValueError:
        return names_of(**named)


CALLS = {
    "dict": lambda **named: dict(**named),
    "dict of pairs": lambda **named: dict([("zz", 1)], **named),
    "update": updated,
    "update with pairs": lambda **named: updated([("zz", 1)], **named),
    "ordered": lambda **named: list(collections.OrderedDict(**named).items()),
    "defaultdict": lambda **named: collections.defaultdict(int, **named),
    "Counter": lambda **named: collections.Counter(**named),
    "subclass of dict": lambda **named: dict(Subclass(**named)),
    "function": names_of,
    "partial": functools.partial(names_of, 1),
    "partial of names": lambda **named: functools.partial(names_of, 1, **named)(),
    "object": Called(),
    "method": Called().method,
    "class method": Called.of_class,
    "static method": Called.of_none,
    "new object": lambda **named: Filled(**named).named,
    "format": lambda **named: " ".join(f"{{{name}}}" for name in named).format(**named),
    "handler": called_in_a_handler,
}


@pytest.mark.sample(8)
@pytest.mark.parametrize("kind", CALLS)
def test_names_of_parameters_are_free_in_a_call(kind):
    call, named = CALLS[kind], dict.fromkeys(parameter_names(), 7)
    assert len(named) > 60

    def run(x):
        return (x * 2).sum(), call(**named)

    total, result = gh.optimize(run)(gh.ones(3))
    assert total.item() == 6 and result == call(**named)


@pytest.mark.parametrize("wrap", [gh.optimize, gh.jit, gh.capture.optimize, gh.eval_shape])
def test_names_of_parameters_are_free_in_a_captured_function(wrap):
    def total(**named):
        return sum(named.values())

    named = dict.fromkeys(parameter_names(), gh.ones(2))
    result = wrap(total, **named) if wrap is gh.eval_shape else wrap(total)(**named)
    assert result.shape == (2,)


def test_parameters_before_names_of_a_user_are_positional():
    results = [
        f"{place}: {node.name}({', '.join(x.arg for x in node.args.args)}, *, **)"
        for place, node in functions(*FOLDERS)
        if node.args.vararg and node.args.kwarg and node.args.args and node.name != "__init__"
    ]
    assert not results, "put a / after these parameters, or pass the names as a dictionary"
