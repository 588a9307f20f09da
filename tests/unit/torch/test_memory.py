"""How tensors lie in memory: layouts, views, aliases, sizes that vary, dtypes."""

import warnings

import pytest

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.library_warnings,
    pytest.mark.filterwarnings("ignore:.*isinstance.*LeafSpec.*"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def by_reference(monkeypatch):
    """Programs are computed by the cards' references: nothing is compiled, which takes time."""
    from glasshouse.base.flags import flags

    monkeypatch.setattr(flags, "compile", "never")


def compiled(function, **options):
    from glasshouse.torch.backend.entry_point import glasshouse

    return torch.compile(function, backend=glasshouse, options={"strict": True}, **options)


def assert_as_eager(function, *calls, **options) -> None:
    """Values, dtypes and strides of each call are those of eager."""
    ours = compiled(function, **options)
    with torch.no_grad():
        for args in calls:
            results, expected = ours(*args), function(*args)
            if isinstance(expected, torch.Tensor):
                results, expected = [results], [expected]
            for x, y in zip(results, expected, strict=True):
                torch.testing.assert_close(x, y)
                assert x.stride() == y.stride()


def test_results_lie_with_the_gaps_of_eager():
    def function(x):
        left, right = (x * 2).split([2, 3], dim=1)
        repeated = (x + 1).sum((0, 1), keepdim=True).expand(3, 5, 4)
        return left, right, repeated, x.chunk(2, 1)[1], (x - 1)[:, 1:3]

    assert_as_eager(function, [torch.randn(3, 5, 4)])


def test_a_view_is_of_the_memory_that_was_given():
    """The compiled graph does not remember where in its storage the first input lay."""
    function = compiled(lambda x: x.t())
    base = torch.arange(24.0).reshape(6, 4)
    for x in (base[2:4], base[:2], base[4:]):
        view = function(x)
        assert torch.equal(view, x.t())
        assert view.data_ptr() == x.data_ptr()


@pytest.mark.parametrize("grad", [False, True])
def test_results_that_are_views_of_one_value_share_its_memory(grad):
    def function(x):
        y = x * 2
        part = y[1:]
        part.mul_(3)
        return y, part, y.t()

    whole, part, turned = compiled(function)(torch.randn(3, 3, requires_grad=grad))
    with torch.no_grad():
        whole.zero_()
    assert not part.any() and not turned.any()


def test_equal_values_have_memory_of_their_own():
    def function(x):
        a, b = x * 2, x * 2
        return a, a[1:], b, b[1:]

    a, a_part, b, b_part = compiled(function)(torch.ones(40, 40))
    a.zero_()
    assert not a_part.any() and b.all() and b_part.all()


@pytest.mark.parametrize("cut", [slice(None), slice(0, 4)])
def test_aliased_inputs_are_mutated_as_in_eager(cut):
    def function(a, b):
        a.add_(1)
        return a * b, b + 1

    def call(function):
        x = torch.arange(6.0)
        return [*function(x[cut], x[2:] if cut.stop else x), x]

    for ours, theirs in zip(call(compiled(function)), call(function)):
        assert torch.equal(ours, theirs)


DTYPES = "float16 bfloat16 float64 int8 uint8 bool complex64".split()


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes_in_both_orders_of_axes(dtype, by_reference):
    x = torch.arange(24).reshape(2, 3, 4).to(getattr(torch, dtype))

    def function(x):
        matrix = x.reshape(6, 4)
        product = matrix if x.dtype == torch.bool else matrix.mT @ matrix
        moved = x.permute(2, 0, 1).contiguous(), x.transpose(0, 1) * 1, x[..., ::2]
        return x * x, x + x, x.sum(), x.reshape(-1)[3], product, *moved

    assert_as_eager(function, [x], [x.transpose(0, 2).contiguous().transpose(0, 2)])


@pytest.mark.slow
def test_inputs_with_gaps_and_repeats():
    base = torch.randn(10, 10)
    inputs = base[::2, ::2], base[1::2, 1::2], base.t()[:5, :5], base[:1, :5].expand(5, 5)
    assert_as_eager(lambda x: (x * 2, x.sum(1), x @ x), *[[x] for x in inputs])


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 0, 3)])
def test_tensors_without_elements(shape, by_reference):
    def function(x):
        joined, product = torch.cat([x, x]), x @ x.mT
        return x + 1, x.sum(0), product, joined, x.mT, torch.softmax(x, -1)

    assert_as_eager(function, [torch.zeros(shape)])


@pytest.mark.parametrize("value", [2.5, 2])
def test_scalars(value, by_reference):
    def function(x):
        return x + 1, x.sum(), x.reshape(1), x.expand(3), x.unsqueeze(0), torch.stack([x, x])

    assert_as_eager(function, [torch.tensor(value)])


@pytest.mark.slow
def test_sizes_that_are_symbols(by_reference):
    def image(n):
        return [torch.randn(n, 3, n + 1, 5).to(memory_format=torch.channels_last)]

    def function(x):
        y = torch.nn.functional.interpolate(x, scale_factor=2, mode="bilinear")
        return x * 2, x.permute(1, 0, 2, 3) + 1, (x * 3)[:, 1:], x[:, 1:], y, x.sum() * x.shape[0]

    assert_as_eager(function, *map(image, (3, 5, 7)), dynamic=True)


def test_a_step_of_pytorch_with_sizes_that_are_symbols():
    calls = [[torch.eye(n) * 4] for n in (3, 5, 7)]
    assert_as_eager(lambda x: torch.linalg.cholesky(x) * 2, *calls, dynamic=True)


def test_programs_for_many_sizes_are_bounded_and_advice_is_given(monkeypatch):
    from glasshouse.torch.backend import runtime

    programs = []

    class Kept(runtime.TorchGraphProgram):
        def __init__(self, *args):
            super().__init__(*args)
            programs.append(self)

    monkeypatch.setattr(runtime, "MOST_VARIANTS", 3)
    monkeypatch.setattr("glasshouse.torch.backend.graph_cache.TorchGraphProgram", Kept)
    function = compiled(lambda x: x * 2 + 1, dynamic=True)
    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("always")
        for n in range(2, 9):
            x = torch.randn(n, 3)
            torch.testing.assert_close(function(x), x * 2 + 1)
    assert len(programs) == 1 and len(programs[0].variants) == 3
    assert sum("Pad inputs" in str(warning.message) for warning in messages) == 1


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.sin(),
        lambda x: x.sin().T,
        lambda x: x.sin()[:, ::2],
        lambda x: x.cos().sum(1, keepdim=True).expand(4, 3).clone(),
    ],
)
def test_results_may_be_written_to_in_place(function, by_reference):
    x = torch.randn(4, 6, requires_grad=True)

    def results(call):
        y = call(x)
        y[y > 0.5] = 2.0
        return y, *torch.autograd.grad(y.square().sum(), x)

    for ours, theirs in zip(results(compiled(function)), results(function)):
        torch.testing.assert_close(ours, theirs)
