"""Boxes: their forms, overlaps, and the best of those that overlap.

A box is (x1, y1, x2, y2), two corners, unless a form is named. `box_iou` is that of the metrics."""

from typing import Any

import numpy as np

from glasshouse import tensor
from glasshouse.base.errors import IndexOutOfRangeError, OptionError, ShapeError
from glasshouse.dispatch.value import as_value
from glasshouse.metrics.detection import NAMES, areas, box_iou, check_names, overlaps, to_boxes
from glasshouse.metrics.metric import to_labels, to_numbers
from glasshouse.ops.checks import check_option, check_range, check_several
from glasshouse.tensor import Tensor, stack

__all__ = ["batched_nms", "box_area", "box_convert", "box_iou", "clip_boxes_to_image",
           "complete_overlap", "generalized_box_iou", "masks_to_boxes", "nms",
           "remove_small_boxes"]  # fmt: skip

FORMS = ("xyxy", "xywh", "cxcywh")
EPSILON = 1e-7  # keeps the overlap of two empty boxes finite, as in torchvision's loss


def box_tensor(where: str, boxes: Any) -> Tensor:
    boxes = as_value(boxes, where=where)
    if boxes.ndim < 1 or boxes.shape[-1] != 4:
        raise ShapeError(where, "boxes (..., 4)", boxes.shape, "Pass four numbers of each box.")
    return boxes


def box_convert(boxes: Any, in_fmt: str, out_fmt: str) -> Tensor:
    """The boxes in another form: "xyxy" two corners, "xywh" a corner and the sides, "cxcywh" the
    centre and the sides.

    Shapes: (..., 4) -> the same.
    Raises: OptionError for another form, ShapeError for another shape.
    Source: torchvision.
    Example:
        >>> box_convert(gh.asarray([[2.0, 2.0, 6.0, 4.0]]), "xyxy", "cxcywh").tolist()
        [[4.0, 3.0, 4.0, 2.0]]
    """
    check_option("box_convert", "in_fmt", in_fmt, FORMS)
    check_option("box_convert", "out_fmt", out_fmt, FORMS)
    boxes = box_tensor("box_convert", boxes)
    if in_fmt == out_fmt:
        return boxes
    x, y, w, h = (boxes[..., i] for i in range(4))
    if in_fmt == "xyxy":
        w, h = w - x, h - y
    elif in_fmt == "cxcywh":
        x, y = x - w / 2, y - h / 2
    if out_fmt == "xyxy":
        w, h = x + w, y + h
    elif out_fmt == "cxcywh":
        x, y = x + w / 2, y + h / 2
    return stack([x, y, w, h], axis=-1)


def box_area(boxes: Any) -> Tensor:
    """The area of each box.

    Shapes: (..., 4) -> (...).
    Raises: ShapeError for another shape.
    Source: standard.
    Example:
        >>> box_area(gh.asarray([[0, 0, 2, 3]])).tolist()
        [6]
    """
    return areas(box_tensor("box_area", boxes))


def complete_overlap(boxes1: Any, boxes2: Any) -> Tensor:
    """The generalized IoU of box by box: intersection / union - (hull - union) / hull, where the
    hull is the smallest box around both. Its gradient is not 0 where boxes do not meet.

    Shapes: (..., 4), (..., 4) that broadcast -> (...).
    Raises: ShapeError for other shapes.
    Source: Rezatofighi et al. 2019, arXiv:1902.09630, algorithm 1.
    Example:
        >>> round(complete_overlap([0.0, 0.0, 1.0, 1.0], [2.0, 0.0, 3.0, 1.0]).item(), 4)
        -0.3333
    """
    a, b = box_tensor("complete_overlap", boxes1), box_tensor("complete_overlap", boxes2)
    both, union = overlaps(a, b, tensor)
    low = tensor.minimum(a[..., :2], b[..., :2])
    sides = tensor.maximum(a[..., 2:], b[..., 2:]) - low
    hull = sides[..., 0] * sides[..., 1]
    return both / (union + EPSILON) - (hull - union) / (hull + EPSILON)


def generalized_box_iou(boxes1: Any, boxes2: Any) -> Tensor:
    """`complete_overlap` of each pair of boxes.

    Shapes: (N, 4), (M, 4) -> (N, M).
    Raises: ShapeError for other shapes.
    Source: as complete_overlap's.
    """
    first = box_tensor("generalized_box_iou", boxes1)
    return complete_overlap(first[:, None], boxes2)


def clip_boxes_to_image(boxes: Any, size: tuple[int, int]) -> Tensor:
    """The part of each box inside an image of (height, width).

    Shapes: (..., 4) -> the same.
    Raises: ShapeError for another shape.
    Source: standard.
    Example:
        >>> clip_boxes_to_image(gh.asarray([[-1, 2, 9, 9]]), (8, 6)).tolist()
        [[0, 2, 6, 8]]
    """
    boxes, (height, width) = box_tensor("clip_boxes_to_image", boxes), size
    limits = as_value([width, height, width, height], where="clip_boxes_to_image")
    return tensor.minimum(tensor.maximum(boxes, 0), limits.astype(boxes.dtype))


