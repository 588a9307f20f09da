"""bind and the modes: order, nesting, replacement, threads."""

import threading

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.errors import DTypeError, OptionError
from glasshouse.dispatch import Mode, define, find, primitives


class Names(Mode):
    """The names of the primitives that pass, tagged."""

    def __init__(self, log, tag=""):
        self.log, self.tag = log, tag

    def process(self, primitive, args, attrs, below):
        self.log.append(self.tag + primitive.name)
        return below(primitive, args, attrs)


def test_modes_see_calls_from_the_inside_out():
    log = []
    with Names(log, "outer "), Names(log, "inner "):
        gh.ones(2) + gh.ones(2)
    assert log[-2:] == ["inner add", "outer add"]


def test_a_mode_may_replace_a_call():
    class Instead(Mode):
        def process(self, primitive, args, attrs, below):
            if primitive.name == "sub":
                return below(primitives["add"], args, attrs)
            return below(primitive, args, attrs)

    with Instead():
        assert (gh.ones(2) - gh.ones(2)).tolist() == [2.0, 2.0]
    assert (gh.ones(2) - gh.ones(2)).tolist() == [0.0, 0.0]


def test_what_a_mode_computes_itself_goes_below_it():
    class Doubles(Mode):
        calls = 0

        def process(self, primitive, args, attrs, below):
            self.calls += 1
            result = below(primitive, args, attrs)
            return result + result if primitive.name == "exp" else result

    mode, log = Doubles(), []
    with Names(log), mode:
        assert gh.exp(gh.zeros(())).item() == 2.0
    assert "add" in log
    assert mode.calls == log.index("add")


def test_one_mode_may_be_entered_again():
    log = []
    mode = Names(log)
    with mode, mode:
        gh.exp(gh.asarray(0.0))
    assert log.count("exp") == 2
    assert gh.dispatch.active_modes() == ()


def test_vmap_inside_a_counter_is_counted_as_it_runs():
    shapes = []

    class Shapes(Mode):
        def process(self, primitive, args, attrs, below):
            if primitive.name == "exp":
                shapes.append(args[0].shape)
            return below(primitive, args, attrs)

    with Shapes():
        gh.vmap(gh.exp)(gh.ones((5, 2)))

    def inside(x):
        with Shapes():
            return gh.exp(x)

    gh.vmap(inside)(gh.ones((5, 2)))
    assert shapes == [(5, 2), (2,)]


def test_backward_passes_through_the_door():
    log = []
    x = gh.tensor([1.0], requires_grad=True)
    y = gh.sin(x).sum()
    with Names(log):
        y.backward()
    assert "cos" in log and "mul" in log


def test_modes_belong_to_their_thread():
    log = []

    def work():
        gh.exp(gh.asarray(0.0))

    with Names(log):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert log == []


def test_cards_are_called_with_values_only():
    with pytest.raises(DTypeError, match=r"add: expected tensors.*numpy.ndarray"):
        primitives["add"](np.ones(2), np.ones(2))


def test_unknown_cards_suggest_the_nearest():
    with pytest.raises(OptionError, match="'matmul'"):
        find("matmull")


def test_a_name_is_defined_once():
    card = primitives["exp"]
    with pytest.raises(OptionError, match="twice"):
        define(
            "exp",
            "elementwise",
            "again",
            why="",
            infer=card.infer,
            ref=card.ref,
            batch=card.batch,
            flops=card.flops,
            samples=(),
        )


def test_verify_reports_a_wrong_kernel_by_name(monkeypatch):
    backend = gh.backends.load("numpy")
    monkeypatch.setitem(backend.kernels, "exp", lambda x: np.float64(x))
    with (
        gh.backends.use(backend),
        gh.base.flags.flags.override(verify=True),
        pytest.raises(AssertionError, match=r"exp on numpy.*float64"),
    ):
        gh.exp(gh.ones(2))
