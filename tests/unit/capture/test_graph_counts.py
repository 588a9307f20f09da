"""How many graphs capture makes: of each function as few as TorchDynamo, and none again later."""

import copy
import dataclasses
import gc
import inspect
import itertools
from collections import OrderedDict

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import nn

X = gh.arange(4.0)


class GraphCounter:
    """A compiler that runs graphs as they are and counts them."""

    def __init__(self):
        self.count = 0

    def __call__(self, graph_module, example_inputs):
        self.count += 1
        return graph_module.forward


def count_graphs(fn, *calls) -> int:
    """The graphs of all these calls (tuples of arguments), which give what plain calls give."""
    counter = GraphCounter()
    captured = gh.optimize(counter)(fn)
    for args in calls:
        want, got = fn(*args), captured(*args)
        assert type(got) is type(want)
        same = gh.array_equal(got, want) if isinstance(want, gh.Tensor) else got == want
        assert same, (want, got)
    return counter.count


def no_grad_across_a_break(x):
    with gh.no_grad():
        y = x * 2
        gh.graph_break()
        y = y + 1
    return y * 3


def nested_no_grad_across_a_break(x):
    with gh.no_grad():
        y = x * 2
        with gh.enable_grad():
            gh.graph_break()
            y = y * 2
        y = y + 1
    return y * 3


def scaled(x, factor=3.0, *, shift=0.5):
    return x * factor + shift


def passes_what_the_signature_takes(x):
    options = {"factor": 2.0, "unknown": 9.0}
    names = inspect.signature(scaled).parameters
    words = {name: value for name, value in options.items() if name in names}
    return scaled(x, **words) + names["shift"].default + len(names)


def numbers_of_numpy_made_inside(x):
    return x * np.float32(2) + x.sum(np.int64(0)) + float(np.sqrt(np.float64(4)))


def annotated(x):
    y: gh.Tensor = x + 1
    count: int = 2

    def inner(z: gh.Tensor, by: float = 2.0) -> gh.Tensor:
        return z * by

    return inner(y) * count


def dunder_called(x):
    return x.__add__(1).__mul__(x)


def layers_made_inside(x):
    both = nn.Sequential(nn.ReLU(), nn.LeakyReLU(0.5))
    return nn.Softmax(-1)(both(x - 1)) + nn.MSELoss()(x, x * 2)


def loss_made_inside(x):
    return nn.CrossEntropyLoss(label_smoothing=0.1)(x.reshape(1, 4), gh.asarray([2]))


class Output(OrderedDict):
    """The result of a model: entries that are attributes too."""

    def __post_init__(self):
        for field in dataclasses.fields(self):
            if getattr(self, field.name) is not None:
                self[field.name] = getattr(self, field.name)

    def __getitem__(self, key):
        entries = dict(self.items())
        return entries[key] if isinstance(key, str) else tuple(entries.values())[key]

    def __setattr__(self, name, value):
        if name in self.keys() and value is not None:
            super().__setitem__(name, value)
        super().__setattr__(name, value)

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)


@dataclasses.dataclass
class Scores(Output):
    scores: object = None
    hidden: object = None


class Counted(list):
    def __init__(self, *items):
        super().__init__(items)
        self.size = len(items)


def output_made(x):
    instance = Scores(scores=x + 1)
    instance.hidden = x * 2
    return instance.scores * instance["scores"] + instance[0]


def list_with_attributes(x):
    instance = Counted(x, x + 1)
    instance.count = instance.size + 1
    return sum(instance) * instance.count


@pytest.mark.parametrize(
    ("fn", "most"),
    [
        (output_made, 1),
        (list_with_attributes, 1),
        (layers_made_inside, 1),
        (loss_made_inside, 1),
        (annotated, 1),
        (dunder_called, 1),
        (passes_what_the_signature_takes, 1),
        (numbers_of_numpy_made_inside, 1),
        (no_grad_across_a_break, 2),
        (nested_no_grad_across_a_break, 2),
    ],
)
def test_a_function_needs_few_graphs(fn, most):
    assert count_graphs(fn, *[(X,)] * 3) <= most


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64, np.int8, np.bool_])
def test_numbers_of_numpy_are_free(kind):
    def fn(x, n):
        return x * n + (n + n)

    calls = [(X, kind(n)) for n in (2, 3, 0, -4)]
    assert count_graphs(fn, *calls) == 1


def test_numbers_of_numpy_that_decide_are_guarded_to_the_bit():
    def fn(x, n):
        return x.sum() + 1 if n > 2 else x * np.copysign(np.float32(1), n)

    numbers = [np.float32(3), np.float32(0.0), np.float32(-0.0), np.float32("nan"), np.float64(3)]
    captured = gh.optimize("eager")(fn)
    for n in numbers * 2:
        assert captured(X, n).tolist() == fn(X, n).tolist()
        assert captured(X, n).dtype == fn(X, n).dtype


