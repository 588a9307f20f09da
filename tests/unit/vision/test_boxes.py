"""Operations on boxes beside torchvision's, SciPy's and the definition; pictures of boxes."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.errors import OptionError, ShapeError
from glasshouse.metrics import box_iou
from glasshouse.vision import boxes as ours
from glasshouse.vision.draw import COLOURS, draw_boxes, draw_mask
from glasshouse.vision.matching import assignment

FORMS = ("xyxy", "xywh", "cxcywh")


def random_boxes(seed, count, side=100.0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    corner = rng.uniform(0, side, (count, 2))
    return np.hstack([corner, corner + rng.uniform(1, side / 2, (count, 2))]).astype(dtype)


@pytest.fixture
def theirs(torchvision):
    return torchvision.ops


def tensor(x):
    import torch

    return torch.tensor(x)


@pytest.mark.parametrize("source", FORMS)
@pytest.mark.parametrize("target", FORMS)
def test_forms_are_torchvisions(theirs, source, target):
    values = random_boxes(0, 20)
    expected = theirs.box_convert(tensor(values), source, target).numpy()
    np.testing.assert_allclose(
        ours.box_convert(values, source, target).numpy(), expected, rtol=1e-6
    )
    back = ours.box_convert(ours.box_convert(values, source, target), target, source)
    np.testing.assert_allclose(back.numpy(), values, atol=1e-4)


def test_areas_and_overlaps_are_torchvisions(theirs):
    a, b = random_boxes(1, 30), random_boxes(2, 40)
    np.testing.assert_allclose(ours.box_area(a).numpy(), theirs.box_area(tensor(a)), rtol=1e-6)
    np.testing.assert_allclose(box_iou(a, b), theirs.box_iou(tensor(a), tensor(b)), atol=1e-6)
    expected = theirs.generalized_box_iou(tensor(a), tensor(b))
    np.testing.assert_allclose(ours.generalized_box_iou(a, b).numpy(), expected, atol=1e-5)
    clipped = theirs.clip_boxes_to_image(tensor(a), (50, 60))
    np.testing.assert_array_equal(ours.clip_boxes_to_image(a, (50, 60)).numpy(), clipped)
    expected = theirs.remove_small_boxes(tensor(a), 20.0)
    np.testing.assert_array_equal(ours.remove_small_boxes(a, 20.0), expected)


def test_the_gradient_of_the_overlap_is_torchvisions(theirs):
    import torch

    a, b = random_boxes(3, 25, dtype=np.float64), random_boxes(4, 25, dtype=np.float64)
    mine, other = gh.asarray(a).requires_grad_(), torch.tensor(a, requires_grad=True)
    (1 - ours.complete_overlap(mine, b)).sum().backward()
    theirs.generalized_box_iou_loss(other, tensor(b), reduction="sum").backward()
    np.testing.assert_allclose(mine.grad.numpy(), other.grad, atol=1e-12)


def by_definition(boxes, scores, threshold, groups):
    stay = []
    for i in np.argsort(-scores, kind="stable"):
        if all(
            groups[i] != groups[j] or box_iou(boxes[[i]], boxes[[j]]) <= threshold for j in stay
        ):
            stay.append(i)
    return stay


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("threshold", [0.0, 0.31, 0.7, 1.0])
def test_what_stays_is_what_the_definition_says(seed, threshold):
    boxes = random_boxes(seed, 60)
    rng = np.random.default_rng(seed)
    scores, groups = rng.integers(0, 20, 60) / 20, rng.integers(0, 3, 60)  # scores with ties
    expected = by_definition(boxes, scores, threshold, groups)
    assert ours.batched_nms(boxes, scores, groups, threshold).tolist() == expected
    expected = by_definition(boxes, scores, threshold, np.zeros(60))
    assert ours.nms(gh.asarray(boxes), gh.asarray(scores), threshold).tolist() == expected


def test_nothing_stays_of_nothing():
    assert ours.nms(np.zeros((0, 4)), [], 0.5).shape == (0,)
    assert ours.nms([[1, 1, 1, 1], [1, 1, 1, 1]], [1.0, 0.5], 0.5).tolist() == [0, 1]


def test_an_overlap_in_float32_is_compared_with_the_threshold_in_float64():
    """3 / 10 in float32 is above 0.3, which torchvision's own operator goes by."""
    boxes = np.array([[0, 0, 10, 1], [0, 0, 3, 1]], np.float32)
    assert ours.nms(boxes, [1.0, 0.5], 0.3).tolist() == [0]
    assert ours.nms(boxes.astype(np.float64), [1.0, 0.5], 0.3).tolist() == [0, 1]


