"""A step of one rank of many, ahead of time: what is planned alone is what runs together."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import distributed as dist
from glasshouse.analyze import MachineProfile, step
from glasshouse.base.errors import CollectiveError, OptionError
from glasshouse.base.flags import flags
from glasshouse.ops.process import process


class SharingOptimizer:
    """An optimizer whose steps begin with the mean of all ranks' gradients: data parallel in its
    few lines."""

    def __init__(self, inner):
        self.inner, self.state, self.param_groups = inner, inner.state, inner.param_groups

    def zero_grad(self):
        self.inner.zero_grad()

    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.grad = dist.all_reduce(p.grad, "mean", replicated=True)
        self.inner.step()


def built(kind):
    gh.random.seed(0)
    model = gh.nn.Sequential(gh.nn.Linear(40, 120), gh.nn.GELU(), gh.nn.Linear(120, 30))
    return model, SharingOptimizer(getattr(gh.optim, kind)(model.parameters(), lr=1e-2))


def loss_of(scores, targets):
    return gh.nn.functional.mse_loss(scores, targets)


def shapes(batch):
    return [((batch, 40), "float32"), ((batch, 30), "float32")]


def measured(kind, batch):
    """[(peak, bytes sent as the transport counts them, as the cards say)] of two real steps."""
    results = []
    with flags.override(compile="always"), gh.memory.use(type(gh.memory.current())()):
        model, optimizer = built(kind)
        inputs = [gh.asarray(np.ones(shape, dtype)) for shape, dtype in shapes(batch)]
        gh.eval(*model.parameters())
        manager, transport = gh.memory.current(), process.transport(dist.world())
        for _ in range(2):
            manager.counts.peak_allocated_bytes = manager.stats().allocated_bytes
            before = transport.sent_bytes
            with gh.FlopCounter() as counter:
                optimizer.zero_grad()
                loss = loss_of(model(inputs[0]), inputs[1])
                loss.backward()
                optimizer.step()
                gh.eval(loss, *[p.grad for p in model.parameters()])
            sent = transport.sent_bytes - before
            results.append((manager.stats().peak_allocated_bytes, sent, counter.sent_bytes()))
            del loss
    return results, transport.counts_as


@pytest.mark.parametrize(("kind", "size"), [("SGD", 2), ("AdamW", 2), ("SGD", 4)])
def test_peak_and_bytes_sent_of_each_rank_are_as_planned(ranks, kind, size):
    for rank, (result, transport) in enumerate(ranks(measured, kind, 64, size=size)):
        with (
            flags.override(compile="always"),
            gh.memory.use(type(gh.memory.current())()),
            dist.simulated(size, rank, transport),
        ):
            model, optimizer = built(kind)
            planned = step(model, loss_of, optimizer, shapes(64))
        sent = sum(planned.sent_bytes.values())
        assert planned.sent_bytes == {("all_reduce", "world"): sent}
        assert [peak for peak, *_ in result] == planned.peaks
        assert [(n, bytes_sent) for _, n, bytes_sent in result] == [(sent, planned.sent_bytes)] * 2


def test_time_of_collectives_is_that_of_their_bytes_on_the_link():
    link = MachineProfile("here", {"matmul float32": [(1, 1e10)]}, [(1, 1e10)], 1e9, 0.0)
    link.link_bytes_per_s = 1e6
    with dist.simulated(2):
        model, optimizer = built("SGD")
        planned = step(model, loss_of, optimizer, shapes(64), machine=link)
    assert planned.communication_ns == pytest.approx(1e3 * sum(planned.sent_bytes.values()))
    assert "sent: all_reduce world" in str(planned)


def test_nothing_can_run_in_a_simulated_world():
    with dist.simulated(2), pytest.raises(CollectiveError, match="planned alone"):
        dist.all_reduce(gh.ones(3)).numpy()
    assert not dist.is_initialized()


def test_wrong_worlds_are_refused():
    with pytest.raises(OptionError, match="from 0 to 1"), dist.simulated(2, rank=2):
        pass
    with pytest.raises(CollectiveError, match="no world"), dist.simulated(2), dist.simulated(3):
        pass
