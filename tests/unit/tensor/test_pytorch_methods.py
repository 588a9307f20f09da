"""PyTorch's habits with tensors: methods that write in place, sizes, creation, random numbers."""

import numpy as np
import pytest

import glasshouse as gh

X = np.array([[0.5, -1.5, 2.0], [0.25, 3.0, -0.75]])
IN_PLACE = [
    ("add_", (2.0,), {"alpha": 3}),
    ("sub_", (2.0,), {}),
    ("mul_", (X,), {}),
    ("div_", (2.0,), {"rounding_mode": "floor"}),
    ("pow_", (2,), {}),
    ("clamp_", (), {"min": -1.0, "max": 1.0}),
    ("sin_", (), {}),
    ("abs_", (), {}),
    ("sigmoid_", (), {}),
    ("tril_", (), {}),
    ("masked_fill_", (X > 1, 9.0), {}),
    ("lerp_", (X[::-1].copy(), 0.25), {}),
    ("addcmul_", (X, X), {"value": 0.5}),
    ("index_fill_", (1, np.array([0, 2]), 4.0), {}),
    ("scatter_add_", (1, np.array([[0, 0, 1], [2, 1, 0]]), X), {}),
    ("cumsum_", (1,), {}),
    ("transpose_", (0, 1), {}),
    ("unsqueeze_", (1,), {}),
    ("fill_", (3.0,), {}),
    ("zero_", (), {}),
    ("relu_", (), {}),
    ("nan_to_num_", (), {}),
]


def leaf(lib, requires_grad=False):
    return lib.tensor(X.tolist(), dtype=lib.float64, requires_grad=requires_grad)


def applied(lib, name, args, named, convert):
    args = [convert(a) if isinstance(a, np.ndarray) else a for a in args]
    x = leaf(lib, True)
    y = x * 1
    assert getattr(y, name)(*args, **named) is y
    ((y * y).sum() + (x * 0).sum()).backward()
    return y, x.grad


@pytest.mark.parametrize(("name", "args", "named"), IN_PLACE, ids=[case[0] for case in IN_PLACE])
def test_methods_that_write_in_place_are_those_of_torch(name, args, named):
    torch = pytest.importorskip("torch")
    expected, expected_grad = applied(torch, name, args, named, torch.tensor)
    y, grad = applied(gh, name, args, named, gh.asarray)
    np.testing.assert_allclose(y.detach().numpy(), expected.detach().numpy(), rtol=1e-6)
    if expected_grad is not None and expected_grad.any():
        np.testing.assert_allclose(grad.numpy(), expected_grad.numpy(), rtol=1e-6)


def test_tensors_made_before_keep_the_old_contents():
    x = gh.ones(2)
    y, view = x + 0, x.reshape(1, 2)
    x.mul_(5)
    assert x.tolist() == [5, 5] and y.tolist() == [1, 1] and view.tolist() == [[1, 1]]


def test_a_function_with_an_underscore_writes_into_its_argument():
    x = gh.asarray([-1.0, 4.0])
    assert gh.abs_(x) is x and gh.sqrt_(x).tolist() == [1, 2] and x.tolist() == [1, 2]


def test_a_leaf_is_not_written_while_gradients_are_recorded():
    x = gh.ones(2, requires_grad=True)
    with pytest.raises(gh.GradError, match="no_grad"):
        x.exp_()
    with gh.no_grad():
        assert x.exp_().requires_grad


def test_integers_refuse_a_floating_result():
    with pytest.raises(gh.DTypeError, match="int64"):
        gh.asarray([1, 2]).sqrt_()


def test_size_is_a_number_and_a_method():
    x = gh.zeros((2, 3), dtype=gh.int8)
    assert x.size == 6 and x.size() == (2, 3) and x.size(-1) == 3
    assert (x + x.size).dtype is gh.int8  # as weak as a Python integer
    with pytest.raises(gh.AxisError):
        x.size(2)


def test_captured_functions_ask_for_sizes_and_write_in_place():
    @gh.optimize
    def halves(x):
        y = x * 1
        y.add_(x, alpha=2).clamp_(max=5.0)
        return y.view(x.size(0), -1).sum(1) / x.size(1)

    x = gh.asarray([[1.0, 2.0], [3.0, 4.0]])
    assert [halves(x).tolist() for _ in range(3)] == [[4.0, 5.0]] * 3 and halves.hits == 2


@pytest.mark.parametrize(
    "make",
    [
        lambda **o: gh.zeros(2, 3, **o),
        lambda **o: gh.ones_like(gh.zeros(3), **o),
        lambda **o: gh.full((2,), 1.5, **o),
        lambda **o: gh.randn(2, 3, **o),
        lambda **o: gh.rand((2,), **o),
        lambda **o: gh.eye(3, **o),
        lambda **o: gh.arange(3.0, **o),
        lambda **o: gh.linspace(0, 1, 5, **o),
        lambda **o: gh.zeros(1).new_ones(4, **o),
        lambda **o: gh.hann_window(4, **o),
    ],
)
def test_tensors_may_be_made_as_leaves(make):
    x = make(requires_grad=True)
    assert x.requires_grad and x.is_leaf and not make().requires_grad


