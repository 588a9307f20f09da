"""Samples of images with boxes and masks, which follow when the image is moved.

A sample is a dict: "image"; "boxes" (N, 4), corners in pixels; "labels", "crowd", "difficult",
"area" (N,) of the boxes; "masks" (N, height, width) of the boxes; "mask" (height, width), the class
of each pixel. A box of which less than a pixel is left is taken out, with all that belongs to it.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from glasshouse.base.errors import ShapeError

OF_BOXES = ("labels", "crowd", "difficult", "area", "masks")  # fields with a row for each box
LEAST_SIDE = 1.0  # pixels; a box with a shorter side has nothing to be seen


class Placement(NamedTuple):
    """The part `box` (left, top, right, bottom) of an image brought to `size` (width, height), then
    mirrored from left to right, or upside down."""

    box: tuple[int, int, int, int]
    size: tuple[int, int]
    mirrored: tuple[bool, bool] = (False, False)

    def from_corner(self) -> "Placement":
        """The same for an image of which the rest is cut off."""
        left, top, right, bottom = self.box
        return self._replace(box=(0, 0, right - left, bottom - top))

    def move(self, points: np.ndarray) -> np.ndarray:
        """Where points (..., 2) of the image come to lie."""
        low, high = np.array(self.box[:2]), np.array(self.box[2:])
        size = np.array(self.size)
        points = (points - low) * (size / (high - low))
        return np.where(self.mirrored, size - points, points)


def follow(
    sample: dict[str, Any],
    move: Callable[[np.ndarray], np.ndarray],
    size: tuple[int, int],
    move_mask: Callable[[Any], Any],
) -> dict[str, Any]:
    """The sample with its boxes and masks moved as its image is, which gets `size` (width, height).
    A box becomes the smallest one around its corners.

    Raises: ShapeError for boxes of another shape.
    """
    sample = dict(sample)
    if "mask" in sample:
        sample["mask"] = move_mask(sample["mask"])
    if "boxes" not in sample:
        return sample
    boxes = as_rows(sample["boxes"])
    corners = move(boxes[:, [[0, 1], [2, 1], [0, 3], [2, 3]]])  # (N, 4, 2)
    moved = np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)
    clipped = np.clip(moved, 0, [*size, *size]).astype(np.float32)
    stay = (clipped[:, 2:] - clipped[:, :2] >= LEAST_SIDE).all(axis=1)
    for name in OF_BOXES:
        if name in sample:
            rows = np.asarray(sample[name])
            if len(rows) != len(boxes):
                got = f"{len(rows)} for {len(boxes)} boxes"
                raise ShapeError("transform", f"one of {name} for each box", got, "Pass as many.")
            sample[name] = rows[stay]
    if "area" in sample:  # of a shape, which is cut as its box is
        origin, right, down = move(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))
        scale = abs(np.linalg.det([right - origin, down - origin]))
        shown = areas(clipped[stay]) / np.maximum(areas(moved[stay]), 1e-9)
        sample["area"] = (sample["area"] * scale * shown).astype(np.float32)
    if "masks" in sample:
        masks = [move_mask(mask) for mask in sample["masks"]]
        empty = np.zeros((0, size[1], size[0]), np.asarray(sample["masks"]).dtype)
        sample["masks"] = np.stack(masks) if masks else empty
    sample["boxes"] = clipped[stay]
    return sample


def areas(boxes: np.ndarray) -> np.ndarray:
    return np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)


def as_rows(boxes: Any) -> np.ndarray:
    boxes = np.asarray(boxes, np.float64)
    boxes = boxes if boxes.size else boxes.reshape(0, 4)
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise ShapeError("transform", "boxes (N, 4)", boxes.shape, "Pass corners x1, y1, x2, y2.")
    return boxes


def separated(samples: Sequence[dict[str, Any]]) -> tuple[list[Any], list[dict[str, Any]]]:
    """(the images, the rest of each sample)."""
    rest = [{k: v for k, v in sample.items() if k != "image"} for sample in samples]
    return [sample["image"] for sample in samples], rest
