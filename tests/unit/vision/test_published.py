"""Published networks beside torchvision's and timm's: names, shapes and what they compute."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.vision import models

torch = pytest.importorskip("torch")


@pytest.fixture
def theirs(torchvision):
    return torchvision.models


NAMES = ["resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "resnext50_32x4d",
         "resnext101_32x8d", "wide_resnet50_2", "wide_resnet101_2", "mobilenet_v2",
         "mobilenet_v3_large", "mobilenet_v3_small", "convnext_tiny", "convnext_small",
         "convnext_base", "convnext_large", "swin_t", "swin_s", "swin_b", "vit_b_16", "vit_b_32",
         "vit_l_16", "vit_l_32", "vit_h_14", "alexnet", "vgg16",
         *(f"efficientnet_b{i}" for i in range(8))]  # fmt: skip
QUICK = ["resnext50_32x4d", "mobilenet_v2", "mobilenet_v3_small", "efficientnet_b0"]
SLOW = ["resnet34", "resnet50", "convnext_tiny", "swin_t", "mobilenet_v3_large", "efficientnet_b5"]


def shapes(state):
    return [(name, tuple(value.shape)) for name, value in state.items()]


def shaken(network, seed=0):
    """The network with random weights, statistics included, that keep values near 1."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in network.state_dict().items():
            if value.dtype.is_floating_point:
                noise = torch.rand(value.shape, generator=generator)
                value.add_(0.1 * (noise if name.endswith("running_var") else noise - 0.5))
    return network.eval()


def assert_same(ours, network, image):
    ours.load_state_dict({k: v.numpy().copy() for k, v in network.state_dict().items()})
    with torch.no_grad():
        expected = network(torch.tensor(image)).numpy()
    scale = max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(ours.eval()(gh.asarray(image)).numpy() / scale,
                               expected / scale, atol=1e-4)  # fmt: skip


def image(side, count=2):
    return np.random.default_rng(1).normal(size=(count, 3, side, side)).astype(np.float32)


@pytest.mark.parametrize("name", NAMES)
def test_names_and_shapes_are_torchvisions(theirs, name):
    with torch.device("meta"):
        expected = shapes(getattr(theirs, name)().state_dict())
    with gh.backends.use("stub"):
        assert sorted(shapes(getattr(models, name)().state_dict())) == sorted(expected)


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(n, marks=pytest.mark.slow) for n in SLOW)])
def test_outputs_are_torchvisions(theirs, name):
    network = shaken(getattr(theirs, name)(num_classes=7))
    assert_same(getattr(models, name)(7), network, image(64))


def test_a_small_swin_computes_what_torchvisions_does(theirs):
    network = theirs.SwinTransformer([4, 4], 16, [2, 2], [2, 4], [4, 4], num_classes=7)
    ours = models.SwinTransformer(16, (2, 2), (2, 4), 7, window=4)
    assert_same(ours, shaken(network), image(44))  # 11 × 11 patches: windows are padded


def test_a_small_convnext_computes_what_torchvisions_does(theirs):
    block = theirs.convnext.CNBlockConfig
    network = theirs.ConvNeXt([block(8, 16, 2), block(16, None, 1)], num_classes=7)
    assert_same(models.ConvNeXt((2, 1), (8, 16), 7), shaken(network), image(32))


def test_a_small_vision_transformer_computes_what_torchvisions_does(theirs):
    sizes = (32, 16, 2, 2, 8, 16)
    network = shaken(theirs.VisionTransformer(*sizes, num_classes=7))
    assert_same(models.VisionTransformer(*sizes, num_classes=7), network, image(32))


@pytest.mark.parametrize("distilled", [False, True])
def test_deit_is_timms(theirs, distilled):
    timm = pytest.importorskip("timm")
    name = f"deit_tiny{'_distilled' * distilled}_patch16_224"
    options = {"img_size": 32, "num_classes": 7, "depth": 2}
    network = shaken(timm.create_model(name, **options))
    ours = models.deit_tiny_patch16_224(7, layers=2, image_size=32, distilled=distilled)
    assert_same(ours, network, image(32))


@pytest.mark.parametrize("size", ["tiny", "small", "base"])
def test_names_and_shapes_of_deit_are_timms(theirs, size):
    timm = pytest.importorskip("timm")
    with torch.device("meta"):
        expected = shapes(timm.create_model(f"deit_{size}_patch16_224").state_dict())
    with gh.backends.use("stub"):
        ours = getattr(models, f"deit_{size}_patch16_224")()
        assert sorted(shapes(ours.state_dict())) == sorted(expected)


def test_a_size_has_a_name_and_takes_options():
    with gh.backends.use("stub"):
        network = models.resnet34(5, width=8)
    assert network.fc.weight.shape == (5, 64)
    assert models.resnet34.__name__ == "resnet34" and "3, 4, 6, 3" in models.resnet34.__doc__
