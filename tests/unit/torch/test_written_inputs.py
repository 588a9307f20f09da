"""Graphs without gradients that write to their inputs do so in the inputs' own memory."""

import pytest

torch = pytest.importorskip("torch")

import glasshouse as gh  # noqa: E402
from glasshouse.torch.lowering.variant import CompiledVariant  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
SIZE = 64, 65  # more than a result has that no manager hands out


@pytest.fixture
def in_place(monkeypatch):
    """How many outputs of each Program lie in inputs."""
    results, original = [], CompiledVariant.find_in_place

    def find(self, inputs):
        results.append(original(self, inputs))
        return results[-1]

    monkeypatch.setattr(CompiledVariant, "find_in_place", find)
    return results


def momentum(p, g, m, rate):
    m.mul_(0.9).add_(g)
    p.add_(m, alpha=-rate)


def adam(p, g, m, v):
    m.lerp_(g, 0.1)
    v.mul_(0.99).addcmul_(g, g, value=0.01)
    p.mul_(1 - 0.01).addcdiv_(m, v.sqrt().add_(1e-8), value=-0.1)


def swap(a, b):
    kept = a.clone()
    a.copy_(b)
    b.copy_(kept)


def returns_more(a, b):
    a.add_(b)
    return a * 2, a.transpose(2, 3), a


def reads_elsewhere(a, b):
    a.copy_(a.flip(0))
    b.add_(a.sum())


def in_another_dtype(a, b):
    a.copy_(b.double() * 2)


CASES = [
    (lambda *x: momentum(*x, 0.1), 3, 2),
    (adam, 4, 3),
    (swap, 2, None),
    (returns_more, 2, None),
    (reads_elsewhere, 2, None),
    (in_another_dtype, 2, None),
]


@pytest.mark.parametrize("layout", ["plain", "channels_last", "with gaps"])
@pytest.mark.parametrize(("fn", "count", "expected"), CASES)
def test_inputs_get_what_eager_gives_them(fn, count, expected, layout, in_place):
    def tensors():
        torch.manual_seed(0)
        results = [torch.rand(2, 8, *SIZE) for _ in range(count)]
        if layout == "channels_last":
            results = [x.contiguous(memory_format=torch.channels_last) for x in results]
        return [x[..., 1:] if layout == "with gaps" else x for x in results]

    mine, theirs = tensors(), tensors()
    compiled = torch.compile(fn, backend="glasshouse", options={"strict": True})
    places, versions = [x.data_ptr() for x in mine], [x._version for x in mine]
    with torch.no_grad():
        for _ in range(3):
            got, want = compiled(*mine), fn(*theirs)
            torch.testing.assert_close(got, want)
            torch.testing.assert_close(mine, theirs)
    assert [x.data_ptr() for x in mine] == places
    assert mine[0]._version > versions[0]
    if expected is not None:
        assert len(in_place[0]) == (0 if layout == "with gaps" else expected)


def test_parameters_that_are_written_to_are_read_anew():
    """Values that a Program makes of parameters are kept until they are written to."""
    layer = torch.nn.Linear(64, 64)
    call = torch.compile(layer, backend="glasshouse")
    update = torch.compile(lambda p: p.mul_(2), backend="glasshouse")
    x = torch.rand(16, 64)
    with torch.no_grad():
        for _ in range(4):
            torch.testing.assert_close(call(x), layer(x))
            update(layer.weight)


OPTIMIZERS = [
    (torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.1}, 2),
    (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}, 2),
    (torch.optim.SGD, {"momentum": 0.9, "dampening": 0.1}, 2),
    (torch.optim.AdamW, {}, 3),
    (torch.optim.Adam, {"weight_decay": 0.1, "amsgrad": True}, 4),
    (torch.optim.RMSprop, {"momentum": 0.9, "centered": True}, None),
    (torch.optim.Adagrad, {"lr_decay": 0.1}, None),
    (torch.optim.NAdam, {}, None),
]


@pytest.mark.parametrize(("kind", "options", "count"), OPTIMIZERS)
def test_a_captured_step_updates_in_place(kind, options, count, in_place):
    """Also where a schedule changes the rate, and bias is corrected by the number of the step."""

    def run(optimise):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
        optimizer = kind(model.parameters(), lr=0.01, **options)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        places = [p.data_ptr() for p in model.parameters()]

        def step(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            schedule.step()
            return loss

        step = optimise(step)
        losses = [step(torch.full((8, 64), (i + 1) / 10)).item() for i in range(6)]
        assert [p.data_ptr() for p in model.parameters()] == places
        return losses, list(model.parameters()), optimizer.state_dict()["state"]

    torch.testing.assert_close(run(gh.optimize), run(lambda fn: fn), rtol=1e-4, atol=1e-5)
    if count is not None:  # of the tensors that an update writes to for each parameter
        assert max(map(len, in_place)) == 4 * count


def test_numbers_that_tensors_hold_are_read_behind_what_writes_to_them():
    def fn(x, y):
        x.add_(1)
        first = x.item()
        y.mul_(2).add_(1).mul_(first).add_(first).mul_(3).add_(2).mul_(first).add_(1)
        x.add_(y.sum())
        second = x.item()
        y.mul_(second).add_(1).mul_(first).add_(second).mul_(3).add_(2).mul_(first).add_(1)
        return first, second, x

    captured = gh.optimize(fn)
    for _ in range(4):
        outcomes = []
        for run in (fn, captured):
            x, y = torch.ones(()), torch.linspace(-1, 1, 4)
            outcomes.append((*run(x, y), x, y))
        torch.testing.assert_close(*outcomes)
    assert captured.hits
