"""Metrics of boxes: their overlap, and mean average precision by COCO's rule."""

import math
from typing import Any

import numpy as np

from glasshouse.base.errors import DTypeError, OptionError, ShapeError, type_name
from glasshouse.dispatch.value import ArrayLike
from glasshouse.metrics.metric import Metric, to_labels, to_numbers
from glasshouse.ops.checks import check_integer, check_several

NAMES = ("boxes", "labels")  # fields of each image
RECALLS = np.linspace(0, 1, 101)
AREAS: dict[str, Any] = {
    "all": (0, 1e10),
    "small": (0, 32**2),
    "medium": (32**2, 96**2),
    "large": (96**2, 1e10),
}


def box_iou(boxes1: Any, boxes2: Any, crowd: ArrayLike | None = None) -> np.ndarray:
    """The intersection over the union of each pair of boxes (x1, y1, x2, y2); over the first box
    alone where the second is a crowd.

    Shapes: (N, 4), (M, 4) -> (N, M).
    Raises: ShapeError for other shapes.
    Source: standard; Lin et al. 2014, arXiv:1405.0312 (crowds).
    Example:
        >>> box_iou([[0, 0, 2, 2]], [[1, 0, 3, 2]]).tolist()
        [[0.3333333333333333]]
    """
    a, b = to_boxes("box_iou", "boxes1", boxes1), to_boxes("box_iou", "boxes2", boxes2)
    both, union = overlaps(a[:, None], b)
    if crowd is not None:
        union = np.where(np.asarray(crowd, bool), areas(a)[:, None], union)
    return both / np.where(union > 0, union, 1)


def overlaps(a: Any, b: Any, names: Any = np) -> tuple[Any, Any]:
    """(intersection, union) of boxes, by the functions of `names`.

    Shapes: (..., 4), (..., 4) that broadcast -> (...).
    """
    high, low = names.minimum(a[..., 2:], b[..., 2:]), names.maximum(a[..., :2], b[..., :2])
    sides = names.maximum(high - low, 0)
    both = sides[..., 0] * sides[..., 1]
    return both, areas(a) + areas(b) - both


def areas(boxes: Any) -> Any:
    """The area of each box; an array or a tensor, as the boxes."""
    sides = boxes[..., 2:] - boxes[..., :2]
    return sides[..., 0] * sides[..., 1]


def to_boxes(where: str, name: str, boxes: Any) -> np.ndarray:
    array = to_numbers(where, name, boxes).astype(np.float64)
    array = array.reshape(0, 4) if not array.size else array
    if array.ndim != 2 or array.shape[1] != 4:
        raise ShapeError(where, f"{name} (N, 4)", array.shape, "Pass x1, y1, x2, y2 of each box.")
    if (array[:, 2:] < array[:, :2]).any():
        wrong = array[(array[:, 2:] < array[:, :2]).any(axis=1)][0].tolist()
        raise OptionError(where, f"{name} with x1 <= x2 and y1 <= y2", wrong, "Swap the corners.")
    return array


