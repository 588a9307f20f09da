"""Wrong calls of layers of images, lazy layers and blocks: expected, got, fix."""

import pytest
from wrong_calls import check_refused

import glasshouse as gh
import glasshouse.nn.functional as F
from glasshouse import nn

IMAGES, SIGNALS, V = gh.ones((2, 3, 8, 8)), gh.ones((2, 3, 8)), gh.ones(3)
WHOLE = gh.ones((1, 1, 4, 4), dtype="int64")
MAP = gh.ones((2, 2, 3))
TABLE = {
    "mode": (lambda: F.interpolate(IMAGES, 4, mode="bilinaer"), gh.OptionError, "'bilinear'"),
    "mode-axes": (lambda: F.interpolate(SIGNALS, 4, mode="bicubic"), gh.ShapeError, "(2, 3, 8)"),
    "resize-vector": (lambda: F.interpolate(V, 4), gh.ShapeError, "(3,)"),
    "no-size": (lambda: F.interpolate(IMAGES), gh.OptionError, "size=None"),
    "two-sizes": (lambda: F.interpolate(IMAGES, 4, 2.0), gh.OptionError, "scale_factor=2.0"),
    "size-count": (lambda: F.interpolate(IMAGES, (4, 4, 4)), gh.OptionError, "(4, 4, 4)"),
    "size-zero": (lambda: F.interpolate(IMAGES, 0), gh.OptionError, "0"),
    "factor": (lambda: F.interpolate(IMAGES, scale_factor=-1), gh.OptionError, "-1"),
    "factor-count": (lambda: F.interpolate(IMAGES, scale_factor=(2,)), gh.OptionError, "(2,)"),
    "factor-small": (lambda: F.interpolate(IMAGES, scale_factor=0.1), gh.OptionError, "0.1"),
    "corners": (lambda: F.interpolate(IMAGES, 4, align_corners=True), gh.OptionError, "nearest"),
    "antialias": (
        lambda: F.interpolate(SIGNALS, 4, mode="linear", antialias=True),
        gh.OptionError,
        "linear",
    ),
    "recompute": (
        lambda: F.interpolate(IMAGES, 4, recompute_scale_factor=True),
        gh.OptionError,
        "size=4",
    ),
    "resize-dtype": (lambda: F.interpolate(WHOLE, 2, mode="bilinear"), gh.DTypeError, "int64"),
    "grid-shape": (lambda: F.grid_sample(IMAGES, gh.ones((2, 4, 4, 3))), gh.ShapeError, "4, 3)"),
    "grid-batch": (lambda: F.grid_sample(IMAGES, gh.ones((1, 4, 4, 2))), gh.ShapeError, "(1, 4"),
    "grid-mode": (
        lambda: F.grid_sample(IMAGES, gh.ones((2, 4, 4, 2)), "linear"),
        gh.OptionError,
        "linear",
    ),
    "grid-padding": (
        lambda: F.grid_sample(IMAGES, gh.ones((2, 4, 4, 2)), padding_mode="reflect"),
        gh.OptionError,
        "'reflection'",
    ),
    "grid-volume": (
        lambda: F.grid_sample(gh.ones((1, 1, 2, 2, 2)), gh.ones((1, 2, 2, 2, 3)), "bicubic"),
        gh.OptionError,
        "bicubic",
    ),
    "affine-shape": (lambda: F.affine_grid(MAP, (3, 1, 4, 4)), gh.ShapeError, "(2, 2, 3)"),
    "affine-size": (lambda: F.affine_grid(MAP, (2, 1, 4)), gh.OptionError, "(2, 1, 4)"),
    "shuffle": (lambda: F.pixel_shuffle(IMAGES, 2), gh.OptionError, "channels=3"),
    "unshuffle": (lambda: nn.PixelUnshuffle(3)(IMAGES), gh.OptionError, "height=8"),
    "shuffle-axes": (lambda: F.pixel_shuffle(V, 1), gh.ShapeError, "(3,)"),
    "groups": (lambda: nn.ChannelShuffle(2)(IMAGES), gh.OptionError, "groups=2"),
    "pad-count": (lambda: nn.ZeroPad2d((1, 2, 3)), gh.OptionError, "(1, 2, 3)"),
    "pad-wide": (lambda: nn.ReflectionPad2d(8)(IMAGES), gh.ShapeError, "(8, 8)"),
    "pad-axes": (lambda: nn.CircularPad1d(1)(IMAGES), gh.ShapeError, "(2, 3, 8, 8)"),
    "unpool-shape": (lambda: F.max_unpool2d(IMAGES, WHOLE, 2), gh.ShapeError, "(1, 1, 4, 4)"),
    "unpool-dtype": (lambda: F.max_unpool2d(IMAGES, IMAGES, 2), gh.DTypeError, "float32"),
    "unpool-size": (
        lambda: F.max_unpool2d(gh.ones((1, 1, 4, 4)), WHOLE, 2, output_size=(4, 4)),
        gh.OptionError,
        "(4, 4)",
    ),
    "lp-zero": (lambda: F.lp_pool2d(IMAGES, 0, 2), gh.OptionError, "0"),
    "fractional": (lambda: F.fractional_max_pool2d(IMAGES, 2), gh.OptionError, "None"),
    "fractional-ratio": (
        lambda: F.fractional_max_pool2d(IMAGES, 2, output_ratio=1.5),
        gh.OptionError,
        "1.5",
    ),
    "fractional-size": (lambda: F.fractional_max_pool2d(IMAGES, 3, 7), gh.ShapeError, "(8, 8)"),
    "lrn-size": (lambda: nn.LocalResponseNorm(0), gh.OptionError, "0"),
    "lrn-axes": (lambda: F.local_response_norm(V, 3), gh.ShapeError, "(3,)"),
    "bilinear": (lambda: nn.Bilinear(3, 4, 5)(V, V), gh.ShapeError, "(5, 3, 4)"),
    "conv-tbc": (lambda: F.conv_tbc(IMAGES, SIGNALS, V), gh.ShapeError, "(2, 3, 8, 8)"),
    "feature-alpha": (lambda: nn.FeatureAlphaDropout()(V), gh.ShapeError, "(3,)"),
    "gumbel": (lambda: F.gumbel_softmax(V, tau=0), gh.OptionError, "0"),
    "gate": (lambda: F.swiglu(V), gh.ShapeError, "(3,)"),
    "drop-path": (lambda: nn.DropPath(0.5, "rows"), gh.OptionError, "'row'"),
    "in-place": (lambda: F.relu_([1.0]), gh.DTypeError, "list"),
    "sync-group": (lambda: nn.SyncBatchNorm(3, process_group=1), gh.OptionError, "1"),
    "sync-channels": (lambda: nn.SyncBatchNorm(4)(IMAGES), gh.ShapeError, "(2, 3, 8, 8)"),
    "lazy-shape": (lambda: nn.LazyConv2d(3, 3).weight.shape, gh.ShapeError, "none yet"),
    "lazy-axes": (lambda: nn.LazyConv2d(3, 3)(V), gh.ShapeError, "(3,)"),
    "lazy-option": (lambda: nn.LazyConv2d(3, 3, groups=2), gh.OptionError, "groups=2"),
    "lazy-state": (
        lambda: nn.LazyLinear(3).load_state_dict({"weight": V}),
        gh.CheckpointError,
        "bias",
    ),
    "residual": (lambda: nn.Residual(nn.ReLU()).add_shortcut(1, 1), gh.OptionError, "start=1"),
    "asymmetric": (lambda: nn.AsymmetricConv1d(1, 1, 3, padding=2), gh.OptionError, "2"),
    "tds-padding": (lambda: nn.TDSBlock(2, 3, 4, right_padding=3), gh.OptionError, "3"),
    "tds-shape": (lambda: nn.TDSBlock(2, 3, 4)(IMAGES), gh.ShapeError, "(2, 3, 8, 8)"),
    "conformer-long": (lambda: nn.Conformer(3, 4, 8, 2, 4, 3)(SIGNALS.mT), gh.ShapeError, "8, 3"),
    "view": (lambda: nn.View((0, 0, 0))(gh.ones((2, 3))), gh.ShapeError, "(2, 3)"),
    "transform": (lambda: nn.Transform(3), gh.DTypeError, "3"),
}


@pytest.mark.parametrize("name", TABLE)
def test_wrong_call(name):
    check_refused(*TABLE[name])
