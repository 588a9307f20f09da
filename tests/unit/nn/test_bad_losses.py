"""Wrong calls of losses: each error names what was expected, what came, and the fix."""

import pytest
from wrong_calls import check_refused

import glasshouse as gh
import glasshouse.nn.functional as F
from glasshouse import nn

X, Y, V = gh.ones((3, 4)), gh.ones((3, 5)), gh.ones(3)
N = gh.asarray([0, 1, 2])
TABLE = {
    "cosine-shapes": (lambda: F.cosine_embedding_loss(X, Y, V), gh.ShapeError, "(3, 5)"),
    "cosine-target": (lambda: F.cosine_embedding_loss(X, X, X), gh.ShapeError, "(3, 4)"),
    "cosine-images": (
        lambda: F.cosine_embedding_loss(gh.ones((2, 3, 4)), gh.ones((2, 3, 4)), V),
        gh.ShapeError,
        "(2, 3, 4)",
    ),
    "gaussian-var": (lambda: F.gaussian_nll_loss(X, X, V[:2]), gh.ShapeError, "(2,)"),
    "gaussian-negative": (lambda: F.gaussian_nll_loss(X, X, -X), gh.OptionError, "-1.0"),
    "gaussian-layer": (lambda: nn.GaussianNLLLoss(reduction="avg"), gh.OptionError, "avg"),
    "poisson-shapes": (lambda: F.poisson_nll_loss(X, Y), gh.ShapeError, "(3, 5)"),
    "hinge-shapes": (lambda: F.hinge_embedding_loss(X, V), gh.ShapeError, "(3,)"),
    "ranking-shapes": (lambda: F.margin_ranking_loss(X, X, Y), gh.ShapeError, "(3, 5)"),
    "ranking-integers": (lambda: F.margin_ranking_loss(N, N, N), gh.DTypeError, "int64"),
    "multi-margin-p": (lambda: F.multi_margin_loss(X, N, p=3), gh.OptionError, "3"),
    "multi-margin-class": (
        lambda: F.multi_margin_loss(X, gh.asarray([0, 1, 4])),
        gh.IndexOutOfRangeError,
        "4",
    ),
    "multi-margin-float": (lambda: F.multi_margin_loss(X, V), gh.DTypeError, "float32"),
    "multi-margin-weight": (
        lambda: F.multi_margin_loss(X, N, weight=V),
        gh.ShapeError,
        "(3,)",
    ),
    "multilabel-float": (lambda: F.multilabel_margin_loss(X, X), gh.DTypeError, "float32"),
    "multilabel-ndim": (
        lambda: F.multilabel_margin_loss(gh.ones((1, 2, 3)), gh.zeros((1, 2, 3))),
        gh.ShapeError,
        "(1, 2, 3)",
    ),
    "multilabel-class": (
        lambda: F.multilabel_margin_loss(V, gh.asarray([0, 7, -1])),
        gh.IndexOutOfRangeError,
        "7",
    ),
    "soft-margin-shapes": (lambda: F.soft_margin_loss(X, V), gh.ShapeError, "(3,)"),
    "triplet-margin": (lambda: F.triplet_margin_loss(X, X, X, margin=0), gh.OptionError, "0"),
    "triplet-axes": (lambda: F.triplet_margin_loss(X, X, V), gh.ShapeError, "(3,)"),
    "triplet-distance": (
        lambda: F.triplet_margin_with_distance_loss(X, X, X, distance_function="l2"),
        gh.DTypeError,
        "l2",
    ),
    "triplet-reduction": (
        lambda: nn.TripletMarginLoss(reduction="meen"),
        gh.OptionError,
        "'mean'",
    ),
    "contrastive-margin": (
        lambda: F.contrastive_loss(X, X, V, margin=-1.0),
        gh.OptionError,
        "-1.0",
    ),
    "distance-p": (lambda: F.pairwise_distance(X, X, p=-1), gh.OptionError, "-1"),
    "distance-p-text": (lambda: F.pairwise_distance(X, X, p="two"), gh.DTypeError, "two"),
    "pdist-vector": (lambda: F.pdist(V), gh.ShapeError, "(3,)"),
    "focal-gamma": (lambda: F.focal_loss(X, N, gamma=-1.0), gh.OptionError, "-1.0"),
    "focal-alpha": (lambda: F.sigmoid_focal_loss(X, X, alpha=2.0), gh.OptionError, "2.0"),
    "dice-shapes": (lambda: F.dice_loss(X, Y), gh.ShapeError, "(3, 5)"),
    "dice-smooth": (lambda: F.dice_loss(X, X, smooth=-1.0), gh.OptionError, "-1.0"),
    "info-nce-temperature": (
        lambda: F.info_nce_loss(X, X, temperature=0.0),
        gh.OptionError,
        "0.0",
    ),
    "info-nce-negatives": (lambda: F.info_nce_loss(X, X, Y), gh.ShapeError, "(3, 5)"),
    "simclr-shapes": (lambda: F.nt_xent_loss(X, Y), gh.ShapeError, "(3, 5)"),
    "smoothing": (lambda: F.label_smoothing_loss(X, N, smoothing=1.5), gh.OptionError, "1.5"),
    "linear-features": (lambda: F.linear_cross_entropy(X, Y, N), gh.ShapeError, "(3, 5)"),
    "linear-bias": (
        lambda: F.linear_cross_entropy(X, X, N, linear_bias=gh.ones(2)),
        gh.ShapeError,
        "(2,)",
    ),
    "linear-ignore": (
        lambda: F.linear_cross_entropy(X, X, gh.ones((3, 3)), ignore_index=1),
        gh.OptionError,
        "ignore_index=1",
    ),
    "linear-chunk": (
        lambda: nn.LinearCrossEntropyOptions(batch_chunk_size=0),
        gh.OptionError,
        "0",
    ),
    "linear-method": (
        lambda: nn.LinearCrossEntropyOptions(chunking_method="rows:2"),
        gh.OptionError,
        "rows:2",
    ),
    "adaptive-cutoffs": (
        lambda: nn.AdaptiveLogSoftmaxWithLoss(8, 10, [5, 3]),
        gh.OptionError,
        "[5, 3]",
    ),
    "adaptive-input": (
        lambda: nn.AdaptiveLogSoftmaxWithLoss(8, 10, [3])(X, N),
        gh.ShapeError,
        "(3, 4)",
    ),
    "adaptive-target": (
        lambda: nn.AdaptiveLogSoftmaxWithLoss(4, 10, [3])(X, N + 8),
        gh.OptionError,
        "10",
    ),
    "mse-weight": (lambda: F.mse_loss(X, X, weight=V), gh.ShapeError, "(3,)"),
    "bce-range": (lambda: F.binary_cross_entropy(X + 1, X), gh.OptionError, "2.0"),
}


@pytest.mark.parametrize("name", TABLE)
def test_wrong_call(name):
    check_refused(*TABLE[name])
