"""Whether a call is PyTorch's is decided without running the user's code, whatever a value is."""

import functools
import types
import weakref

import pytest

torch = pytest.importorskip("torch")

import glasshouse as gh  # noqa: E402
from glasshouse.torch.front.claims import is_of_torch  # noqa: E402


class Ran(AssertionError):
    """The user's code ran."""


def answers(*names):
    def answer(self, *args):
        raise Ran(f"{type(self).__name__}: {names} ran")

    return dict.fromkeys(names, property(answer)) | {"__getattr__": answer}


METHODS = ("__getattribute__", "__iter__", "__len__", "__getitem__", "__bool__", "__eq__")
WATCHED = ("__class__", "__dict__", "__module__", "__name__", "func", "args", "values")


def watched_class(*bases, meta=type):
    """A class all of whose lookups raise Ran."""
    body = answers(*WATCHED)

    def ran(self, *args):
        raise Ran(type(self))

    body |= dict.fromkeys(METHODS, ran) | {"__hash__": object.__hash__}
    return meta("Watched", bases, body)


class WatchedMeta(type):
    __module__ = property(lambda cls: ran_in_meta())
    __name__ = property(lambda cls: ran_in_meta())


def ran_in_meta():
    raise Ran("the metaclass ran")


class Owner:
    pass


def dead_proxy(call: bool):
    owner = (lambda: 1) if call else Owner()
    return weakref.proxy(owner)


def module_of_user():
    kind = type("Space", (types.ModuleType,), answers("__class__", "__dict__", "__name__"))
    return kind("space")


VALUES = {
    "object": lambda: watched_class()(),
    "list": lambda: watched_class(list)([1]),
    "tuple": lambda: watched_class(tuple)([1]),
    "dict": lambda: watched_class(dict)(a=1),
    "partial": lambda: watched_class(functools.partial)(len, [1]),
    "module": module_of_user,
    "class": lambda: types.new_class("Odd", (), {"metaclass": WatchedMeta}),
    "object of a watched metaclass": lambda: types.new_class("O", (), {"metaclass": WatchedMeta})(),
    "dead proxy": lambda: dead_proxy(False),
    "dead callable proxy": lambda: dead_proxy(True),
    "callable": lambda: type("Call", (), answers(*WATCHED) | {"__call__": len})(),
}


def in_global(value):
    space = {"value": value}
    exec("def fn(x=None):\n    return value", space)
    return space["fn"], [None]


def in_closure(value):
    return lambda x=None: value, [None]


def in_argument(value):
    return lambda x: x, [value]


def in_parts(value):
    return lambda x: x, [([value], {"a": value}, types.SimpleNamespace(part=value))]


PLACES = {x.__name__: x for x in (in_global, in_closure, in_argument, in_parts)}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", VALUES)
def test_nothing_of_the_users_runs(kind, place):
    fn, slots = PLACES[place](VALUES[kind]())
    assert not is_of_torch(fn, slots)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", ["dead proxy", "dead callable proxy", "object", "module"])
def test_the_call_goes_on(kind, place):
    value = VALUES[kind]()
    fn, slots = PLACES[place](value)
    captured = gh.optimize("eager")(fn)
    for _ in range(3):
        assert captured(*slots) is fn(*slots)


def test_tensors_and_functions_of_torch_are_still_found():
    tensor = torch.ones(2)
    for value in (tensor, [tensor], torch.nn.Linear(1, 1), functools.partial(torch.add, tensor)):
        assert all(is_of_torch(*place(value)) for place in (in_global, in_closure, in_argument))
    for value in (torch, torch.add, torch.nn, torch.nn.functional.relu, torch.ops.aten.add):
        assert is_of_torch(*in_global(value)) and is_of_torch(*in_closure(value))
