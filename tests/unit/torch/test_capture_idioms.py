"""Idioms of PyTorch's own tests of torch.compile, captured: slices of sizes, checks, kinds of
attention, loggers that keep messages back, numbers of NumPy."""

import copy
import functools
import logging
import sys
import threading
import types
import typing
from enum import IntEnum
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

sys.path.append(str(Path(__file__).parents[3] / "tools" / "judges"))

import capture_torch_tests as judge  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts, ExponentialLR  # noqa: E402

import glasshouse as gh  # noqa: E402
from glasshouse.capture.guards.program import brief  # noqa: E402
from glasshouse.torch.front.claims import kind_of, names_torch  # noqa: E402

LOGGER = logging.getLogger("glasshouse.test_capture_idioms")
ALIKE = {"rtol": 1e-5, "atol": 1e-6}


class Options(typing.TypedDict):
    scale: float


class Reversed(typing.NamedTuple):
    a: torch.Tensor
    b: torch.Tensor

    def __getitem__(self, index):
        return (self.b, self.a)[index]


class Place(IntEnum):
    X = 0
    Y = 1

    @classmethod
    def both(cls):
        return slice(cls.X, cls.Y + 1)

    if sys.version_info < (3, 13):

        @classmethod
        @property
        def BOTH(cls):
            return slice(cls.X, cls.Y + 1)


def slices_of_sizes(x):
    s = x.shape
    return s[-2:], s[:1], s[::-1], s[:0], x.size()[1:], s[1:] + s[:1], s[1:] * 2


def texts_of_sizes(x):
    s = x.shape
    return f"{s[-2:]} {s[0]:.2f}", str(s[:1]), repr(s[1:]), str(type(s[1:]))


def sizes_that_are_used(x):
    rows, *others = x.shape[-2:]
    return x.view(*x.shape[:-1], -1, 2), torch.zeros(x.shape[1:]), x.shape[1:].numel(), rows, others


def checks(x):
    torch._check(x.shape[0] > 0)
    torch._check_value(x.dim() == 2, lambda: "two axes")
    return x + 1


def one_kind_of_attention(x):
    q = x.view(1, 1, *x.shape)
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(q, q, q)


def numbers_of_numpy(x):
    return x.reshape(np.prod(x.shape)) * np.sqrt(2.0), x + np.max((1, 3)) + np.mean([1.0, 2.0])


def sets_of_keys(x):
    a, b = {"p": x, "q": x + 1}, {"q": 1, "r": 2}
    names = sorted(a.keys() & b.keys()), sorted(a.keys() - {"q"}), sorted({"z"} | b.keys())
    return names, sorted(a.keys() ^ b.keys()), a["p"] + len(a.keys() | b.keys())


def typed_dict(x):
    options = Options(scale=2.0)
    return x * options["scale"], type(options)


def quiet_logger(x):
    LOGGER.debug("a shape %s", x.shape)
    LOGGER.info(f"{x.shape}")
    return x + 1


def fields_of_a_tuple(x):
    both = Reversed(x, x + 1)
    return both.a, both.b, both[0]


def places(x):
    x = x.clone()
    x[..., Place.both()] *= 2
    return x


def property_of_a_class(x):
    return x[..., Place.BOTH] * 2


IDIOMS = [
    slices_of_sizes,
    texts_of_sizes,
    sizes_that_are_used,
    checks,
    one_kind_of_attention,
    numbers_of_numpy,
    sets_of_keys,
    typed_dict,
    quiet_logger,
    fields_of_a_tuple,
    places,
]
IDIOMS += [property_of_a_class] * (sys.version_info < (3, 13))


def assert_same(wanted, got) -> None:
    assert type(wanted) is type(got)
    if isinstance(wanted, torch.Tensor):
        torch.testing.assert_close(got, wanted, **ALIKE)
    elif isinstance(wanted, (list, tuple)):
        assert len(wanted) == len(got)
        for pair in zip(wanted, got, strict=True):
            assert_same(*pair)
    else:
        assert wanted == got


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("compiler", ["eager", "program"])
@pytest.mark.parametrize("fn", IDIOMS, ids=lambda fn: fn.__name__)
def test_one_graph_does_what_eager_does(fn, compiler, dynamic):
    captured = gh.optimize(compiler, nopython=True, dynamic=dynamic)(fn)
    for sizes in ((4, 4), (4, 4), (6, 4), (6, 2)):
        x = torch.randn(sizes)
        assert_same(fn(x), captured(x))


