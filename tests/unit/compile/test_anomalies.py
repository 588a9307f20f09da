"""`gh.detect_anomaly`: the first NaN or infinity of compiled code, with module, line and call."""

import gc

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import nn
from glasshouse.base.flags import flags
from glasshouse.compile.programs import anomalies, program

LINE = "test_anomalies.py:"


class Net(nn.Module):
    def __init__(self, kind="log"):
        super().__init__()
        self.first, self.second, self.kind = nn.Linear(4, 8), nn.Linear(8, 1), kind
        self.inner = Bad(kind)

    def forward(self, x):
        return self.second(self.inner(self.first(x)))


class Bad(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind

    def forward(self, x):
        if self.kind == "sqrt":  # whose gradient at 0 is infinite
            return gh.sqrt(x * x)
        x = nn.functional.relu(x)
        return gh.log(x) if self.kind == "log" else gh.exp(x * 1000.0)


def step_of(net, optimizer):
    def step(x):
        optimizer.zero_grad()
        loss = (net(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    return gh.optimize(step)


@pytest.mark.parametrize(
    ("kind", "op"), [("log", "log"), ("sqrt", "div"), ("exp", "exp")], ids=lambda x: x
)
def test_a_captured_step_names_module_line_and_call(kind, op):
    gh.random.seed(0)
    net = Net(kind)
    optimizer = gh.optim.AdamW(net.parameters(), lr=0.0 if kind == "sqrt" else 1e-3)
    x = gh.asarray(np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32))
    with gh.no_grad():
        net.first.bias.copy_({"log": 9.0, "sqrt": 0.0, "exp": -9.0}[kind] * gh.ones(8))
    with gh.detect_anomaly():
        step = step_of(net, optimizer)
        for _ in range(3):
            step(x)
        before = {name: p.numpy().copy() for name, p in net.state_dict().items()}
        with pytest.raises(gh.AnomalyError) as error:
            step(x * (0.0 if kind == "sqrt" else 1e4)).item()
    message = str(error.value)
    assert f"first from {op} of" in message
    assert "Net.inner" in message
    assert LINE in message
    if kind == "sqrt":
        assert "backward" in message
    for name, p in net.state_dict().items():
        np.testing.assert_array_equal(p.numpy(), before[name])
    assert np.isfinite(step(x).item())  # the mode has ended, the state is as it was


def test_what_is_computed_at_once_is_named_too():
    with gh.detect_anomaly(), pytest.raises(gh.AnomalyError, match="-inf first from log of"):
        gh.log(gh.asarray([0.0, 1.0])).sum().item()
    with gh.detect_anomaly(), pytest.raises(gh.AnomalyError, match="NaN first from sub of"):
        x = gh.asarray([np.inf, 1.0])
        (x - x).sum().item()


def test_masks_and_given_infinities_are_no_anomalies():
    with gh.detect_anomaly():
        scores = gh.where(gh.asarray([True, False]), gh.asarray([1.0, 2.0]), -np.inf)
        assert scores.tolist() == [1.0, -np.inf]
        assert gh.asarray([np.inf, 2.0]).tolist() == [np.inf, 2.0]
        assert (gh.asarray([np.inf, 2.0]) + 1).tolist() == [np.inf, 3.0]
        assert nn.functional.softmax(scores, axis=-1).tolist() == [1.0, 0.0]


def test_an_infinity_that_does_not_reach_a_result_is_none():
    with gh.detect_anomaly():
        x = gh.asarray([0.0, 1.0])
        y = gh.where(x > 0, gh.log(x), 0.0).tolist()  # an assertion would keep the logarithm
    assert y == [0.0, 0.0]


def test_a_nan_that_was_there_before_is_told_apart():
    x = gh.asarray([np.nan, 1.0])
    with gh.detect_anomaly(), pytest.raises(gh.AnomalyError, match="NaN in an input"):
        (x + 1).sum().item()


def test_a_function_captured_before_says_so():
    fn = gh.optimize(lambda x: gh.log(x))
    for _ in range(3):
        fn(gh.ones(4))
    with gh.detect_anomaly(), pytest.raises(gh.AnomalyError, match="before the function is"):
        fn(gh.zeros(4)).sum().item()


@pytest.mark.parametrize("seed", range(3))
def test_a_call_among_many_is_found(seed):
    """A chain of random calls, one of which makes a NaN of a finite number."""
    rng = np.random.default_rng(seed)
    at = int(rng.integers(2, 18))
    names = rng.choice(["sin", "tanh", "exp", "abs", "square"], 20).tolist()

    def chain(x):
        for i, name in enumerate(names):
            x = gh.tanh(getattr(gh, name)(x))
            if i == at:
                x = gh.sqrt(x - 2.0)
        return x

    with gh.detect_anomaly(), pytest.raises(gh.AnomalyError, match="NaN first from sqrt of"):
        chain(gh.asarray(rng.standard_normal((40, 50)).astype(np.float32))).sum().item()


DTYPES = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_of_large_results_a_row_and_a_column_are_looked_at_each_time(monkeypatch, dtype):
    monkeypatch.setattr(anomalies, "PART", -1)
    fn, results = gh.optimize(lambda x: gh.log(x)), []
    with gh.detect_anomaly():
        for place in ((0, 99), (299, 0), (7, 9)):
            x = np.ones((300, 100))
            x[place] = 0
            try:
                fn(gh.asarray(x, dtype=dtype)).numpy()
                results.append(False)
            except gh.AnomalyError:
                results.append(True)
    assert results == [True, True, False]


def test_large_results_are_looked_at_in_turn(monkeypatch):
    fn = gh.optimize(lambda x: x * 2)
    x = np.ones((300, 100), np.float32)
    for part in (-1, 10**9):
        monkeypatch.setattr(anomalies, "PART", part)
        with gh.detect_anomaly():
            fn(gh.asarray(x)).numpy()
            x[7, 9] = np.nan
            if part > 0:
                with pytest.raises(gh.AnomalyError, match="NaN in an input"):
                    fn(gh.asarray(x)).numpy()
            else:
                fn(gh.asarray(x)).numpy()
        x[7, 9] = 1


@pytest.mark.parametrize("clip", [False, True])
def test_parameters_are_overwritten_where_gradients_are_seen_before(clip):
    """Not where an update reads what lies in the arena, such as a norm of all gradients."""
    gh.random.seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = gh.optim.AdamW(net.parameters(), lr=0.1)

    @gh.optimize
    def step(x):
        optimizer.zero_grad()
        (net(x) ** 2).mean().backward()
        if clip:
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()

    anomalies.looks_at.clear()
    with gh.detect_anomaly():
        for _ in range(5):
            step(gh.ones((5, 4)))
    more = any(looks.donated > looks.spare for looks in anomalies.looks_at.values())
    assert more is not clip


def test_an_infinity_of_an_update_is_an_optimizers():
    gh.random.seed(0)
    net = nn.Linear(4, 8, bias=False)
    step = step_of(net, gh.optim.SGD(net.parameters(), lr=1e4))
    with gh.detect_anomaly():
        for _ in range(6):
            step(gh.full((5, 4), 1e-6)).item()
        with pytest.raises(gh.AnomalyError, match="optimizer"):
            step(gh.full((5, 4), 1e18)).item()


def test_an_update_follows_a_given_infinity():
    """The run is stopped at the infinity before the update, and goes on."""
    gh.random.seed(0)
    net = nn.Linear(4, 8)
    optimizer = gh.optim.AdamW(net.parameters(), lr=0.1)

    @gh.optimize
    def step(x):
        optimizer.zero_grad()
        net(x).sum().backward()
        optimizer.step()
        return gh.where(x > 0, x, -np.inf)

    with gh.detect_anomaly():
        for _ in range(4):
            step(gh.ones((5, 4)))
        before = net.bias.numpy().copy()
        assert step(gh.zeros((5, 4))).tolist() == [[-np.inf] * 4] * 5
    np.testing.assert_allclose(net.bias.numpy(), before - 0.1, atol=1e-2)


def test_code_with_steps_of_the_host_is_looked_at():
    fn = gh.optimize(lambda x: gh.log(gh.linalg.svdvals(x) - 1.0) * 2)
    with gh.detect_anomaly():
        for _ in range(3):
            assert np.isfinite(fn(gh.eye(4) * 3).numpy()).all()
        with pytest.raises(gh.AnomalyError, match="NaN first from log of"):
            fn(gh.eye(4) * 0.5).numpy()


def test_a_program_that_was_looked_at_is_freed(monkeypatch):
    monkeypatch.setattr(program, "programs", {})
    gc.collect()
    before = len(anomalies.looks_at)
    fn = gh.optimize(lambda x: gh.sin(x) * 3)
    with gh.detect_anomaly():
        for _ in range(3):
            fn(gh.ones(7)).numpy()
    assert len(anomalies.looks_at) > before
    del fn
    program.programs.clear()
    gh.reset()
    gc.collect()
    assert len(anomalies.looks_at) <= before


def test_the_mode_ends_with_its_scope():
    with gh.detect_anomaly():
        assert flags.detect_anomaly
        with gh.detect_anomaly(False):
            assert not flags.detect_anomaly
    assert not flags.detect_anomaly
