"""Boxes and masks drawn on pictures, with Pillow."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from glasshouse.base.errors import ShapeError
from glasshouse.data.image import as_image, in_colour, pillow
from glasshouse.metrics.detection import to_boxes
from glasshouse.metrics.metric import to_labels
from glasshouse.ops.checks import check_integer, check_range

# Colours that the colour-blind tell apart. Source: Okabe & Ito 2008, Color universal design.
COLOURS = ((230, 159, 0), (86, 180, 233), (0, 158, 115), (240, 228, 66), (0, 114, 178),
           (213, 94, 0), (204, 121, 167))  # fmt: skip


def draw_boxes(
    image: Any,
    boxes: Any,
    labels: Sequence[Any] | None = None,
    scores: Sequence[float] | None = None,
    width: int = 2,
) -> Any:
    """A copy of a picture, a Pillow image or uint8 (height, width, channels), with boxes in it and
    the label and score of each above it. Equal labels have one colour.

    Shapes: boxes (N, 4).
    Raises: ShapeError unless there are as many labels and scores as boxes.
    Example:
        >>> picture = draw_boxes(np.zeros((20, 20, 3), np.uint8), [[2, 2, 9, 9]], width=1)
        >>> np.asarray(picture)[2, 5].tolist()
        [230, 159, 0]
    """
    boxes = to_boxes("draw_boxes", "boxes", boxes)
    texts = [[str(label)] for label in ([""] * len(boxes) if labels is None else labels)]
    for name, values in (("labels", texts), ("scores", scores)):
        if values is not None and len(values) != len(boxes):
            got = f"{len(values)} for {len(boxes)} boxes"
            raise ShapeError("draw_boxes", f"one of {name} for each box", got, "Pass as many.")
    picture = in_colour(as_image(image)).copy()
    pen = pillow("ImageDraw").Draw(picture)
    kinds = sorted({text[0] for text in texts})
    for i, (box, text) in enumerate(zip(boxes.tolist(), texts, strict=True)):
        colour = COLOURS[kinds.index(text[0]) % len(COLOURS)]
        pen.rectangle(box, outline=colour, width=check_integer("draw_boxes", "width", width, 1))
        text += [] if scores is None else [f"{float(scores[i]):.2f}"]
        if words := " ".join(text).strip():
            place = pen.textbbox((box[0], 0), words)
            top = max(box[1] - place[3], 0)
            pen.rectangle((box[0], top, place[2], top + place[3]), fill=colour)
            pen.text((box[0], top), words, fill=(0, 0, 0))
    return picture


def draw_mask(image: Any, classes: Any, alpha: float = 0.5) -> Any:
    """A copy of a picture in which each class has a colour, `alpha` of it; class 0 has none.

    Shapes: image (height, width, channels) or Pillow's, classes (height, width).
    Raises: ShapeError for a mask of another size.
    Example:
        >>> picture = draw_mask(np.zeros((1, 2, 3), np.uint8), [[0, 1]], alpha=1.0)
        >>> np.asarray(picture).tolist()
        [[[0, 0, 0], [230, 159, 0]]]
    """
    pixels = np.asarray(in_colour(as_image(image))).astype(np.float32)
    classes = to_labels("draw_mask", "classes", classes)
    if classes.shape != pixels.shape[:2]:
        raise ShapeError("draw_mask", f"classes {pixels.shape[:2]}", classes.shape, "Resize them.")
    colours = np.array(COLOURS, np.float32)[(classes - 1) % len(COLOURS)]
    part = np.where(classes > 0, check_range("draw_mask", "alpha", alpha, 0, 1), 0)[..., None]
    mixed = pixels * (1 - part) + colours * part
    return pillow("Image").fromarray(np.round(mixed).astype(np.uint8))