@pytest.mark.parametrize("call", [lambda x: gh.sum(x, out=x), lambda x: x.exp(out=x)])
def test_an_argument_out_is_refused(call):
    with pytest.raises(gh.OptionError, match="results are new tensors"):
        call(gh.ones(2))


def test_split_cuts_as_torch_does_but_where_the_axis_is_called_axis():
    x = gh.arange(6)
    assert [p.shape for p in x.split(4, dim=0)] == [(4,), (2,)]
    assert [p.shape for p in x.split([1, 5], dim=0)] == [(1,), (5,)]
    assert [p.shape for p in x.split(4)] == [(4,), (2,)]
    assert [p.shape for p in x.split(3, axis=0)] == [(2,), (2,), (2,)]
    with pytest.raises(gh.OptionError, match="dim= for the size of parts.* axis= for their number"):
        gh.split(x, 3)
    with pytest.raises(gh.ShapeError, match="add up to 6"):
        x.split([1, 2], dim=0)


def test_a_seed_fixes_what_is_drawn():
    draws = []
    for _ in range(2):
        assert gh.manual_seed(3) is gh.default_generator and gh.initial_seed() == 3
        draws.append([gh.randn(3), gh.randperm(5), gh.randint(0, 9, (4,)), gh.zeros(2).normal_()])
    assert all(a.tolist() == b.tolist() for a, b in zip(*draws, strict=True))
    state = gh.get_rng_state()
    first = gh.rand(2).tolist()
    gh.set_rng_state(state)
    assert gh.rand(2).tolist() == first
    own = gh.Generator(1).manual_seed(7)
    assert gh.rand(2, generator=own).tolist() == gh.rand(2, generator=gh.Generator(7)).tolist()


N = 20_000
MOMENTS = [
    (lambda: gh.poisson(gh.full((N,), 3.0)), 3, 3),
    (lambda: gh.poisson(gh.full((N,), 80.0)), 80, 80),
    (lambda: gh.binomial(gh.full((N,), 10.0), gh.full((N,), 0.3)), 3, 2.1),
    (lambda: gh.bernoulli(gh.full((N,), 0.2)), 0.2, 0.16),
    (lambda: gh.normal(1.0, 2.0, (N,)), 1, 4),
    (lambda: gh.zeros(N).uniform_(-1, 3), 1, 16 / 12),
    (lambda: gh.zeros(N).exponential_(2.0), 0.5, 0.25),
    (lambda: gh.zeros(N).geometric_(0.25), 4, 12),
    (lambda: gh.zeros(N).log_normal_(0.0, 0.5), np.exp(0.125), np.exp(0.25) * (np.exp(0.25) - 1)),
    (lambda: gh.zeros(N).random_(0, 10), 4.5, 8.25),
    (lambda: gh.multinomial(gh.asarray([1.0, 1.0, 2.0]), N, replacement=True) * 1.0, 1.25, 0.6875),
]


@pytest.mark.parametrize(("draw", "mean", "variance"), MOMENTS)
def test_random_tensors_have_their_moments(draw, mean, variance):
    gh.manual_seed(0)
    x = draw().numpy().astype(np.float64)
    assert abs(x.mean() - mean) < 5 * np.sqrt(variance / N)
    assert abs(x.var() / variance - 1) < 0.15


def test_multinomial_without_replacement_draws_each_once():
    gh.manual_seed(0)
    samples = gh.multinomial(gh.asarray([[1.0, 2.0, 3.0, 0.0]] * 5), 3)
    assert np.sort(samples.numpy(), 1).tolist() == [[0, 1, 2]] * 5


@pytest.mark.parametrize(
    "name", ["erfc", "erfcx", "gammaln", "digamma", "i0", "i1e", "j0", "y1", "k0", "ndtri"]
)
def test_special_functions_are_those_of_scipy(name):
    special = pytest.importorskip("scipy.special")
    x = np.linspace(0.05, 0.95, 7) if name == "ndtri" else np.linspace(0.1, 25, 60)
    own = {"j0": "bessel_j0", "y1": "bessel_y1", "k0": "modified_bessel_k0"}.get(name, name)
    results = getattr(gh.special, own)(gh.asarray(x)).numpy()
    np.testing.assert_allclose(results, getattr(special, name)(x), rtol=1e-11, atol=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("a", [0.3, 2.0, 60.0, 400.0])
def test_incomplete_gamma_is_that_of_scipy(a):
    special = pytest.importorskip("scipy.special")
    x = a * np.array([0.0, 0.5, 0.9, 1.0, 1.1, 2.0])
    for own, theirs in ((gh.igamma, special.gammainc), (gh.igammac, special.gammaincc)):
        results = own(gh.full((6,), a, dtype=gh.float64), gh.asarray(x)).numpy()
        np.testing.assert_allclose(results, theirs(a, x), rtol=1e-9, atol=1e-13)
