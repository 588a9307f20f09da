"""The mode that checks itself finds seeded faults, and nothing where there is none."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import nn, optim
from glasshouse.base.flags import flags
from glasshouse.capture.emit.replacement import ReplacementEmitter
from glasshouse.capture.guards.guard_set import GuardSet

X = gh.asarray(np.random.default_rng(0).normal(size=(8, 4)).astype("float32"))


def training(optimizer=optim.AdamW):
    gh.random.seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 2))
    opt = optimizer(model.parameters(), lr=0.01)

    def step(x):
        opt.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        opt.step()
        return loss

    return model, step


# -- without a fault -------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_training_step_is_verified_and_nothing_of_the_callers_changes():
    model, step = training()
    before = [p.numpy().copy() for p in model.parameters()]
    draws = gh.random.default_generator().state()
    report = gh.verify(step, X)
    assert report and report.calls == 3 and "do what plain Python does" in str(report)
    after = [p.numpy() for p in model.parameters()]
    assert all(map(np.array_equal, before, after))
    assert all(p.grad is None for p in model.parameters())
    assert gh.random.default_generator().state() == draws


@pytest.mark.slow
def test_verified_calls_do_what_captured_ones_do():
    def run(**options):
        model, step = training()
        fast = gh.optimize(step, **options)
        losses = [fast(X).item() for _ in range(4)]
        assert fast.hits == 2
        return losses, [p.numpy() for p in model.parameters()]

    losses, parameters = run()
    verified_losses, verified = run(verify=True)
    assert losses == verified_losses
    assert all(np.array_equal(a, b) for a, b in zip(parameters, verified, strict=True))


@pytest.mark.slow
def test_modules_methods_and_errors():
    model, _ = training()
    fast = gh.optimize(model, verify=True)
    assert fast(X).shape == (8, 2) and len(list(fast.parameters())) == 6
    assert gh.verify(model, X)

    class Counter:
        def __init__(self):
            self.count = 0

        def add(self, x):
            self.count += 1
            if self.count == 3:
                raise ValueError("three")
            return x + self.count

    counter = Counter()
    add = gh.optimize(counter.add, verify=True)
    assert [add(gh.ones(1)).item() for _ in range(2)] == [2.0, 3.0]
    with pytest.raises(ValueError, match="three"):
        add(gh.ones(1))


def test_the_flag_verifies():
    with flags.override(verify=True):
        fast = gh.optimize(lambda x: x * 2)
    assert type(fast).__name__ == "VerifiedFunction"
    assert type(gh.optimize(lambda x: x * 2)).__name__ == "Dispatcher"


# -- with one --------------------------------------------------------------------------------------


@pytest.fixture
def wrong_exp():
    with gh.backends.load("lazy").replace("exp", lambda a: np.exp(a) * np.float32(1.01)):
        yield


class Exponential(nn.Module):
    def forward(self, x):
        return gh.exp(x * 2) + 1


def test_a_wrong_kernel_is_named_with_line_module_and_error(wrong_exp):
    model = nn.Sequential(nn.Linear(4, 4), Exponential(), nn.Linear(4, 2))
    report = gh.verify(model, X)
    assert not report and report.kernel.primitive == "exp"
    assert report.kernel.module == "Sequential.1" and report.kernel.max_error == pytest.approx(
        0.01, rel=1e-3
    )
    assert "test_verify.py:" in report.kernel.line and report.kernel.shape == (8, 4)


def test_a_wrong_kernel_fails_a_verified_call(wrong_exp):
    fast = gh.optimize(lambda x: gh.exp(x).sum(), verify=True)
    with pytest.raises(gh.CaptureError, match=r"(?s)kernel of exp.*test_verify\.py:\d+"):
        fast(X)


def test_a_guard_that_is_missing_is_named(monkeypatch):
    settings = {"double": False}

    def fn(x):
        return x * 2 if settings["double"] else x

    fast, add = gh.optimize(fn, verify=True), GuardSet.add

    def without(self, kind, source, value):
        if "double" not in source.text:
            add(self, kind, source, value)

    with monkeypatch.context() as patch:
        patch.setattr(GuardSet, "add", without)
        with pytest.raises(
            gh.CaptureError, match=r"settings.*\['double'\] is read, and has no guard"
        ):
            fast(gh.ones(2))
        gh.reset()
        assert fast._captured(gh.ones(2)).tolist() == [1.0, 1.0]  # captured in an unchecked call
    settings["double"] = True
    with pytest.raises(gh.CaptureError, match=r"(?s)guard should have failed.*settings.*'double'"):
        fast(gh.ones(2))


def test_an_effect_that_is_lost_is_named(monkeypatch):
    table = {"sum": None}

    def fn(x):
        table["sum"] = x.sum()
        return x * 2

    effects = ReplacementEmitter.effects
    with monkeypatch.context() as patch:
        patch.setattr(ReplacementEmitter, "effects", lambda self: effects(self) and [])
        fast = gh.optimize(fn, verify=True)
        fast(gh.ones(2))
        with pytest.raises(gh.CaptureError, match=r"(?s)table\['sum'\].*effect is lost"):
            for n in range(2, 5):
                fast(gh.ones(2) * n)


def test_an_operation_that_is_dropped_is_found(monkeypatch):
    from glasshouse.capture.fronts.glasshouse_front import GlasshouseFront

    adopt = GlasshouseFront.adopt

    def fn(x):
        return x * 3

    fast = gh.optimize(fn, verify=True)
    with monkeypatch.context() as patch:
        patch.setattr(GlasshouseFront, "adopt", lambda self, value, result: adopt(
            self, value, result * 2))  # fmt: skip
        with pytest.raises(gh.CaptureError, match=r"(?s)result.*plain Python has 3\.0.*mul"):
            fast(gh.ones(2))


# -- kernels in fused groups, and in backwards -----------------------------------------------------


@pytest.fixture
def make_card():
    """Makes a card x · 3 with kernel texts for it and for its derivative, right or wrong."""
    from glasshouse.dispatch import KernelText, primitives
    from glasshouse.ops.elementwise import elementwise

    def make(text: str, slope_text: str):
        slope = elementwise(
            "wobble_slope",
            "3.",
            ref=lambda x: np.full_like(x, 3),
            dtypes="floating",
            kernel=KernelText(slope_text, cost=2),
            why="a derivative with a fault",
        )
        return elementwise(
            "wobble",
            "x · 3.",
            ref=lambda x: x * x.dtype.type(3),
            dtypes="floating",
            derivatives=(lambda y, x: slope(x),),
            kernel=KernelText(text, cost=2),
            why="a card with a fault",
        )

    yield make
    for name in ("wobble", "wobble_slope"):
        del primitives[name]


def test_a_wrong_text_within_a_fused_kernel_is_named(make_card):
    card = make_card("{x} * ({type})3.03", "({type})3 + 0 * {x}")

    def fn(x):
        y = gh.exp(x * 0.5) - 1
        z = card(y)
        return (z + 2) * y

    report = gh.verify(fn, X)
    assert not report and report.kernel.primitive == "wobble"
    assert report.kernel.max_error == pytest.approx(0.01, rel=1e-2)
    assert f"test_verify.py:{fn.__code__.co_firstlineno + 2}" in report.kernel.line


def test_a_wrong_kernel_of_a_backward_is_named_in_a_training_step(make_card):
    card = make_card("{x} * 3", "({type})3.3 + 0 * {x}")
    model, _ = training()
    opt = optim.SGD(model.parameters(), lr=0.01)

    def step(x):
        opt.zero_grad()
        loss = card(model(x)).sum()
        loss.backward()
        opt.step()
        return loss

    report = gh.verify(step, X)
    assert not report and report.kernel.primitive == "wobble_slope"
    assert f"test_verify.py:{step.__code__.co_firstlineno + 2}" in report.kernel.line


def test_a_guard_that_no_capture_makes_is_said_to_be_missing(monkeypatch):
    def fn(x, n):
        return x * 2 if n > 1 else x * 1

    add = GuardSet.add

    def without(self, kind, source, value):
        if source.text != "n":
            add(self, kind, source, value)

    monkeypatch.setattr(GuardSet, "add", without)
    fast = gh.optimize(fn, verify=True)
    assert fast(gh.ones(2), 1).tolist() == [1.0, 1.0]
    with pytest.raises(gh.CaptureError, match=r"(?s)result\[0\].*a guard is missing"):
        fast(gh.ones(2), 2)
