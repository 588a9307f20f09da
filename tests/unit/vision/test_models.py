"""Image models: parameters as published, names as torchvision's, and what they compute."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.errors import OptionError
from glasshouse.bench import torch_twins
from glasshouse.vision import models

FULL = {  # parameters, entries of the state dict, three names
    "alexnet": (61_100_840, 16, ["features.0.weight", "features.10.bias", "classifier.6.bias"]),
    "vgg16": (138_357_544, 32, ["features.28.weight", "classifier.0.weight", "classifier.6.bias"]),
    "resnet18": (11_689_512, 122, ["conv1.weight", "layer2.0.downsample.0.weight", "fc.bias"]),
    "resnet50": (25_557_032, 320, ["bn1.running_var", "layer1.0.conv3.weight", "fc.bias"]),
    "vit_b_16": (86_567_656, 152, ["class_token", "encoder.pos_embedding", "heads.head.bias"]),
}  # fmt: skip


@pytest.mark.parametrize("name", FULL)
def test_full_models_have_the_published_parameters(name):
    with gh.backends.use("stub"):
        model = getattr(models, name)()
        state = model.state_dict()
        count, entries, names = FULL[name]
        assert sum(p.size for p in model.parameters()) == count
        assert len(state) == entries
        assert set(names) <= set(state)
        assert model(gh.zeros((2, 3, 224, 224))).shape == (2, 1000)


@pytest.mark.quick
def test_names_and_shapes_inside_the_vision_transformer():
    with gh.backends.use("stub"):
        state = models.vit_b_16().state_dict()
    block = "encoder.layers.encoder_layer_11."
    assert state[block + "self_attention.in_proj_weight"].shape == (2304, 768)
    assert state[block + "mlp.0.weight"].shape == (3072, 768)
    assert state[block + "mlp.3.bias"].shape == (768,)
    assert state["conv_proj.weight"].shape == (768, 3, 16, 16)
    assert state["encoder.pos_embedding"].shape == (1, 197, 768)


@pytest.mark.parametrize("training", [True, False])
def test_resnet18_computes_what_its_twin_does(training):
    torch = pytest.importorskip("torch")
    options = {"width": 4, "num_classes": 5, "layers": (1, 2, 1, 1)}
    theirs = torch_twins.resnet18(**options).double().train(training)
    ours = models.resnet18(**options).double().train(training)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict({k: v.numpy().copy() for k, v in theirs.state_dict().items()})
    x = np.random.default_rng(0).normal(size=(3, 3, 40, 40))
    y = theirs(torch.tensor(x)).detach()
    np.testing.assert_allclose(ours(gh.asarray(x)).numpy(), y.numpy(), rtol=1e-9, atol=1e-11)


@pytest.mark.slow
def test_dropout_is_active_in_training_only():
    model = models.alexnet(5, width=2)
    x = gh.ones((1, 3, 64, 64))
    assert not np.array_equal(model(x).numpy(), model(x).numpy())
    model.eval()
    assert np.array_equal(model(x).numpy(), model(x).numpy())


@pytest.mark.quick
def test_patches_must_fit_the_image():
    with pytest.raises(OptionError, match="patch_size to divide image_size"):
        models.vit_b_16(image_size=100)
