"""Objects whose classes answer special methods as they like, in captured functions of PyTorch:
called, passed, compared. Results, errors and calls of
these methods are those of plain Python."""

import pytest

torch = pytest.importorskip("torch")

import glasshouse as gh  # noqa: E402

LOG: list[str] = []


def answering(name, answer):
    """A class whose method `name` notes that it was asked, and answers or raises."""

    def method(self, *args):
        LOG.append(name)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return type("Answering", (), {name: method})


CLASSES = {
    "equal": answering("__eq__", True),
    "never equal": answering("__eq__", ValueError("asked for equality")),
    "hash": answering("__hash__", 7),
    "no hash": answering("__hash__", ValueError("asked for a hash")),
    "any attribute": answering("__getattr__", torch.Tensor),
    "no attribute": answering("__getattr__", ValueError("asked for an attribute")),
    "false": answering("__bool__", False),
    "no bool": answering("__bool__", ValueError("asked for a bool")),
    "length": answering("__len__", 0),
    "callable": answering("__call__", 3),
    "contains": answering("__contains__", True),
    "no name": type("Nameless", (), {"__name__": property(lambda self: LOG.append("name"))}),
}
USES = {
    "call": lambda x, o: o(2),
    "call with a tensor": lambda x, o: o(x),
    "pass to a function": lambda x, o: torch.add(x, o),
    "pass to a method": lambda x, o: x.add(o),
    "multiply": lambda x, o: x * o,
    "keyword": lambda x, o: torch.sum(x, dim=o),
    "compare": lambda x, o: (x.sum(), o == 3, o != 3),
    "in a list": lambda x, o: (x + 1, o in [3, o]),
    "in a dict": lambda x, o: (x + 1, len({o: 1})),
    "if": lambda x, o: x + 1 if o else x - 1,
    "kind": lambda x, o: (x + 1, isinstance(o, torch.Tensor), callable(o)),
    "attribute": lambda x, o: (x + 1, getattr(o, "weight", None)),
    "not": lambda x, o: (x + 1, not o),
}


def outcome(fn, x, o):
    """The result or error of a call, and the methods that it asked."""
    LOG.clear()
    try:
        result = fn(x, o)
    except Exception as error:
        result = f"{type(error).__name__}: {error}".split(" at 0x")[0]
    answer = result if isinstance(result, tuple) else (result,)
    shown = [y.tolist() if isinstance(y, torch.Tensor) else str(y) for y in answer]
    return shown, list(LOG)


@pytest.fixture(autouse=True)
def _errors_of_capture_are_raised(monkeypatch):
    monkeypatch.setattr(gh.capture.config, "raise_internal_errors", True)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("kind", CLASSES)
def test_objects_are_asked_what_python_asks(kind, use):
    x = torch.tensor([1.0, 2.0])
    captured = gh.optimize("eager")(USES[use])
    for _ in range(2):
        o = CLASSES[kind]()
        assert outcome(captured, x, o) == outcome(USES[use], x, o)
