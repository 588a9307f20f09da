"""Values made of parameters are kept from call to call in inference, until one is written to."""

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn

pytestmark = [
    pytest.mark.library_warnings,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def in_place(layer, other):
    with torch.no_grad():
        layer.weight.mul_(2)


def one_element(layer, other):
    with torch.no_grad():
        layer.weight[3, 2, 1, 1] = 50


def by_set(layer, other):
    with torch.no_grad():
        layer.weight.set_(other.weight.detach().clone())


def by_state(layer, other):
    layer.load_state_dict(other.state_dict())


def by_assignment(layer, other):
    layer.load_state_dict(other.state_dict(), assign=True)


def by_optimizer(layer, other):
    layer.weight.grad = torch.ones_like(layer.weight)
    torch.optim.SGD(layer.parameters(), lr=0.5).step()


def by_data(layer, other):
    layer.weight.data.mul_(2)


def by_new_data(layer, other):
    layer.weight.data = other.weight.detach().clone()


def by_numpy(layer, other):
    layer.weight.detach().numpy()[...] *= 2


def by_new_parameter(layer, other):
    layer.weight = nn.Parameter(other.weight.detach().clone())


WAYS = [
    in_place,
    one_element,
    by_set,
    by_state,
    by_assignment,
    by_optimizer,
    by_data,
    by_new_data,
    by_numpy,
    by_new_parameter,
]


@pytest.fixture(scope="module")
def model():
    """A convolution whose weights oneDNN wants packed, compiled, and an input."""
    from glasshouse.torch.backend.entry_point import glasshouse

    torch.manual_seed(0)
    layer = nn.Conv2d(16, 32, 3, stride=2)
    return layer, torch.compile(layer, backend=glasshouse), torch.randn(2, 16, 9, 9)


@pytest.mark.parametrize("write", WAYS, ids=lambda way: way.__name__)
def test_results_follow_what_is_written(model, write):
    layer, function, x = model
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(function(x), layer(x), rtol=1e-4, atol=1e-4)
        before = layer(x)
    torch.manual_seed(1 + WAYS.index(write))
    write(layer, nn.Conv2d(16, 32, 3, stride=2))
    with torch.no_grad():
        assert not torch.equal(layer(x), before)
        for _ in range(2):
            torch.testing.assert_close(function(x), layer(x), rtol=1e-4, atol=1e-4)


def test_packing_is_done_once(monkeypatch):
    from glasshouse.compile.programs.executable import Program
    from glasshouse.torch.backend.entry_point import glasshouse

    begins, original = [], Program.run_steps

    def run_steps(self, table, places, arrays, outputs, ends_ns=None, **steps):
        begins.append(steps["begin"])
        return original(self, table, places, arrays, outputs, ends_ns, **steps)

    monkeypatch.setattr(Program, "run_steps", run_steps)
    layer, x = nn.Conv2d(16, 32, 5, stride=2), torch.randn(2, 16, 9, 9)
    function = torch.compile(layer, backend=glasshouse)
    with torch.no_grad():
        expected = layer(x)
        for _ in range(3):
            torch.testing.assert_close(function(x), expected, rtol=1e-4, atol=1e-4)
    assert begins[0] == 0 and begins[1] == begins[2] > 0