def remove_small_boxes(boxes: Any, least: float) -> np.ndarray:
    """The places of the boxes whose sides are both at least that long.

    Shapes: (N, 4) -> (K,).
    Raises: ShapeError for another shape, OptionError for corners in the wrong order.
    Source: standard.
    """
    boxes = to_boxes("remove_small_boxes", "boxes", boxes)
    return np.flatnonzero((boxes[:, 2:] - boxes[:, :2] >= least).all(axis=1))


def nms(boxes: Any, scores: Any, iou_threshold: float) -> np.ndarray:
    """The places of the boxes that stay, by falling score: a box goes whose IoU with one that stays
    and has a higher score is above the threshold.

    Shapes: boxes (N, 4), scores (N,) -> (K,).
    Dtypes: int64; IoU is computed in float64 for boxes of that dtype, else in float32.
    Raises: ShapeError for other shapes, OptionError for a threshold outside [0, 1].
    Source: standard; torchvision.
    Example:
        >>> nms([[0, 0, 4, 4], [0, 0, 4, 5], [9, 9, 10, 10]], [0.5, 0.9, 0.1], 0.5).tolist()
        [1, 2]
    """
    return batched_nms(boxes, scores, None, iou_threshold)


def batched_nms(boxes: Any, scores: Any, idxs: Any, iou_threshold: float) -> np.ndarray:
    """`nms` of each group by itself: `idxs` has the group, e.g. the class, of each box.

    Shapes: boxes (N, 4), scores (N,), idxs (N,) -> (K,), by falling score.
    Dtypes: as nms.
    Raises: as nms.
    Source: torchvision.
    """
    check_range("nms", "iou_threshold", iou_threshold, 0, 1)
    is_wide = to_numbers("nms", "boxes", boxes).dtype == np.float64
    boxes = to_boxes("nms", "boxes", boxes).astype(np.float64 if is_wide else np.float32)
    scores = to_numbers("nms", "scores", scores)
    groups = np.zeros(len(boxes)) if idxs is None else to_labels("nms", "idxs", idxs)
    for name, array in (("scores", scores), ("idxs", groups)):
        if array.shape != boxes.shape[:1]:
            fix = "Give one for each box."
            raise ShapeError("nms", f"{name} of {boxes.shape[:1]}", array.shape, fix)
    order = np.argsort(-scores, kind="stable")
    stay = []
    while order.size:
        best, rest = order[0], order[1:]
        stay.append(best)
        both, union = overlaps(boxes[best], boxes[rest])
        with np.errstate(invalid="ignore"):  # two empty boxes: 0 / 0 is above no threshold
            overlap = (both / union).astype(np.float64)  # a float32 of 0.3 is above 0.3
            covered = (overlap > iou_threshold) & (groups[rest] == groups[best])
        order = rest[~covered]
    return np.array(stay, np.int64)


def masks_to_boxes(masks: Any) -> np.ndarray:
    """The smallest box around the set pixels of each mask; its corners are pixels in it. A mask
    without set pixels gets zeros.

    Shapes: (N, H, W) -> (N, 4).
    Raises: ShapeError for another number of axes.
    Source: torchvision.
    Example:
        >>> masks_to_boxes(np.eye(4)[None, 1:]).tolist()
        [[1.0, 0.0, 3.0, 2.0]]
    """
    masks = to_numbers("masks_to_boxes", "masks", masks)
    if masks.ndim != 3:
        raise ShapeError("masks_to_boxes", "masks (N, H, W)", masks.shape, "Add an axis.")
    boxes = np.zeros((len(masks), 4), np.float32)
    for box, mask in zip(boxes, masks != 0, strict=True):
        rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
        if rows.size:
            box[:] = columns[0], rows[0], columns[-1], rows[-1]
    return boxes


def check_targets(
    where: str, targets: Any, num_classes: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """(boxes, labels) of each image, checked: each box has an area, each label is a class."""
    fix = "Pass e.g. [{'boxes': boxes, 'labels': labels}]."
    targets = check_several(where, targets, "a list of dicts, one an image", fix)
    check_names(where, targets, NAMES)
    results = []
    for image, target in enumerate(targets):
        boxes = to_boxes(where, "boxes", target["boxes"])
        labels = to_labels(where, "labels", target["labels"])
        if labels.shape != boxes.shape[:1]:
            expected = f"labels of {boxes.shape[:1]} in image {image}"
            raise ShapeError(where, expected, labels.shape, "Give one for each box.")
        empty = np.flatnonzero(~(areas(boxes) > 0))
        if empty.size:
            got = f"{boxes[empty[0]].tolist()} in image {image}"
            raise OptionError(where, "boxes with an area", got, "Leave it out.")
        outside = labels[(labels < 0) | (labels >= num_classes)]
        if outside.size:
            expected, got = f"labels from 0 to {num_classes - 1}", f"{outside[0]} in image {image}"
            raise IndexOutOfRangeError(where, expected, got, "Check num_classes.")
        results.append((boxes.astype(np.float32), labels))
    return results
