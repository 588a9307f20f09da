"""Where a captured training step's calls are: modules, passes and lines, as of torch.compile."""

import re

import pytest
import torch
from torch import nn

import glasshouse as gh
from glasshouse.dispatch.bind import state
from glasshouse.profile.advice.evidence import Evidence
from glasshouse.profile.advice.host import no_capture

pytestmark = pytest.mark.library_warnings
HERE = re.compile(r".*test_capture_places\.py:\d+")
X = torch.linspace(-1, 1, 32).reshape(4, 8)


class Block(nn.Module):
    def __init__(self, between=None):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
        self.between = between

    def forward(self, x):
        y = self.inner(x) * 3
        if self.between is not None:
            self.between()
        return y.exp()


class Model(nn.Module):
    def __init__(self, between=None):
        super().__init__()
        self.first, self.head = Block(between), nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.first(x)) + 1


def training(between=None, captured=True):
    """A model and its training step, after the calls in which it compiles."""
    torch.manual_seed(0)
    model = Model(between)
    optimizer = torch.optim.AdamW(model.parameters())
    call = model if captured else torch.compile(model, backend="glasshouse")

    def step():
        optimizer.zero_grad()
        loss = call(X).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = gh.optimize(step) if captured else step
    for _ in range(4):
        step()
    return model, step


def profiled(step):
    with gh.profile() as prof:
        step()
    return prof.kernels()


def flops_by_place(rows) -> dict:
    """FLOPs of Programs' kernels, by module and pass."""
    rows = [row for row in rows if row.kind != "op"]
    places = sorted({(row.module, row.phase) for row in rows})
    return {p: sum(r.flops for r in rows if (r.module, r.phase) == p) for p in places}


@pytest.mark.slow
def test_modules_and_passes_are_those_of_torch_compile():
    model, step = training()
    result = flops_by_place(profiled(step))
    _, compiled_step = training(captured=False)
    theirs = flops_by_place(profiled(compiled_step))
    alike = [(m, "forward") for m in ("first", "first.inner.0", "head")]
    alike += [("first.inner.0", "backward"), ("first.inner.1", "backward")]
    for place in alike:
        assert result[place] == theirs[place] > 0
    assert result["head", "backward"] > 0 and result["Model", "forward"] > 0
    assert result["", "optimizer"] > 10 * sum(p.numel() for p in model.parameters())


@pytest.mark.slow
def test_steps_between_programs_belong_to_their_pass():
    _, step = training()
    steps_of_adam = [row for row in profiled(step) if row.name == "aten::add_"]
    assert steps_of_adam and {row.phase for row in steps_of_adam} == {"optimizer"}


def test_steps_end_with_the_optimizers_pass():
    _, step = training()
    with gh.profile() as prof:
        for _ in range(3):
            step()
    assert len(prof.trace.loop_steps()) == 3


@pytest.mark.slow
def test_captured_steps_are_not_advised_to_be_captured():
    _, step = training()
    with gh.profile(with_stack=True) as prof:
        for _ in range(3):
            step()
    result = Evidence(prof.trace)
    assert not [*no_capture(result)]
    assert any(group.in_graph for group in result.groups)
    lines = {pause.after for pause in result.pauses} | {g.line for g in result.groups}
    assert all(HERE.match(line) for line in lines if line), lines


@pytest.mark.slow
def test_counts_list_modules_in_the_order_in_which_they_run():
    _, step = training()
    with gh.FlopCounter() as count:
        step()
    names = [line.split()[0] for line in count.table().splitlines() if line]
    assert names.index("first") < names.index("head")


@pytest.mark.slow
def test_kernels_have_the_users_lines():
    _, step = training()
    lines = {row.line for row in profiled(step) if row.phase == "forward" and row.module}
    assert lines and all(HERE.match(line) for line in lines), lines


@pytest.mark.slow
def test_what_follows_a_break_belongs_to_its_module():
    model, step = training(gh.graph_break)
    result = flops_by_place(profiled(step))
    assert result["first.inner.0", "forward"] and result["first", "forward"]
    assert result["head", "forward"] and result["head", "backward"]


def raising():
    raise ValueError("between")


def test_the_place_is_that_of_before_behind_an_error():
    model = Model(raising)

    @gh.optimize
    def caught(x):
        try:
            return model(x)
        except ValueError:
            return model.head(x)

    @gh.optimize
    def uncaught(x):
        return model(x)

    for _ in range(4):
        assert caught(X).shape == (4, 2)
        with pytest.raises(ValueError, match="between"):
            uncaught(X)
        assert state.scope is None and state.phase == "forward"


@pytest.mark.slow
def test_the_pass_is_that_of_before_behind_an_error_in_a_step():
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @gh.optimize
    def step(x):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        return torch.linalg.cholesky(-model(x).detach().square())

    for _ in range(4):
        with pytest.raises(RuntimeError):
            step(X[:2])
        assert state.scope is None and state.phase == "forward"


def test_writes_without_gradients_do_not_part_a_graph():
    """Stochastic depth and masks are made in place, between calls that have gradients."""
    graphs = []

    def counting(graph, inputs):
        graphs.append(graph)
        return graph.forward

    weight = torch.ones(8, requires_grad=True)

    @gh.optimize(counting)
    def step(x):
        weight.grad = None
        for _ in range(3):
            kept = torch.empty(4, 1).bernoulli_(0.5).div_(0.5)
            mask = torch.zeros(8)
            mask[:4] = 1
            x = x * weight * kept + mask
        x.sum().backward()
        return x.detach()

    for _ in range(4):
        step(X)
    assert len(graphs) == 1
