"""Wrong calls of modules, attention, embeddings and nn.utils: each error names what was expected,
what came, and the fix."""

import inspect

import numpy as np
import pytest
from wrong_calls import check_refused

import glasshouse as gh
import glasshouse.nn.functional as F
from glasshouse import nn
from glasshouse.nn import lora, utils
from glasshouse.nn.utils import parametrizations, parametrize, prune, rnn

X = gh.ones((2, 4, 3, 2))  # (B, H, L, E)
BAG = gh.asarray([0, 1, 2])


def linear():
    return nn.Linear(3, 2)


def adapted():
    net = nn.Sequential(linear())
    lora.attach(net)
    return net


def flex(**options):
    return F.flex_attention(X, X, X, **options)


def causal(b, h, i, j):
    return i >= j


def late_inverse():
    """A parametrization with several originals that is not the first."""

    class Pair(nn.Module):
        def forward(self, a, b):
            return a + b

        def right_inverse(self, x):
            return x, x

    parametrize.register_parametrization(linear(), "weight", nn.Identity())
    layer = parametrize.register_parametrization(linear(), "weight", nn.Identity())
    parametrize.register_parametrization(layer, "weight", Pair())


TABLE = {
    # hooks and modules
    "backward-hook": (lambda: linear().register_full_backward_hook(3), gh.DTypeError, "got 3"),
    "pre-hook": (lambda: linear().register_full_backward_pre_hook("f"), gh.DTypeError, "'f'"),
    "global-hook": (lambda: nn.register_module_forward_hook(3), gh.DTypeError, "got 3"),
    "set-submodule": (lambda: linear().set_submodule("", nn.ReLU()), gh.OptionError, "''"),
    "set-submodule-type": (lambda: linear().set_submodule("a", 3), gh.DTypeError, "int"),
    "share-memory": (lambda: linear().share_memory(), gh.DeviceError, "state_dict"),
    "parameter-dict": (lambda: nn.ParameterDict({"a": gh.ones(1)})["b"], AttributeError, "'b'"),
    "type": (lambda: linear().type("int32"), gh.DTypeError, "int32"),
    # attention
    "flex-axes": (lambda: F.flex_attention(X[0], X, X), gh.ShapeError, "(4, 3, 2)"),
    "flex-heads": (lambda: F.flex_attention(X, X[:, :2], X[:, :2]), gh.ShapeError, "enable_gqa"),
    "flex-groups": (
        lambda: F.flex_attention(X, X[:, :3], X[:, :3], enable_gqa=True),
        gh.OptionError,
        "key heads=3",
    ),
    "flex-score": (lambda: flex(score_mod=3), gh.DTypeError, "score_mod"),
    "flex-score-shape": (
        lambda: flex(score_mod=lambda s, b, h, i, j: s[:, :2]),
        gh.ShapeError,
        "(2, 2, 3, 3)",
    ),
    "flex-mask": (lambda: flex(block_mask=causal), gh.DTypeError, "function"),
    "flex-mask-size": (
        lambda: flex(block_mask=F.create_block_mask(causal, None, None, 2, 2)),
        gh.ShapeError,
        "(1, 1, 2, 2)",
    ),
    "mask-float": (
        lambda: F.create_mask(lambda b, h, i, j: i * 1.0, None, None, 2, 2),
        gh.DTypeError,
        "float32",
    ),
    "mask-length": (lambda: F.create_mask(causal, 1, 1, 0, 2), gh.OptionError, "Q_LEN"),
    "mask-block": (
        lambda: F.create_block_mask(causal, 1, 1, 2, 2, BLOCK_SIZE=0),
        gh.OptionError,
        "BLOCK_SIZE",
    ),
    "mask-none": (lambda: F.and_masks(), gh.OptionError, "none"),
    "mask-blocks": (lambda: F.BlockMask([1], [[0]]), gh.ShapeError, "(1,)"),
    "window": (lambda: F.sliding_window(0), gh.OptionError, "got 0"),
    "grouped": (lambda: nn.GroupedQueryAttention(8, 4, 3), gh.OptionError, "num_kv_heads=3"),
    "grouped-window": (
        lambda: nn.GroupedQueryAttention(8, 4, window=2, is_causal=False),
        gh.OptionError,
        "is_causal=False",
    ),
    "grouped-axes": (lambda: nn.GroupedQueryAttention(2, 1)(X), gh.ShapeError, "(2, 4, 3, 2)"),
    "cache-size": (lambda: nn.KVCache(2, 4, 2, 2).update(X, X), gh.ShapeError, "at most 2"),
    "cache-heads": (lambda: nn.KVCache(2, 3, 8, 2).update(X, X), gh.ShapeError, "(2, 3, L, 2)"),
    "rotary-odd": (lambda: nn.RotaryEmbedding()(gh.ones((2, 3))), gh.ShapeError, "got 3"),
    "sinusoids-axes": (
        lambda: nn.SinusoidalPositionEmbedding()(gh.ones(4)),
        gh.ShapeError,
        "(..., L, E)",
    ),
    "learned-length": (
        lambda: nn.LearnedPositionEmbedding(2, 2)(X),
        gh.ShapeError,
        "at most 2",
    ),
    "alibi": (lambda: nn.ALiBi(0), gh.OptionError, "num_heads"),
    "transformer-width": (
        lambda: nn.Transformer(4, 2, 1, 1, 4)(gh.ones((3, 1, 5)), gh.ones((3, 1, 4))),
        gh.ShapeError,
        "(3, 1, 5)",
    ),
    "transformer-batch": (
        lambda: nn.Transformer(4, 2, 1, 1, 4)(gh.ones((3, 1, 4)), gh.ones((3, 2, 4))),
        gh.ShapeError,
        "batch_first=False",
    ),
    "layer-drop": (lambda: nn.LayerDrop(nn.ReLU(), 1.5), gh.OptionError, "1.5"),
    "layer-drop-type": (lambda: nn.LayerDrop(3), gh.DTypeError, "int"),
    # embeddings
    "bag-mode": (lambda: nn.EmbeddingBag(3, 2, mode="men"), gh.OptionError, "'mean'"),
    "bag-offsets": (lambda: nn.EmbeddingBag(3, 2)(BAG), gh.ShapeError, "without offsets"),
    "bag-weights": (
        lambda: nn.EmbeddingBag(3, 2)(BAG, [0], gh.ones(3)),
        gh.OptionError,
        "mode='sum'",
    ),
    "bag-sparse": (lambda: nn.EmbeddingBag(3, 2, sparse=True), gh.OptionError, "sparse=True"),
    "sparse": (lambda: nn.Embedding(3, 2, sparse=True), gh.OptionError, "sparse=True"),
    "bag-float": (lambda: nn.EmbeddingBag(3, 2)(gh.ones((1, 2))), gh.DTypeError, "float32"),
    "adaptive": (lambda: nn.AdaptiveEmbedding(9, 8, [5, 3]), gh.OptionError, "[5, 3]"),
    "adaptive-narrow": (lambda: nn.AdaptiveEmbedding(9, 2, [3, 5]), gh.OptionError, "cutoffs"),
    # parametrizations and pruning
    "parametrize-name": (
        lambda: parametrize.register_parametrization(linear(), "wieght", nn.ReLU()),
        gh.OptionError,
        "'weight'",
    ),
    "parametrize-type": (
        lambda: parametrize.register_parametrization(linear(), "weight", abs),
        gh.DTypeError,
        "Module",
    ),
    "parametrize-late": (late_inverse, gh.OptionError, "originals"),
    "parametrize-remove": (
        lambda: parametrize.remove_parametrizations(linear(), "weight"),
        gh.OptionError,
        "'weight'",
    ),
    "spectral-steps": (
        lambda: parametrizations.spectral_norm(linear(), n_power_iterations=0),
        gh.OptionError,
        "n_power_iterations",
    ),
    "spectral-dim": (
        lambda: parametrizations.spectral_norm(linear(), dim=2),
        gh.ShapeError,
        "dim=2",
    ),
    "weight-norm-twice": (
        lambda: utils.weight_norm(utils.weight_norm(linear())),
        gh.OptionError,
        "'weight'",
    ),
    "weight-norm-none": (
        lambda: utils.remove_weight_norm(linear()),
        gh.OptionError,
        "'weight'",
    ),
    "prune-name": (lambda: prune.identity(linear(), "wieght"), gh.OptionError, "'weight'"),
    "prune-share": (lambda: prune.l1_unstructured(linear(), "weight", 1.5), gh.OptionError, "1.5"),
    "prune-many": (lambda: prune.l1_unstructured(linear(), "weight", 7), gh.OptionError, "6"),
    "prune-text": (lambda: prune.l1_unstructured(linear(), "weight", "a"), gh.DTypeError, "'a'"),
    "prune-vector": (
        lambda: prune.ln_structured(linear(), "bias", 1, 2, 0),
        gh.ShapeError,
        "(2,)",
    ),
    "prune-axis": (lambda: prune.random_structured(linear(), "weight", 1, 2), gh.ShapeError, "2"),
    "prune-mask": (
        lambda: prune.custom_from_mask(linear(), "weight", gh.ones(3)),
        gh.ShapeError,
        "(3,)",
    ),
    "prune-remove": (lambda: prune.remove(linear(), "weight"), gh.OptionError, "'weight'"),
    "prune-global": (
        lambda: prune.global_unstructured(
            [(linear(), "weight")], prune.LnStructured, amount=1, n=2
        ),
        gh.OptionError,
        "structured",
    ),
    # sequences and the rest of nn.utils
    "pack-rising": (
        lambda: rnn.pack_padded_sequence(gh.ones((3, 2)), [1, 2]),
        gh.OptionError,
        "[1, 2]",
    ),
    "pack-long": (lambda: rnn.pack_padded_sequence(gh.ones((3, 2)), [4, 2]), gh.OptionError, "4"),
    "pack-number": (lambda: rnn.pack_padded_sequence(gh.ones((3, 2)), [3]), gh.ShapeError, "(1,)"),
    "pack-float": (
        lambda: rnn.pack_padded_sequence(gh.ones((3, 2)), [3.0, 2.0]),
        gh.DTypeError,
        "float64",
    ),
    "unpack": (lambda: rnn.pad_packed_sequence(gh.ones(2)), gh.DTypeError, "PackedSequence"),
    "pad-none": (lambda: rnn.pad_sequence([]), gh.OptionError, "none"),
    "pad-side": (lambda: rnn.pad_sequence([BAG], padding_side="up"), gh.OptionError, "up"),
    "pad-shapes": (lambda: rnn.pad_sequence([X, BAG]), gh.ShapeError, "(3,)"),
    "vector-size": (
        lambda: utils.vector_to_parameters(gh.ones(3), linear().parameters()),
        gh.ShapeError,
        "(3,)",
    ),
    "vector-none": (lambda: utils.parameters_to_vector([]), gh.OptionError, "none"),
    "fuse-training": (
        lambda: utils.fuse_linear_bn_eval(linear(), nn.BatchNorm1d(2)),
        gh.OptionError,
        "eval()",
    ),
    "fuse-sizes": (
        lambda: utils.fuse_linear_bn_eval(linear().eval(), nn.BatchNorm1d(3).eval()),
        gh.OptionError,
        "got 3",
    ),
    "skip-init": (lambda: utils.skip_init(abs), gh.DTypeError, "builtin"),
    "total-norm": (lambda: utils.get_total_norm([BAG], 0), gh.OptionError, "norm_type=0"),
    # adapters
    "lora-names": (lambda: lora.attach(linear(), "nothing"), gh.OptionError, "nothing"),
    "lora-choices": (lambda: lora.attach(nn.Sequential(linear()), "*.q"), gh.OptionError, "of: 0."),
    "lora-none": (lambda: lora.attach(nn.ReLU(), "*.q"), gh.OptionError, "It has no such layer."),
    "lora-kinds": (lambda: lora.attach(nn.ReLU()), gh.DTypeError, "ReLU"),
    "lora-rank": (lambda: lora.attach(linear(), rank=0), gh.OptionError, "rank"),
    "lora-twice": (lambda: lora.attach(adapted()), gh.OptionError, "without adapters"),
    "lora-merge": (lambda: lora.merge(linear()), gh.OptionError, "attach"),
    "lora-load": (lambda: lora.load_state_dict(adapted(), {}), gh.CheckpointError, "0.lora.A"),
}