class MeanAveragePrecision(Metric):
    """COCO's average precision: over classes and thresholds of IoU, the mean of precision at 101
    recalls, precision being the highest at that recall or above. Predictions are matched by falling
    score to the target of the same class with the largest IoU; crowds and targets outside a range
    of areas neither help nor harm.

    Source: Lin et al. 2014, arXiv:1405.0312; COCO's evaluation.
    Example:
        >>> precision = MeanAveragePrecision()
        >>> box = [[0, 0, 10, 10]]
        >>> precision.update([{"boxes": box, "scores": [0.9], "labels": [1]}],
        ...                  [{"boxes": box, "labels": [1]}])
        >>> round(precision.value()["map"], 6)
        1.0
    """

    gathered: dict[Any, Any] = {"predicted": [], "targets": [], "images": 0}

    def __init__(self, iou_thresholds: Any = None, max_detections: int = 100) -> None:
        where = "MeanAveragePrecision"
        thresholds = np.linspace(0.5, 0.95, 10) if iou_thresholds is None else iou_thresholds
        self.thresholds: np.ndarray = np.asarray(thresholds, np.float64)
        if self.thresholds.ndim != 1 or not ((self.thresholds > 0) & (self.thresholds <= 1)).all():
            fix = "Use e.g. [0.5, 0.75]."
            raise OptionError(where, "iou_thresholds in (0, 1]", repr(iou_thresholds), fix)
        self.max_detections: int = check_integer(where, "max_detections", max_detections, 1)
        super().__init__()

    def update(self, predictions: Any, targets: Any) -> None:
        """Take in images: of each the predicted "boxes" (N, 4), "scores" and "labels" (N,), and the
        true "boxes" (M, 4) and "labels" (M,), and if there are, "crowd" and "area" (M,).

        Raises: ShapeError, DTypeError; nothing is changed then.
        """
        where = "MeanAveragePrecision.update"
        fix = "Pass e.g. [{'boxes': boxes, 'labels': labels}]."
        predictions = check_several(where, predictions, "a list of dicts, one an image", fix)
        targets = check_several(where, targets, "a list of dicts, one an image", fix)
        if len(predictions) != len(targets):
            got = f"{len(predictions)} and {len(targets)}"
            raise ShapeError(where, "predictions and targets of as many images", got, "Pass both.")
        check_names(where, predictions, (*NAMES, "scores"))
        check_names(where, targets, NAMES)
        rows = [
            (self.prediction_rows(where, i, p), self.target_rows(where, i, t))
            for i, (p, t) in enumerate(zip(predictions, targets, strict=True), self.images)
        ]
        self.predicted: list[Any] = [*self.predicted, *(p for p, _ in rows)]
        self.targets: list[Any] = [*self.targets, *(t for _, t in rows)]
        self.images += len(rows)

    @staticmethod
    def prediction_rows(where: str, image: int, prediction: dict[Any, Any]) -> np.ndarray:
        """(N, 7): image, label, score, box."""
        boxes = to_boxes(where, "boxes", prediction["boxes"])
        return columns(where, image, boxes, label=prediction["labels"], score=prediction["scores"])

    @staticmethod
    def target_rows(where: str, image: int, target: dict[Any, Any]) -> np.ndarray:
        """(M, 8): image, label, crowd, area, box."""
        boxes = to_boxes(where, "boxes", target["boxes"])
        crowd = target.get("crowd", np.zeros(len(boxes)))
        area = target.get("area", areas(boxes))
        return columns(where, image, boxes, label=target["labels"], crowd=crowd, area=area)

    def merge(self, state: dict[Any, Any]) -> None:
        """Take in the `state()` of another such metric, of other images."""
        self.check_state(state)
        moved = np.zeros(8)
        moved[0] = self.images
        other = {
            "predicted": [rows + moved[:7] for rows in state["predicted"]],
            "targets": [rows + moved for rows in state["targets"]],
            "images": state["images"],
        }
        super().merge(other)

    def value(self) -> dict[Any, Any]:
        """By name: "map", "map_50", "map_75", "map_small", "map_medium", "map_large", "mar" (the
        mean highest recall), and "per_class", {label: its map}; nan where there are no targets."""
        predicted = np.concatenate([np.zeros((0, 7)), *(p.reshape(-1, 7) for p in self.predicted)])
        targets = np.concatenate([np.zeros((0, 8)), *(t.reshape(-1, 8) for t in self.targets)])
        labels = sorted({*predicted[:, 1], *targets[:, 1]})
        values = {
            (label, name): self.class_at(
                predicted[predicted[:, 1] == label], targets[targets[:, 1] == label], area
            )
            for label in labels
            for name, area in AREAS.items()
        }
        by_area = {name: [values[label, name] for label in labels] for name in AREAS}
        shape = len(labels), len(self.thresholds)
        precision = np.array([p for p, _ in by_area["all"]]).reshape(shape)
        result: dict[str, Any] = {"map": mean(precision)}
        for percent in (50, 75):
            at = np.isclose(self.thresholds, percent / 100)
            result[f"map_{percent}"] = mean(precision[:, at])
        for name in ("small", "medium", "large"):
            result[f"map_{name}"] = mean(np.array([p for p, _ in by_area[name]]))
        result["mar"] = mean(np.array([r for _, r in by_area["all"]]))
        result["per_class"] = {
            int(label): mean(p) for label, p in zip(labels, precision, strict=True)
        }
        return result

    def class_at(
        self, predicted: np.ndarray, targets: np.ndarray, area: tuple[float, ...]
    ) -> tuple[np.ndarray, np.ndarray]:
        """(average precision, highest recall) of a class by threshold; nan without targets."""
        scores, hits, ignored, target_count = [], [], [], 0
        for image in np.unique([*predicted[:, 0], *targets[:, 0]]):
            rows = predicted[predicted[:, 0] == image]
            rows = rows[np.argsort(-rows[:, 2], kind="stable")][: self.max_detections]
            image_targets = targets[targets[:, 0] == image]
            outside = (image_targets[:, 3] < area[0]) | (image_targets[:, 3] > area[1])
            ignore = (image_targets[:, 2] > 0) | outside
            order = np.argsort(ignore, kind="stable")
            image_targets, ignore = image_targets[order], ignore[order]
            hit, left_out = self.matched(rows, image_targets, ignore)
            sizes = areas(rows[:, 3:])
            left_out |= ~hit & ((sizes < area[0]) | (sizes > area[1]))
            scores.append(rows[:, 2])
            hits.append(hit)
            ignored.append(left_out)
            target_count += int((~ignore).sum())
        if not target_count:
            nothing = np.full(len(self.thresholds), math.nan)
            return nothing, nothing
        order = np.argsort(-np.concatenate(scores), kind="stable")
        counts = ~np.concatenate(ignored, axis=1)[:, order]
        hit = np.concatenate(hits, axis=1)[:, order]
        true, false = np.cumsum(hit & counts, axis=1), np.cumsum(~hit & counts, axis=1)
        return interpolate(true, false, target_count)

    def matched(
        self, rows: np.ndarray, targets: np.ndarray, ignore: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """(whether each prediction has a target, whether that does not count), by threshold."""
        overlap = box_iou(rows[:, 3:], targets[:, 4:], targets[:, 2])
        hit = np.zeros((len(self.thresholds), len(rows)), bool)
        left_out = hit.copy()
        for level, threshold in enumerate(self.thresholds):
            free = np.ones(len(targets), bool)
            for i in range(len(rows)):
                fits = (overlap[i] >= min(threshold, 1 - 1e-10)) & (free | (targets[:, 2] > 0))
                if (fits & ~ignore).any():
                    fits &= ~ignore
                if not fits.any():
                    continue
                best = np.where(fits, overlap[i], -1)
                at = len(best) - 1 - best[::-1].argmax()  # of equal ones the last
                hit[level, i], left_out[level, i], free[at] = True, ignore[at], False
        return hit, left_out


def check_names(where: str, images: list[Any], names: tuple[str, ...]) -> None:
    """Each image is a dict with these names."""
    for image in images:
        missing = [name for name in names if not isinstance(image, dict) or name not in image]
        if missing:
            got = f"a dict with {sorted(image)}" if isinstance(image, dict) else type_name(image)
            raise DTypeError(where, f"dicts with {', '.join(names)}", got, f"Add {missing[0]!r}.")


def columns(where: str, image: int, boxes: np.ndarray, label: Any, **others: Any) -> np.ndarray:
    """Image, label, other numbers and box of each row."""
    fields = {"labels": to_labels(where, "labels", label)}
    fields |= {name: to_numbers(where, name, x).astype(np.float64) for name, x in others.items()}
    for name, array in fields.items():
        if array.shape != boxes.shape[:1]:
            expected = f"{name} of {boxes.shape[:1]}"
            raise ShapeError(where, expected, array.shape, "Give one for each box.")
    first = np.full(len(boxes), image, np.float64)
    return np.concatenate([np.stack([first, *fields.values()], axis=1), boxes], axis=1)


def interpolate(
    true: np.ndarray, false: np.ndarray, target_count: int
) -> tuple[np.ndarray, np.ndarray]:
    """(mean precision at 101 recalls, the highest recall) for each row of counts."""
    average, highest = [], []
    for tp, fp in zip(true, false, strict=True):
        recall = tp / target_count
        precision = tp / np.maximum(tp + fp, 1)
        envelope = np.maximum.accumulate(precision[::-1])[::-1]
        at = np.searchsorted(recall, RECALLS, side="left")
        average.append(np.append(envelope, 0)[np.minimum(at, len(envelope))].mean())
        highest.append(recall[-1] if len(recall) else 0.0)
    return np.array(average), np.array(highest)


def mean(values: np.ndarray) -> float:
    """The mean of the values that are not nan; nan if there are none."""
    values = values[~np.isnan(values)]
    return float(values.mean()) if values.size else math.nan