def test_a_failed_check_raises_what_eager_raises():
    def fn(x):
        torch._check(x.shape[0] < 5, lambda: "too many")
        return x + 1

    captured = gh.optimize("eager")(fn)
    assert_same(fn(torch.ones(4)), captured(torch.ones(4)))
    with pytest.raises(RuntimeError, match="too many"):
        captured(torch.ones(6))


@pytest.mark.parametrize("compiler", ["eager", "program"])
def test_kinds_of_attention_are_put_back(compiler):
    captured = gh.optimize(compiler)(one_kind_of_attention)
    x = torch.randn(4, 4)
    for _ in range(3):
        assert_same(one_kind_of_attention(x), captured(x))
        assert torch.backends.cuda.flash_sdp_enabled()
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        assert_same(one_kind_of_attention(x), captured(x))
        assert not torch.backends.cuda.math_sdp_enabled()
    assert torch.backends.cuda.math_sdp_enabled()


def test_a_logger_that_begins_to_tell_is_heard(monkeypatch):
    records, handler = [], logging.Handler()
    monkeypatch.setattr(handler, "emit", records.append)
    monkeypatch.setattr(LOGGER, "handlers", [handler])
    captured = gh.optimize("eager")(quiet_logger)
    for _ in range(3):
        captured(torch.ones(2))
    assert not records
    LOGGER.setLevel(logging.INFO)
    try:
        captured(torch.ones(2))
    finally:
        LOGGER.setLevel(logging.NOTSET)
    assert [x.getMessage() for x in records] == ["torch.Size([2])"]
    captured(torch.ones(2))
    assert len(records) == 1


@pytest.mark.parametrize("compiler", ["eager", "program"])
def test_draws_from_one_number_to_another(compiler):
    def fn(x, **words):
        return x.clone().random_(**words), x.clone().uniform_(**{"from": 1, "to": 2})

    captured, ends = gh.optimize(compiler)(fn), {"from": -10, "to": 10}
    for _ in range(3):
        torch.manual_seed(3)
        wanted = fn(torch.zeros(500), **ends)
        torch.manual_seed(3)
        whole, between = captured(torch.zeros(500), **ends)
        assert {*whole.tolist()} == {*range(-10, 10)}
        assert between.min() >= 1 and between.max() < 2 and between.unique().numel() > 400
        if compiler == "eager":  # Programs have draws of their own
            assert_same(wanted, (whole, between))


def test_who_overrides_functions_is_guarded():
    class Overrides:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    def fn(x):
        return torch.overrides.has_torch_function_unary(x)

    captured = gh.optimize("eager")(fn)
    values = [Overrides(), 4, torch.ones(2), Overrides(), "x"]
    assert [captured(x) for x in values] == [fn(x) for x in values]


def test_an_optimized_container_has_the_items_of_its_module():
    module = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    for optimized in (gh.optimize(module), copy.deepcopy(gh.optimize(module))):
        assert len(optimized) == 2 and bool(optimized)
        assert [type(x) for x in optimized] == [nn.Linear, nn.ReLU]
        assert type(optimized[1]) is nn.ReLU and type(optimized[:1]) is nn.Sequential
        assert {"training", "forward", "0"} - {*dir(module)} == {"0"} - {*dir(optimized)}
    optimized = gh.optimize(module)
    optimized[1] = nn.Tanh()
    assert type(module[1]) is nn.Tanh
    table = gh.optimize(nn.ModuleDict({"a": nn.Linear(2, 2)}))
    assert "a" in table and list(table) == ["a"]
    alone = gh.optimize(nn.Linear(2, 2))
    assert bool(alone) and not hasattr(alone, "__len__")
    assert {"weight", "bias"} <= {*dir(alone)}


class Trainer:
    def __init__(self):
        self.model, self.x = nn.Linear(3, 3), torch.ones(2, 3)

    def step(self):
        return self.model(self.x).sum()


