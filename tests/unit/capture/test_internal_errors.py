"""An error of the capture itself: calls are Python's, and one warning says so."""

import warnings

import pytest

import glasshouse as gh
from glasshouse.capture.emit.replacement import ReplacementEmitter
from glasshouse.capture.rules.opcodes import HANDLERS
from glasshouse.capture.sessions import session
from glasshouse.capture.trace.tracer import CaptureTracer

PLACES = {
    "an instruction": (HANDLERS, "COMPARE_OP"),
    "the first frame": (CaptureTracer, "enter"),
    "the guards": (session, "GuardCompiler"),
    "the replacement": (ReplacementEmitter, "function"),
}


@pytest.fixture(autouse=True)
def falls_back():
    with gh.capture.config.override(raise_internal_errors=False):
        yield


@pytest.fixture(params=PLACES)
def fault(request, monkeypatch):
    """An error in one place of the capture; the words of the exception."""
    holder, name = PLACES[request.param]

    def fail(*args, **kwargs):
        raise AttributeError("a part that is not there")

    put = monkeypatch.setitem if holder is HANDLERS else monkeypatch.setattr
    put(holder, name, fail)
    return "AttributeError('a part that is not there')"


def scaled(x, number):
    if number > 3:
        raise ValueError(number)
    return x * number + 1


def told(fn, numbers) -> list[str]:
    """The warnings of calls that give what Python gives."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for number in numbers:
            assert fn(gh.ones(3), number).tolist() == scaled(gh.ones(3), number).tolist()
    assert {x.filename for x in caught} <= {__file__}  # the user's line
    return [str(x.message) for x in caught]


def test_one_warning_names_the_exception_and_what_to_do(fault):
    fn = gh.optimize(scaled)
    (message,) = told(fn, (1, 2, 3, 1))
    assert fault in message and "test_internal_errors.py:" in message
    assert "raise_internal_errors" in message and "gh.disable" in message
    assert any(fault in reason for _, reason, _ in fn.capture.breaks)


def test_the_users_own_error_is_raised_where_the_capture_fails(fault):
    fn = gh.optimize(scaled)
    with pytest.warns(UserWarning, match="an error inside the capture"):
        for _ in range(2):
            with pytest.raises(ValueError, match="^4$"):
                fn(gh.ones(3), 4)


def breaking(graph, example_inputs):
    """A compiler whose graphs raise from their second call on."""
    calls = []

    def run(*args):
        calls.append(args)
        if len(calls) > 1:
            raise AttributeError("a part that is not there")
        return graph.forward(*args)

    return run


def test_a_graph_that_raises_what_python_does_not_is_one_warning():
    fn = gh.optimize(compiler=breaking)(scaled)
    (message,) = told(fn, (2, 2, 2))
    assert "an error of the captured graph, AttributeError('a part that is not there')" in message
    assert "test_internal_errors.py:" in message and "raise_internal_errors" in message


def tried(x, number):
    try:
        return scaled(x, number)
    except AttributeError:  # which Python may have caught as well
        return x


def test_no_warning_of_an_error_that_the_user_may_have_caught():
    assert told(gh.optimize(compiler=breaking)(tried), (2, 2, 2)) == []


def test_the_configuration_raises_the_error_of_a_graph():
    fn = gh.optimize(compiler=breaking)(scaled)
    fn(gh.ones(3), 2)
    with (
        gh.capture.config.override(raise_internal_errors=True),
        pytest.raises(AttributeError, match="a part that is not there"),
    ):
        fn(gh.ones(3), 2)


def test_no_warning_where_nothing_fails():
    assert told(gh.optimize(scaled), (1, 2, 3)) == []


def test_the_configuration_raises_it(fault):
    fn = gh.optimize(scaled)
    with (
        gh.capture.config.override(raise_internal_errors=True),
        pytest.raises(AttributeError, match="a part that is not there"),
    ):
        fn(gh.ones(3), 2)
