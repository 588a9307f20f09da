"""Resizing, sampling, shuffling and padding against PyTorch's, over their options."""

import numpy as np
import pytest

import glasshouse as gh
import glasshouse.nn.functional as F
from glasshouse import nn

SIZES = {1: (7,), 2: (5, 7), 3: (3, 4, 5)}
LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}


def images(n, seed=0, dtype=np.float64):
    return np.random.default_rng(seed).normal(size=(2, 3, *SIZES[n])).astype(dtype)


def both(twin, name, **options):
    """Ours and PyTorch's function of this name with these options."""
    ours, theirs = getattr(F, name), getattr(twin.torch.nn.functional, name)
    return lambda *a: ours(*a, **options), lambda *a: theirs(*a, **options)


def modes_of(n):
    return ["nearest", "nearest-exact", "area", LINEAR[n], *(["bicubic"] if n == 2 else [])]


TARGETS = [
    {"size": 9},
    {"size": 3},
    {"size": 1},
    {"scale_factor": 2},
    {"scale_factor": 1.3},
    {"scale_factor": 0.6},
    {"scale_factor": 2.5, "recompute_scale_factor": True},
]
RESIZES = [
    (n, {"mode": mode, **target}) for n in (1, 2, 3) for mode in modes_of(n) for target in TARGETS
]
RESIZES += [
    (n, {"mode": mode, "align_corners": True, **target})
    for n, mode in ((1, "linear"), (2, "bilinear"), (2, "bicubic"), (3, "trilinear"))
    for target in TARGETS[:5]
]
RESIZES += [
    (2, {"mode": mode, "antialias": True, "align_corners": align, **target})
    for mode in ("bilinear", "bicubic")
    for target in (*TARGETS[:6], {"size": (2, 11)})
    for align in (False, True)
]


# PyTorch reads this one's axis of 3 at 0, 0, 1 and sends its gradients to 0, 1, 2
VALUES_ALONE = (3, {"mode": "nearest", "scale_factor": 1.3})


def named(case):
    n, options = case
    return f"{n}d-" + "-".join(f"{k}={v}" for k, v in options.items())


@pytest.mark.parametrize("case", RESIZES, ids=named)
def test_interpolate_equals_pytorchs(twin, case):
    n, options = case
    ours, theirs = both(twin, "interpolate", **options)
    if case == VALUES_ALONE:
        got, expected = ours(gh.asarray(images(n))), theirs(twin.torch.tensor(images(n)))
        assert (got.numpy() == expected.numpy()).all()
        return
    twin.function(ours, theirs, images(n))


def test_unequal_sizes_and_factors(twin):
    for options in ({"size": (4, 13)}, {"scale_factor": (0.5, 2.0)}, {"scale_factor": [3, 1]}):
        for mode in modes_of(2):
            twin.function(*both(twin, "interpolate", mode=mode, **options), images(2))


@pytest.mark.parametrize("factor", [0.3, 0.7, 1.7, 3, 7.3])
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_nearest_rounds_as_pytorchs(twin, mode, factor):
    x = np.arange(97, dtype=np.float32).reshape(1, 1, 97)
    twin.function(*both(twin, "interpolate", mode=mode, scale_factor=factor), x)


def test_nearest_of_integers(twin):
    x = np.arange(12, dtype=np.uint8).reshape(1, 1, 3, 4)
    twin.function(*both(twin, "interpolate", scale_factor=2), x)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_what_is_not_a_number_stays_near(twin, mode):
    x = images(2, dtype=np.float32)
    x[0, 0, 2, 2] = np.nan
    x[1, 1, 0, 0] = np.inf
    ours, theirs = both(twin, "interpolate", mode=mode, scale_factor=2)
    got, expected = ours(gh.asarray(x)).numpy(), theirs(twin.torch.tensor(x)).numpy()
    assert (np.isnan(got) == np.isnan(expected)).all()


