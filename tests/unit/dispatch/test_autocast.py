"""autocast: dtypes as PyTorch's, gradients of float32 weights, composition with the rest."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import nn
from glasshouse.nn import functional as F

rng = np.random.default_rng(0)


def draw(*shape):
    return rng.standard_normal(shape).astype(np.float32)


X, W, B = draw(4, 8), draw(6, 8), draw(6)
IMAGES, KERNELS = draw(2, 3, 6, 6), draw(5, 3, 3, 3)
CALLS = {
    "linear": lambda f, t: f.linear(t(X), t(W), t(B)),
    "conv2d": lambda f, t: f.conv2d(t(IMAGES), t(KERNELS), t(B[:5])),
    "matmul": lambda f, t: t(X) @ t(W).T,
    "softmax": lambda f, t: f.softmax(f.linear(t(X), t(W)), -1),
    "log_softmax": lambda f, t: f.log_softmax(f.linear(t(X), t(W)), -1),
    "cross_entropy": lambda f, t: f.cross_entropy(f.linear(t(X), t(W)), t(np.arange(4))),
    "relu": lambda f, t: f.relu(f.linear(t(X), t(W))),
    "mixed_add": lambda f, t: f.linear(t(X), t(W)) + t(X[:, :6]),
    "batch_norm": lambda f, t: f.batch_norm(
        f.conv2d(t(IMAGES), t(KERNELS)), None, None, t(B[:5]), t(B[:5]), True
    ),
    "float64": lambda f, t: t(X.astype("f8")) @ t(W.astype("f8")).T,
}


@pytest.mark.parametrize("name", CALLS)
def test_dtypes_and_values_are_those_of_torch(name):
    torch = pytest.importorskip("torch")
    with gh.autocast("bfloat16"):
        ours = CALLS[name](F, gh.asarray)
    with torch.autocast("cpu", torch.bfloat16):
        theirs = CALLS[name](torch.nn.functional, torch.from_numpy)
    assert ours.dtype.name == str(theirs.dtype).removeprefix("torch.")
    np.testing.assert_allclose(
        ours.astype("float32").numpy(), theirs.float().numpy(), rtol=0.05, atol=0.05
    )


def test_gradients_arrive_in_float32():
    layer = nn.Linear(8, 6)
    with gh.autocast("bfloat16"):
        loss = layer(gh.asarray(X)).float().sum()
    loss.backward()
    assert layer.weight.dtype is gh.float32 and layer.weight.grad.dtype is gh.float32
    np.testing.assert_allclose(layer.weight.grad.numpy()[0], X.sum(0), rtol=0.03, atol=0.03)


def test_nesting_switching_off_and_decorating():
    a = gh.ones((2, 2))
    with gh.autocast("bfloat16"):
        assert gh.is_autocast_enabled()
        with gh.autocast("float16"):
            assert (a @ a).dtype is gh.float16
            with gh.autocast("float16", enabled=False):
                assert (a @ a).dtype is gh.float32 and not gh.is_autocast_enabled()
        assert (a @ a).dtype is gh.bfloat16
    assert (a @ a).dtype is gh.float32 and not gh.is_autocast_enabled()
    assert gh.autocast("bfloat16")(lambda: a @ a)().dtype is gh.bfloat16
    with pytest.raises(gh.OptionError, match="float64"):
        gh.autocast("float64")


def test_it_composes_with_transforms_and_checkpoint():
    weight = gh.asarray(W)

    def loss(w):
        with gh.autocast("bfloat16"):
            return F.linear(gh.asarray(X), w).float().sum()

    np.testing.assert_allclose(gh.grad(loss)(weight).numpy()[0], X.sum(0), rtol=0.03, atol=0.03)
    with gh.autocast("bfloat16"):
        rows = gh.vmap(lambda x: gh.matmul(gh.reshape(x, (1, 8)), weight.mT))(gh.asarray(X))
        value, tangent = gh.jvp(lambda w: gh.matmul(w, w.mT), (weight,), (weight,))
    assert rows.dtype is gh.bfloat16 and value.dtype is tangent.dtype is gh.bfloat16
    log = []

    def region(w):
        y = F.linear(gh.asarray(X), w)
        log.append(y.dtype)
        return y

    tracked = gh.tensor(W, requires_grad=True)
    with gh.autocast("bfloat16"):
        y = gh.checkpoint(region)(tracked)
    y.float().sum().backward()
    assert log == [gh.bfloat16, gh.bfloat16] and tracked.grad.dtype is gh.float32


@pytest.mark.parametrize("backend", ["numpy", "lazy"])
def test_training_reaches_about_the_float32_loss(backend):
    def train(dtype):
        with gh.backends.use(backend):
            gh.random.seed(0)
            model = nn.Sequential(
                nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(128, 4)
            )
            optimizer = gh.optim.SGD(model.parameters(), lr=0.05)
            images, labels = gh.asarray(np.tile(IMAGES, (4, 1, 1, 1))), gh.asarray(np.arange(8) % 2)
            for _ in range(15):
                optimizer.zero_grad()
                with gh.autocast("bfloat16", enabled=dtype == "bfloat16"):
                    loss = F.cross_entropy(model(images), labels)
                loss.backward()
                optimizer.step()
            return loss.item()

    low, high = train("bfloat16"), train("float32")
    assert abs(low - high) < 0.05 and high < 1.0


@pytest.mark.parametrize(
    "arguments, options, key",
    [
        ((), {}, "autocast bfloat16"),
        (("float16",), {}, "autocast float16"),
        (("bfloat16", False), {}, "no autocast"),
        (("cpu",), {}, "autocast bfloat16"),
        (("cuda",), {}, "autocast float16"),
        (("cuda:0", gh.bfloat16), {}, "autocast bfloat16"),
        ((), {"device_type": "cpu", "dtype": gh.bfloat16}, "autocast bfloat16"),
        (("cpu",), {"enabled": False, "cache_enabled": True}, "no autocast"),
        ((), {"dtype": "float16"}, "autocast float16"),
    ],
)
def test_the_device_of_pytorch_may_stand_before_the_dtype(arguments, options, key):
    assert gh.amp.autocast(*arguments, **options).key == key