def test_a_signature_is_asked_again_when_defaults_change():
    def changing(x, by=2):
        return x * by

    def fn(x):
        return x * inspect.signature(changing).parameters["by"].default

    captured = gh.optimize("eager")(fn)
    assert captured(X).tolist() == fn(X).tolist()
    changing.__defaults__ = (5,)
    assert captured(X).tolist() == fn(X).tolist() == (X * 5).tolist()


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.Sequential(nn.LayerNorm(4), nn.ReLU())

    def forward(self, x):
        return self.norm(self.linear(x))


@pytest.mark.parametrize("collected", [True, False])
def test_layers_that_each_call_makes_are_captured_twice_and_then_found(collected):
    model = Normed()

    def copied(x):
        return copy.deepcopy(model)(x) + model(x)

    def trained(x):
        layer = copy.deepcopy(model.linear)
        layer(x).sum().backward()
        return layer.weight.grad

    def drawn(x):
        gh.random.seed(0)
        return nn.Linear(4, 2)(x)

    for fn in (copied, trained, drawn):
        counter = GraphCounter()
        captured = gh.optimize(counter)(fn)
        for _ in range(5):
            assert gh.allclose(captured(X.reshape(1, 4)), fn(X.reshape(1, 4)))
            if collected:
                gc.collect()
        assert counter.count == 2


def test_a_chain_that_crosses_a_break_costs_no_other_function_a_graph():
    def crossing(x):
        it = itertools.chain([1, 2], [3])
        x = x + next(it)
        gh.graph_break()
        return x * next(it)

    def fn(x):
        for n in itertools.chain([1, 2], [3]):
            x = x + n
        return x

    count_graphs(crossing, *[(X,)] * 3)
    assert count_graphs(fn, *[(X,)] * 3) == 1


def test_a_container_of_the_users_leaves_with_its_attributes():
    def fn(x):
        instance = Scores(scores=x + 1)
        instance.hidden = x * 3
        counted = Counted(x)
        del counted.size
        return instance, counted

    captured = gh.optimize("eager")(fn)
    for _ in range(3):
        instance, counted = captured(X)
        assert (type(instance), [*instance.keys()], [*vars(instance)]) == (
            Scores,
            ["scores"],
            ["scores", "hidden"],
        )
        assert instance.hidden.tolist() == (X * 3).tolist()
        assert instance["scores"] is instance.scores
        assert (type(counted), vars(counted)) == (Counted, {})
    assert captured.hits == 2


def test_a_layer_made_inside_is_called_as_it_is_at_the_call():
    def fn(x):
        layer = nn.LeakyReLU(0.5)
        y = layer(x - 2)
        layer.negative_slope = 0.1
        return y + layer(x - 2)

    def evaluated(x):
        return nn.Dropout(0.5).eval()(x)

    for each in (fn, evaluated):
        captured = gh.optimize("eager")(each)
        for _ in range(3):
            assert captured(X).tolist() == each(X).tolist()


def test_each_call_makes_its_own_layer():
    kept = []

    def fn(x):
        kept[:] = [nn.ReLU(), *kept]
        return kept[0](x)

    captured = gh.optimize("eager", dynamic=True)(fn)
    for _ in range(3):
        captured(X)
    assert len(set(map(id, kept))) == 3


def test_branches_in_a_row_share_their_resume_functions():
    def fn(sign):
        x = gh.ones(3) * sign
        if x.sum() > 0:
            x = x + 1
        if x.sum() > 3:
            x = x - 1
        if x.sum() > 4:
            x = x * 2
        return x * 3

    assert count_graphs(fn, *[(sign,) for sign in (1.0, -1.0, 2.0, -2.0, 5.0)]) <= 2 * 3 + 1 + 1


@pytest.mark.parametrize("outside", [True, False])
def test_no_grad_that_a_break_interrupts_ends_as_in_python(outside):
    weight = gh.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)

    def fn(x):
        with gh.no_grad():
            gh.graph_break()
            y = x * weight
        z = y * weight
        return y.requires_grad, z.requires_grad, gh.is_grad_enabled()

    captured = gh.optimize("eager")(fn)
    for enabled in (outside, not outside, outside):
        with gh.set_grad_enabled(enabled):
            for _ in range(2):
                assert captured(X) == fn(X) == (False, enabled, enabled)
                assert gh.is_grad_enabled() is enabled


def test_no_grad_that_an_error_leaves_behind_a_break_ends():
    def fn(x):
        try:
            with gh.no_grad():
                gh.graph_break()
                x = x * 2
                raise ValueError("inside")
        except ValueError:
            return x + int(gh.is_grad_enabled())

    assert count_graphs(fn, *[(X,)] * 3) == 1