def counter_of(x):
    def counter():
        nonlocal x
        x = x + 1
        return x

    return counter


def call_twice(fn):
    return fn() + fn()


TRAINER = Trainer()
OF_ANOTHER_FILE = types.ModuleType("of_another_file")
exec("import torch\ndef loss(x): return torch.sin(x).sum()\n", vars(OF_ANOTHER_FILE))


def step_of_a_global():
    return TRAINER.step()


def loss_of_another_file():
    return OF_ANOTHER_FILE.loss(TRAINER.x)


@pytest.mark.parametrize(
    "fn, makes",
    [
        (call_twice, lambda: counter_of(torch.ones(3))),
        (call_twice, lambda: functools.partial(torch.mul, TRAINER.x, 2)),
        (call_twice, lambda: functools.partial(lambda x: x * 2, x=TRAINER.x)),
        (call_twice, lambda: TRAINER.step),
        (call_twice, lambda: lambda: TRAINER.x),
        (step_of_a_global, None),
        (loss_of_another_file, None),
        (TRAINER.step, None),
    ],
)
def test_functions_that_lead_to_tensors_of_torch_are_captured(fn, makes):
    captured = gh.optimize("eager", nopython=True)(fn)
    for _ in range(3):
        inputs = [] if makes is None else [makes()]
        again = [] if makes is None else [makes()]
        assert_same(fn(*inputs), captured(*again))


def test_functions_that_lead_to_each_other_end():
    class Ring:
        pass

    def first(x):
        return second(x)

    def second(x):
        return first(x) if x > 9 else ring.other

    ring = Ring()
    ring.call, ring.other = first, ring
    assert kind_of(ring) is None and not names_torch(first)
    assert gh.optimize("eager")(first)(1) is ring


def test_functions_given_to_ours_stay_ours():
    def fn(f):
        return f(gh.ones(2)) + 1

    captured = gh.optimize("eager", nopython=True)(fn)
    assert captured(lambda x: x * 2).tolist() == [3, 3]


class AddsOne(nn.Module):
    def forward(self, x):
        return x + 1


class Counts:
    def __init__(self):
        self.graphs = 0

    def compiler(self, gm: torch.fx.GraphModule, inputs):
        self.graphs += 1
        return gm.forward


def test_compilers_may_be_methods_and_take_more_by_name():
    counts = Counts()

    def with_options(gm, example_inputs, *, mode=None, **options):
        return counts.compiler(gm, example_inputs)

    def of_any(gm, *inputs):
        return counts.compiler(gm, *inputs)

    def of_two(graph, inputs):  # a compiler only by its use as a decorator of one
        counts.graphs += 1
        return graph

    for compiler in (counts.compiler, with_options, of_any, of_two):
        for target in (lambda x: x + 1, AddsOne(), AddsOne().forward):
            captured = gh.optimize(compiler)(target)
            assert_same(torch.ones(2) + 1, captured(torch.ones(2)))
    assert counts.graphs == 12
    assert_same(TRAINER.step(), gh.optimize(TRAINER.step)())  # a method without a graph is a target


class Precise:
    local = threading.local()
    local.digits = 1

    def forward(self, x):
        before, self.local.digits = self.local.digits, 5
        try:
            return x * self.local.digits
        finally:
            self.local.digits = before


def test_attributes_of_a_threads_own_are_set():
    precise = Precise()
    captured = gh.optimize("eager")(precise.forward)
    for _ in range(3):
        assert_same(torch.ones(2) * 5, captured(torch.ones(2)))
        assert precise.local.digits == 1


def test_breaks_where_nothing_is_learnt_any_more():
    def node_of(x):
        return x.clone().grad_fn if x.grad_fn is None else x.grad_fn

    def fn(a, b):
        nodes = list(map(node_of, (a, b, a * b)))
        return [type(x).__name__ for x in nodes]

    captured = gh.optimize("eager")(fn)
    inputs = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    for _ in range(3):
        assert (
            captured(*inputs) == fn(*inputs) == ["CloneBackward0", "CloneBackward0", "MulBackward0"]
        )