def gradient_of_gradient(twin, ours, theirs, *arrays, rtol=1e-7):
    """Second derivatives: the gradient of a weighted sum of the gradient of a square."""
    torch = twin.torch
    mine = [gh.asarray(a) for a in arrays]
    other = [torch.tensor(a, requires_grad=True) for a in arrays]
    for x in mine:
        x.requires_grad_()
    y, z = ours(*mine), theirs(*other)
    first = gh.autograd.grad((y**3).sum(), mine, create_graph=True)
    expected = torch.autograd.grad((z**3).sum(), other, create_graph=True)
    sum((g * g).sum() for g in first).backward()
    sum((g * g).sum() for g in expected).backward()
    for x, t in zip(mine, other, strict=True):
        np.testing.assert_allclose(x.grad.numpy(), t.grad.numpy(), rtol=rtol, atol=1e-8)


SECOND = [
    ("interpolate", {"scale_factor": 2, "mode": "nearest"}),
    ("interpolate", {"scale_factor": 1.5, "mode": "bilinear"}),
    ("interpolate", {"size": (7, 4), "mode": "bicubic"}),
    ("interpolate", {"size": (3, 3), "mode": "area"}),
    ("interpolate", {"size": (3, 3), "mode": "bilinear", "antialias": True}),
    ("lp_pool2d", {"norm_type": 3, "kernel_size": 2}),
    ("local_response_norm", {"size": 2, "alpha": 0.5}),
    ("pad", {"pad": (1, 2, 2, 1), "mode": "reflect"}),
    ("pad", {"pad": (1, 2, 2, 1), "mode": "circular"}),
    ("max_pool2d", {"kernel_size": 2}),
    ("elu", {}),
    ("gelu", {}),
]


@pytest.mark.parametrize("name, options", SECOND)
def test_second_derivatives_equal_pytorchs(twin, name, options):
    gradient_of_gradient(twin, *both(twin, name, **options), np.abs(images(2)) + 0.1)


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("n", [2, 3])
def test_grid_sample_equals_pytorchs(twin, n, mode, padding, align):
    if n == 3 and mode == "bicubic":
        pytest.skip("PyTorch has none for volumes")
    grid = np.random.default_rng(1).uniform(-1.6, 1.6, (2, 4, 3, 2, 3)[: n + 1] + (n,))
    options = {"mode": mode, "padding_mode": padding, "align_corners": align}
    ours, theirs = both(twin, "grid_sample", **options)
    if mode == "nearest":  # which has no gradient of the grid: ours is None, PyTorch's zeros
        at, there = gh.asarray(grid), twin.torch.tensor(grid)
        twin.function(lambda x: ours(x, at), lambda x: theirs(x, there), images(n))
        return
    twin.function(ours, theirs, images(n), grid, rtol=1e-8, atol=1e-9)


@pytest.mark.filterwarnings("ignore:Since version 1.3.0")
@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("size", [(2, 3, 4, 5), (2, 3, 1, 5), (2, 1, 2, 3, 4)])
def test_affine_grid_equals_pytorchs(twin, size, align):
    n = len(size) - 2
    theta = np.random.default_rng(2).normal(size=(2, n, n + 1))
    options = {"size": size, "align_corners": align}
    twin.function(*both(twin, "affine_grid", **options), theta)


@pytest.mark.parametrize("name", ["PixelShuffle", "PixelUnshuffle", "ChannelShuffle"])
@pytest.mark.parametrize("shape", [(2, 8, 4, 6), (8, 2, 4), (2, 3, 4, 2, 2)])
def test_shuffles_equal_pytorchs(twin, name, shape):
    if name == "ChannelShuffle" and len(shape) == 5:
        shape = (2, 4, 2, 2, 2)
    ours, theirs = (getattr(lib, name)(2) for lib in (nn, twin.torch.nn))
    twin.module(ours, theirs, np.random.default_rng(3).normal(size=shape)[..., :, :])


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("kind", ["Zero", "Reflection", "Replication", "Circular"])
@pytest.mark.parametrize("uneven", [False, True])
def test_padding_layers_equal_pytorchs(twin, n, kind, uneven):
    widths = (1, 2, 2, 0, 1, 1)[: 2 * n] if uneven else 2
    ours, theirs = (getattr(lib, f"{kind}Pad{n}d")(widths) for lib in (nn, twin.torch.nn))
    twin.module(ours, theirs, images(n))
    twin.module(ours, theirs, images(n)[0])