@pytest.mark.parametrize("name", TABLE)
def test_wrong_call(name):
    check_refused(*TABLE[name])


def flags_of_layers():
    """(class, flag) for all arguments of layers whose default is True or False."""
    layers = [x for x in vars(nn).values() if isinstance(x, type) and issubclass(x, nn.Module)]
    for layer in dict.fromkeys(layers):
        for p in inspect.signature(layer).parameters.values():
            if isinstance(p.default, bool):
                yield layer, p.name


@pytest.mark.parametrize(
    "layer, flag", [*flags_of_layers()], ids=lambda x: getattr(x, "__name__", x)
)
def test_flags_are_true_or_false(layer, flag):
    with pytest.raises(gh.OptionError, match=f"{flag} to be True or False; got 'no'"):
        layer(**{flag: "no"})


def test_the_flags_of_a_base_are_checked_too():
    with pytest.raises(gh.OptionError, match="bidirectional to be True or False"):
        nn.LSTM(2, 3, bidirectional="yes")


def test_a_tensor_in_a_flags_place_is_told_where_it_belongs():
    with pytest.raises(gh.OptionError, match=r"got a tensor \(3,\)\. Make the layer first"):
        nn.ReLU(gh.ones(3))


@pytest.mark.parametrize("flag", [1, np.True_, True])
def test_numbers_and_numpys_bools_are_flags(flag):
    assert nn.Linear(3, 2, flag).bias.shape == (2,)


def test_a_users_layer_takes_what_it_likes():
    class Mine(nn.Linear):
        def __init__(self, bias=True):
            super().__init__(3, 2, bias=bias != "no")

    assert Mine("no").bias is None