def test_boxes_around_masks_are_torchvisions(theirs):
    masks = np.random.default_rng(0).random((5, 12, 9)) > 0.97
    masks[:, 3, 4] = True
    expected = theirs.masks_to_boxes(tensor(masks))
    np.testing.assert_array_equal(ours.masks_to_boxes(masks), expected)


@pytest.mark.parametrize("shape", [(5, 5), (3, 9), (9, 3), (1, 4), (0, 3), (40, 60)])
def test_assignments_are_scipys(shape):
    optimize = pytest.importorskip("scipy.optimize")
    cost = np.random.default_rng(sum(shape)).normal(size=shape)
    rows, columns = assignment(cost)
    expected = optimize.linear_sum_assignment(cost)
    np.testing.assert_array_equal(rows, expected[0])
    np.testing.assert_array_equal(columns, expected[1])


def test_pairs_without_a_cost_are_the_last_choice():
    assert [x.tolist() for x in assignment([[np.nan, 1.0], [2.0, np.inf]])] == [[0, 1], [1, 0]]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ours.box_convert([[1, 2, 3, 4]], "xyxy", "xyhw"), OptionError, "'xywh'"),
        (lambda: ours.box_area([[1, 2, 3]]), ShapeError, r"\(\.\.\., 4\)"),
        (lambda: ours.nms([[0, 0, 1, 1]], [1, 2], 0.5), ShapeError, "scores of"),
        (lambda: ours.nms([[0, 0, 1, 1]], [1], 1.5), OptionError, "iou_threshold"),
        (lambda: ours.nms([[2, 0, 1, 1]], [1], 0.5), OptionError, "x1 <= x2"),
        (lambda: ours.masks_to_boxes(np.ones((2, 2))), ShapeError, r"\(N, H, W\)"),
        (lambda: assignment([1, 2]), ShapeError, "matrix"),
        (
            lambda: draw_boxes(np.zeros((4, 4, 3), np.uint8), [[0, 0, 1, 1]], []),
            ShapeError,
            "labels",
        ),
        (
            lambda: draw_mask(np.zeros((4, 4, 3), np.uint8), np.ones((2, 2), int)),
            ShapeError,
            "classes",
        ),
    ],
)
def test_errors_name_what_is_wrong(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_pictures_of_boxes_have_a_colour_for_each_label():
    pytest.importorskip("PIL")
    image = np.full((60, 80, 3), 255, np.uint8)
    boxes = [[5, 20, 30, 50], [40, 20, 70, 50], [10, 30, 20, 40]]
    picture = np.asarray(draw_boxes(image, boxes, ["ant", "bee", "ant"], [0.5, 0.25, 1], width=1))
    assert (image == 255).all()  # as it was
    assert picture[50, 10].tolist() == picture[40, 15].tolist() == list(COLOURS[0])
    assert picture[50, 55].tolist() == list(COLOURS[1])
    assert (picture[:20] != 255).any()  # words above the boxes


def test_masks_are_mixed_with_the_picture():
    pytest.importorskip("PIL")
    picture = np.asarray(draw_mask(np.zeros((2, 2, 3), np.uint8), [[0, 1], [2, 0]], alpha=0.5))
    assert picture[0, 0].tolist() == [0, 0, 0]
    np.testing.assert_allclose(picture[1, 0], np.array(COLOURS[1]) / 2, atol=0.5)