@pytest.mark.parametrize("n", [1, 2, 3])
def test_constant_padding_equals_pytorchs(twin, n):
    for widths in (1, (2, -1, 1, 0, -1, 2)[: 2 * n]):
        ours, theirs = (
            getattr(lib, f"ConstantPad{n}d")(widths, 0.5) for lib in (nn, twin.torch.nn)
        )
        twin.module(ours, theirs, images(n))


UPSAMPLES = [
    ("Upsample", {"scale_factor": 2}),
    ("Upsample", {"size": (3, 9), "mode": "bilinear", "align_corners": True}),
    ("Upsample", {"scale_factor": (2, 1.5), "mode": "bicubic"}),
    ("Upsample", {"scale_factor": 1.5, "mode": "nearest-exact", "recompute_scale_factor": True}),
    ("UpsamplingNearest2d", {"scale_factor": 2}),
    ("UpsamplingNearest2d", {"size": (4, 4)}),
    ("UpsamplingBilinear2d", {"scale_factor": 2}),
    ("UpsamplingBilinear2d", {"size": 8}),
]


@pytest.mark.parametrize("name, options", UPSAMPLES)
def test_resizing_layers_equal_pytorchs(twin, name, options):
    ours, theirs = (getattr(lib, name)(**options) for lib in (nn, twin.torch.nn))
    twin.module(ours, theirs, images(2))


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("options", [{}, {"stride": 1}, {"ceil_mode": True, "stride": 3}])
@pytest.mark.parametrize("p", [1, 2, 3.0])
def test_lp_pool_equals_pytorchs(twin, n, options, p):
    ours, theirs = (getattr(lib, f"LPPool{n}d")(p, 2, **options) for lib in (nn, twin.torch.nn))
    twin.module(ours, theirs, np.abs(images(n)) + 0.1)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_max_unpool_equals_pytorchs(twin, n):
    """Windows that do not overlap: PyTorch does not say which of two elements stays."""
    torch = twin.torch
    pool, unpool = (getattr(torch.nn, f"Max{k}{n}d")(2) for k in ("Pool", "Unpool"))
    pool.return_indices = True
    sizes = (4, 6, 8)[:n]
    images = np.random.default_rng(6).normal(size=(2, 3, *sizes))
    x, places = pool(torch.tensor(images))
    ours = getattr(nn, f"MaxUnpool{n}d")(2)
    assert repr(ours) == repr(unpool)
    places = gh.asarray(places.numpy().copy())
    theirs = torch.tensor(places.numpy().copy())
    for size in (None, sizes, (2, 3, *(s + 1 for s in sizes))):
        twin.function(
            lambda x: ours(x, places, output_size=size),  # noqa: B023
            lambda x: unpool(x, theirs, output_size=None if size is None else list(size)),  # noqa: B023
            x.numpy().copy(),
        )


def test_pooling_and_unpooling_keep_the_largest():
    x = gh.asarray(images(2, dtype=np.float32))
    y, places = F.max_pool2d_with_indices(x, 2)
    back = F.max_unpool2d(y, places, 2, output_size=(5, 7))
    assert (F.max_pool2d(back.abs() + 0, 2) >= y).all()
    assert ((back == x) | (back == 0)).all() and (back != 0).sum().item() == y.size


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize(
    "size", [{"output_size": 2}, {"output_ratio": (0.5, 0.4, 0.6)}, {"output_size": 1}]
)
def test_fractional_max_pool_equals_pytorchs(twin, n, size):
    size = {k: v if isinstance(v, int) else v[:n] for k, v in size.items()}
    samples = np.random.default_rng(5).uniform(size=(2, 3, n))
    torch, name = twin.torch, f"fractional_max_pool{n}d"
    x = np.random.default_rng(4).normal(size=(2, 3, *(9, 8, 7)[:n]))
    twin.function(
        lambda x: getattr(F, name)(
            x, 2, **size, return_indices=True, _random_samples=gh.asarray(samples)
        ),
        lambda x: getattr(torch.nn.functional, name)(
            x, 2, **size, return_indices=True, _random_samples=torch.tensor(samples)
        ),
        x,
    )