def test_a_value_that_cannot_say_itself_fails_no_call():
    class Silent(torch.Tensor):
        def __repr__(self):
            raise RuntimeError("says nothing")

    Silent.__module__ = "torch"
    assert brief(torch.ones(2).as_subclass(Silent)).startswith("<torch.Silent")


def new_scheduler():
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.05)
    optimizer.step()
    return optimizer, ExponentialLR(optimizer, gamma=0.9)


def makes_a_scheduler(optimizer, _):
    return ExponentialLR(optimizer, gamma=0.5)


def sets_and_sets_back(optimizer, scheduler):
    scheduler.gamma = 0.5
    scheduler.step()
    scheduler.gamma = 0.9


def sets_around(optimizer, scheduler):
    for group in optimizer.param_groups:
        group["lr"] = 0.5
        scheduler.step()
        group["lr"] = group["lr"] * 0.7 + 0.01


def sets_between(optimizer, scheduler):
    group = optimizer.param_groups[0]
    scheduler.step()
    group["lr"] = 0.3
    scheduler.step()
    scheduler.gamma = 0.8


SCHEDULES = [makes_a_scheduler, sets_and_sets_back, sets_around, sets_between]


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
@pytest.mark.parametrize("fn", SCHEDULES, ids=lambda fn: fn.__name__)
def test_what_is_written_around_a_schedulers_step_is_in_order(fn):
    def state_after(fn):
        optimizer, scheduler = new_scheduler()
        for _ in range(2):
            scheduler = fn(optimizer, scheduler) or scheduler
        return optimizer.param_groups[0]["lr"], scheduler.state_dict()

    captured = gh.optimize("eager")(fn)
    for _ in range(3):
        wanted, got = state_after(fn), state_after(captured)
        assert wanted[0] == got[0]
        for name, value in wanted[1].items():
            assert got[1][name] == value, name


def test_a_schedulers_step_is_captured_for_all_epochs():
    def fn(scheduler, epoch, i):
        scheduler.step(epoch + i / 4)

    captured = gh.optimize("eager", nopython=True)(fn)
    (optimizer, _), (other, _) = new_scheduler(), new_scheduler()
    pair = [CosineAnnealingWarmRestarts(x, 5) for x in (optimizer, other)]
    for epoch in range(4):
        for i in range(4):
            fn(pair[0], epoch, i)
            captured(pair[1], epoch, i)
            assert optimizer.param_groups[0]["lr"] == other.param_groups[0]["lr"]
    assert len(captured.entries) <= 3


def test_warnings_of_a_schedulers_step_name_the_users_line():
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.05)
    scheduler = ExponentialLR(optimizer, gamma=0.9)
    with pytest.warns(UserWarning, match="before `optimizer.step") as messages:
        gh.optimize("eager")(lambda: scheduler.step())()
    assert {Path(x.filename).name for x in messages} == {Path(__file__).name}


TESTS = """
import torch, unittest
from torch._dynamo.testing import CompileCounter, is_not_in_torch

class Tests(unittest.TestCase):
    def test_same(self):
        count = CompileCounter()
        fn = torch.compile(lambda x: x + 1, backend=count, fullgraph=True)
        self.assertEqual(fn(torch.ones(2)).sum().item(), 4)
        self.assertEqual(count.frame_count, 7)

    def test_breaks(self):
        torch.compile(lambda x: print(x), backend="eager", fullgraph=True)(torch.ones(2))

    @is_not_in_torch
    def test_other(self):
        self.assertEqual(torch.compile(lambda x: x, backend="eager").__name__, "<lambda>")
        self.assertIs(type(torch.compile(lambda x: x, backend="eager")), type(lambda: 1))

if __name__ == "__main__":
    unittest.main()
"""


@pytest.mark.slow
def test_the_judge_tells_breaks_from_other_ends(tmp_path):
    folder = tmp_path / "test" / "dynamo"
    folder.mkdir(parents=True)
    (folder / "test_small.py").write_text(TESTS)
    result = judge.compare(str(tmp_path), "small")
    kinds = {name.rpartition("_")[2]: kind for name, (kind, *_) in result.items()}
    assert kinds == {"same": "same", "breaks": "breaks", "other": "other"}
