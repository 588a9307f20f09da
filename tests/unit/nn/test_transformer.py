"""The whole Transformer against PyTorch's, and layer-drop."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import nn

rng = np.random.default_rng(0)


def pair(torch, **options):
    sizes = {"d_model": 8, "nhead": 2, "num_encoder_layers": 1, "num_decoder_layers": 2}
    sizes |= {"dim_feedforward": 12, "dropout": 0.0}
    return [lib.Transformer(**sizes, **options) for lib in (nn, torch.nn)]


@pytest.mark.parametrize(
    "options",
    [{}, {"batch_first": True, "norm_first": True}, {"activation": "gelu", "bias": False}],
)
@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True:UserWarning")
def test_transformer_equals_pytorchs(twin, options):
    ours, theirs = pair(twin.torch, **options)
    shapes = [(2, 5, 8), (2, 3, 8)] if "batch_first" in options else [(5, 2, 8), (3, 2, 8)]
    twin.module(ours, theirs, *(rng.normal(size=shape) for shape in shapes))


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True:UserWarning")
@pytest.mark.filterwarnings("ignore:Support for mismatched:UserWarning")
def test_masks_equal_pytorchs(twin):
    torch = twin.torch
    ours, theirs = (net.double() for net in pair(torch))
    ours.load_state_dict(theirs.state_dict())
    src, tgt = rng.normal(size=(5, 2, 8)), rng.normal(size=(3, 2, 8))
    padding = np.array([[False] * 5, [False] * 3 + [True] * 2])
    masks = {
        "src_key_padding_mask": padding,
        "memory_key_padding_mask": padding,
        "memory_mask": np.array([[False] * 4 + [True]] * 3),
    }
    mine, other = (lib.Transformer.generate_square_subsequent_mask(3) for lib in (nn, torch.nn))
    np.testing.assert_array_equal(mine.numpy(), other.numpy())
    options = {name: torch.tensor(mask) for name, mask in masks.items()}
    twin.function(
        lambda s, t: ours(s, t, tgt_mask=mine, **masks),
        lambda s, t: theirs(s, t, tgt_mask=other, **options),
        src,
        tgt,
    )
    twin.function(
        lambda s, t: ours(s[:, 0], t[:, 0], tgt_is_causal=True),
        lambda s, t: theirs(s[:, 0], t[:, 0], tgt_mask=other.double()),
        src,
        tgt,
    )


def test_initial_values_are_xaviers():
    gh.random.seed(0)
    net = nn.Transformer(32, 4, 1, 1, 64)
    weight = net.encoder.layers[0].linear1.weight.numpy()
    bound = (6 / (32 + 64)) ** 0.5
    assert np.abs(weight).max() <= bound and weight.std() == pytest.approx(bound / 3**0.5, rel=0.05)


def test_encoders_and_decoders_of_ones_own():
    class First(nn.Module):
        def forward(self, src, **masks):
            return src

    class Last(nn.Module):
        def forward(self, tgt, memory, **masks):
            return tgt + memory.sum()

    net = nn.Transformer(8, 2, custom_encoder=First(), custom_decoder=Last())
    assert net(gh.ones((1, 8)), gh.zeros((1, 8))).tolist() == [[8.0] * 8]


class Double(nn.Module):
    """Twice the input."""

    def forward(self, x, plus=0):
        return 2 * x + plus


def test_dropped_layers_leave_the_input():
    gh.random.seed(0)
    layer, x = nn.LayerDrop(Double(), p=0.25), gh.ones(())
    values = [layer(x, plus=1).item() for _ in range(200)]
    assert set(values) == {1.0, 3.0} and 30 < values.count(1.0) < 70
    layer.eval()
    assert {layer(x).item() for _ in range(10)} == {2.0}


def test_a_stack_drops_each_layer_for_itself():
    gh.random.seed(0)
    stack, x = nn.LayerDropSequential(*(Double() for _ in range(3)), p=0.5), gh.ones(())
    values = [stack(x).item() for _ in range(100)]
    assert set(values) == {1.0, 2.0, 4.0, 8.0}
    assert stack[:2].p == 0.5 and stack.eval()(x, plus=1).item() == 15.0


def test_dropped_layers_are_one_program_when_captured():
    gh.random.seed(0)
    stack = nn.LayerDropSequential(nn.Linear(4, 4), nn.Linear(4, 4), p=0.5)
    fast = gh.optimize(lambda x: stack(x))
    x = gh.ones((1, 4))
    values = {fast(x).sum().item() for _ in range(30)}
    assert len(values) == 4 and fast.hits > 25
