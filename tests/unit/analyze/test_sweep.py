"""What-ifs: costs between analysed values are what an analysis says, and nothing is recorded."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.analyze import max_batch, step, sweep
from glasshouse.analyze.step import TrainingStep, with_batch
from glasshouse.base.errors import OptionError
from glasshouse.base.flags import flags
from glasshouse.bench.cases import CASES
from glasshouse.nn.functional import blocks


def costs_of(result):
    return result.peak_bytes, result.peaks, result.counter.total()


def check(costs, result, exact=True):
    """The same to the byte; where packed operands of oneDNN come in steps, a little more."""
    assert costs.flops == result.counter.total()
    assert costs.predicted_ns == pytest.approx(result.device_ns, rel=1e-9 if exact else 0.02)
    if exact:
        assert costs.peaks == result.peaks and costs.peak_bytes == result.peak_bytes
    assert result.peak_bytes <= costs.peak_bytes <= 1.03 * result.peak_bytes


def encoder(length):
    """Tokens of attention: what it keeps grows with the square of their number."""
    return [((4, length, 64), "float32")] * 2


def attention():
    gh.random.seed(0)
    layers = (gh.nn.TransformerEncoderLayer(64, 2, 128, 0.0, batch_first=True) for _ in range(2))
    model = gh.nn.Sequential(*layers)
    return model, gh.nn.functional.mse_loss, gh.optim.AdamW(model.parameters(), lr=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "inputs_of, exact", [(encoder, False), (lambda n: [((n, 80, 64), "float32")] * 2, True)]
)
def test_values_in_between_are_told_without_an_analysis(inputs_of, exact, monkeypatch):
    model, loss, opt = attention()
    monkeypatch.setattr(blocks, "WHOLE", 1 << 40)  # loops over other numbers of blocks are analysed
    # Attention's products are six of bfloat16 from some length on, which is between these.
    with flags.override(compile="always", bf16x6=False):
        costs = sweep(model, loss, opt, inputs_of)
        for n in (80, 96, 112, 127):  # at 128 a product has 512 rows, and other steps
            assert costs(n)[:3] == costs_of(step(model, loss, opt, inputs_of(n)))
        expected = {n: step(model, loss, opt, inputs_of(n)) for n in (81, 100, 111, 126)}
        monkeypatch.setattr(TrainingStep, "analyse", None)  # from here on nothing can be analysed
        for n, result in expected.items():
            check(costs(n), result, exact)


@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
def test_compiled_loops_of_other_lengths(optimizer):
    """The work of a loop has other numbers than a kernel's: how often its products run."""
    rnn = gh.nn.RNN(64, 64, batch_first=True)
    opt = getattr(gh.optim, optimizer)(rnn.parameters(), lr=1e-3)

    def loss(out, y):
        return gh.nn.functional.mse_loss(out[0], y)

    def inputs_of(n):
        return [((n, 40, 64), "float32")] * 2

    with flags.override(compile="always", bf16x6=False):
        costs = sweep(rnn, loss, opt, inputs_of)
        for n in (80, 96, 112, 127, 90):
            check(costs(n), step(rnn, loss, opt, inputs_of(n)), exact=False)
        predicted = step(rnn, loss, opt, inputs_of(80))
    infos = [info for run in predicted.runs for info in run.plan.step_infos()]
    assert "scan" in {info.name for info in infos}
    assert [count for _, count in costs.records[80].shape.work] == [
        len(info.work.numbers) for info in infos
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet50", "vit_b_16", "alexnet"])
def test_models_of_other_batches(name):
    gh.random.seed(0)
    options, arrays = CASES[name].sizes(smoke=True)
    model = CASES[name].make(**options)
    opt = gh.optim.SGD(model.parameters(), lr=0.1)

    def inputs_of(n):
        return with_batch([gh.asarray(a) for a in arrays], n)

    with flags.override(compile="always"):
        costs = sweep(model, CASES[name].loss, opt, inputs_of)
        for n in (16, 24, 32, 20, 28, 30, 18):
            check(costs(n), step(model, CASES[name].loss, opt, inputs_of(n)), name != "vit_b_16")
        assert len(costs.records) < 7


def test_steps_of_another_shape_are_analysed():
    """A threshold in the user's code lies between the values that were analysed."""

    class Switch(gh.nn.Linear):
        def forward(self, x):
            y = super().forward(x)
            return gh.tanh(y) if x.shape[0] > 80 else y

    model = Switch(64, 64)
    opt = gh.optim.SGD(model.parameters(), lr=0.1)

    def inputs_of(n):
        return [((n, 64), "float32")] * 2

    loss = gh.nn.functional.mse_loss
    with flags.override(compile="always"):
        costs = sweep(model, loss, opt, inputs_of)
        for n in (32, 48, 64, 96, 112, 128, 72, 88):
            assert costs(n)[:3] == costs_of(step(model, loss, opt, inputs_of(n)))
    assert set(costs.records) == {32, 48, 64, 96, 112, 128, 72, 88}


def test_sizes_that_follow_no_polynomial_are_analysed():
    model = gh.nn.Linear(64, 64)
    opt = gh.optim.SGD(model.parameters(), lr=0.1)

    def inputs_of(n):
        return [((1 << n, 64), "float32")] * 2

    costs = sweep(model, gh.nn.functional.mse_loss, opt, inputs_of)
    with flags.override(compile="always"):
        for n in (6, 7, 9, 10, 8):
            assert costs(n).flops == 2 * 2 * 64 * 64 << n
    assert 8 in costs.records


@pytest.mark.slow
def test_the_largest_batch_is_exact_where_polynomials_mislead(monkeypatch):
    model, loss, opt = attention()
    inputs = encoder(32)
    with flags.override(compile="always"):
        peaks = {n: step(model, loss, opt, with_batch(inputs, n)).peak_bytes for n in (21, 22)}
        budget = int(np.mean([peaks[21], peaks[22]]))
        assert max_batch(model, loss, opt, inputs, budget) == 21
        right = sweep.between
        monkeypatch.setattr(sweep, "between", lambda self, n: wrong(right(self, n)))
        assert max_batch(model, loss, opt, inputs, budget) == 21
        with pytest.raises(OptionError, match="at least"):
            max_batch(model, loss, opt, inputs, 1000)


def wrong(record):
    """A record that says less than is true."""
    return record and record._replace(numbers=record.numbers * 0.9)


def test_the_former_name_warns_and_works():
    model, inputs_of = gh.nn.Linear(8, 8), lambda n: [((n, 8), "float32")] * 2
    opt = gh.optim.SGD(model.parameters(), lr=0.1)
    with pytest.warns(DeprecationWarning, match="sweep"):
        costs = gh.analyze.vary(model, gh.nn.functional.mse_loss, opt, inputs_of, dtypes=())
    assert costs(4) == sweep(model, gh.nn.functional.mse_loss, opt, inputs_of, dtypes=())(4)
