"""Mean average precision beside pycocotools' own evaluation, on random boxes."""

import contextlib
import io

import numpy as np
import pytest

from glasshouse.metrics import MeanAveragePrecision


def scene(seed, images=12, classes=4):
    """Random targets, crowds among them, and predictions near them and elsewhere."""
    rng = np.random.default_rng(seed)
    predictions, targets = [], []
    for _ in range(images):
        count, more = rng.integers(0, 8), rng.integers(0, 6)
        corner = rng.uniform(0, 300, (count, 2))
        true = np.hstack([corner, corner + rng.uniform(4, 160, (count, 2))])
        labels = rng.integers(0, classes, count)
        near = true + rng.normal(0, 6, true.shape)
        near[:, 2:] = np.maximum(near[:, 2:], near[:, :2] + 1)
        corner = rng.uniform(0, 300, (more, 2))
        other = np.hstack([corner, corner + rng.uniform(4, 160, (more, 2))])
        predictions.append(
            {
                "boxes": np.vstack([near, other]),
                "scores": rng.permutation(1000)[: count + more] / 1000,
                "labels": np.concatenate([labels, rng.integers(0, classes, more)]),
            }
        )
        targets.append({"boxes": true, "labels": labels, "crowd": rng.random(count) < 0.1})
    return predictions, targets


def cocos(predictions, targets):
    """The twelve numbers of pycocotools."""
    coco, evaluation = pytest.importorskip("pycocotools.coco"), "pycocotools.cocoeval"
    evaluation = pytest.importorskip(evaluation)

    def rows(images):
        for image, entry in enumerate(images):
            for i, (x1, y1, x2, y2) in enumerate(np.asarray(entry["boxes"]).reshape(-1, 4)):
                row = {"image_id": image, "category_id": int(entry["labels"][i])}
                row |= {"bbox": [x1, y1, x2 - x1, y2 - y1], "area": (x2 - x1) * (y2 - y1)}
                yield row | {k: float(entry[v][i]) for k, v in names if v in entry}

    names = (("score", "scores"), ("iscrowd", "crowd"))
    truth, result = coco.COCO(), coco.COCO()
    everything = [({**row, "id": i + 1}) for i, row in enumerate(rows(targets))]
    for row in everything:
        row["iscrowd"] = int(row["iscrowd"])
    truth.dataset = {
        "images": [{"id": i} for i in range(len(targets))],
        "categories": [{"id": i} for i in range(4)],
        "annotations": everything,
    }
    with contextlib.redirect_stdout(io.StringIO()):
        truth.createIndex()
        result = truth.loadRes([dict(row) for row in rows(predictions)])
        judged = evaluation.COCOeval(truth, result, "bbox")
        judged.evaluate()
        judged.accumulate()
        judged.summarize()
    return judged.stats


@pytest.mark.parametrize("seed", range(5))
def test_mean_average_precision_is_pycocotools(seed):
    predictions, targets = scene(seed)
    stats = cocos(predictions, targets)
    metric = MeanAveragePrecision()
    metric.update(predictions, targets)
    value = metric.value()
    names = ["map", "map_50", "map_75", "map_small", "map_medium", "map_large"]
    expected = dict(zip(names, stats[:6], strict=True)) | {"mar": stats[8]}
    for name, number in expected.items():
        own = value[name]
        assert np.isnan(own) if number == -1 else own == pytest.approx(number, abs=1e-9), name