def test_fractional_windows_differ_by_draw():
    x = gh.asarray(np.random.default_rng(4).normal(size=(1, 1, 30, 30)))
    layer = nn.FractionalMaxPool2d(2, output_ratio=0.7, return_indices=True)
    gh.random.seed(0)
    (y, places), (other, _) = layer(x), layer(x)
    assert y.shape == (1, 1, 21, 21) and (y != other).any()
    assert (y.reshape(-1) == gh.take(x.reshape(-1), places.reshape(-1))).all()


# -- compiled, batched, captured, in narrow dtypes ---------------------------------------------

CALLS = {
    "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "bicubic": lambda x: F.interpolate(x, size=(3, 9), mode="bicubic"),
    "antialias": lambda x: F.interpolate(x, size=(2, 3), mode="bilinear", antialias=True),
    "nearest": lambda x: F.interpolate(x, scale_factor=2),
    "area": lambda x: F.interpolate(x, size=(2, 3), mode="area"),
    "grid": lambda x: F.grid_sample(x, F.affine_grid(0.4 + x[:, :2, 0, :3], (2, 3, 4, 4))),
    "lp": lambda x: F.lp_pool2d(x.abs() + 0.1, 2, 2),
    "lrn": lambda x: F.local_response_norm(x, 3, alpha=0.5),
    "shuffle": lambda x: F.channel_shuffle(x, 3),
    "geglu": lambda x: F.geglu(x[..., :4]),
    "unpool": lambda x: F.max_unpool2d(*F.max_pool2d_with_indices(x, 2), 2, output_size=(5, 7)),
}


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", CALLS)
def test_compiled_batched_and_captured(name):
    call, arrays = CALLS[name], [images(2, seed, np.float32) for seed in (0, 1)]
    with gh.backends.use("numpy"):
        expected = [np.asarray(call(gh.asarray(a)).numpy()) for a in arrays]
        slopes = [gh.grad(lambda x: (call(x) ** 2).sum())(gh.asarray(a)).numpy() for a in arrays]
    batch = gh.asarray(np.stack(arrays))
    np.testing.assert_allclose(gh.vmap(call)(batch).numpy(), np.stack(expected), 1e-4, 1e-5)
    many = gh.vmap(gh.grad(lambda x: (call(x) ** 2).sum()))(batch)
    np.testing.assert_allclose(many.numpy(), np.stack(slopes), 1e-4, 1e-4)
    captured = gh.optimize(call)
    for array, wanted in zip(arrays * 2, expected * 2, strict=True):
        np.testing.assert_allclose(captured(gh.asarray(array)).numpy(), wanted, 1e-4, 1e-5)
    assert captured.hits > 0


@pytest.mark.parametrize("name", ["bilinear", "bicubic", "antialias", "grid", "lrn", "area"])
def test_autocast_leaves_resizing_in_full_precision(name):
    x = gh.asarray(images(2, dtype=np.float32))
    with gh.autocast("bfloat16"):
        y = CALLS[name](x)
    assert y.dtype == gh.float32
    np.testing.assert_allclose(y.numpy(), CALLS[name](x).numpy(), 1e-6, 1e-6)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "nearest", "area"])
def test_narrow_images_are_resized_in_float32(mode):
    x = gh.asarray(images(2, dtype=np.float32)).bfloat16()
    y = F.interpolate(x, size=(9, 4), mode=mode)
    assert y.dtype == gh.bfloat16
    wide = F.interpolate(x.float(), size=(9, 4), mode=mode).bfloat16()
    assert (y == wide).all()
