"""`glasshouse train detect`: FCOS finds things in pictures, and says of which class they are.

The data are scenes of cut-out pictures on backgrounds, or aerial photographs of trees."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import glasshouse as gh
from glasshouse import optim
from glasshouse.apps.app import App, AppRecipe, Training
from glasshouse.apps.pictures import save_sheet
from glasshouse.apps.scenes import as_input, names_of, read_stamps, scenes
from glasshouse.apps.trees import TREES_IN_A_TILE, read_trees, shares
from glasshouse.data import DataLoader, ListDataset
from glasshouse.data.image import as_image, in_colour
from glasshouse.metrics import MeanAveragePrecision
from glasshouse.ops.checks import check_option
from glasshouse.vision import draw_boxes
from glasshouse.vision.boxes import nms
from glasshouse.vision.models import FCOS

FOLDERS = "animals,food,plants,town/roadsigns,vehicles"
OVERLAP = 0.4  # of two boxes that are drawn, at most


@dataclass(frozen=True)
class DetectRecipe(AppRecipe):
    """Options of a run."""

    epochs: int = 60
    lr: float = 3e-3
    batch_size: int = 16
    dataset: str = "stamps"  # or "trees"
    scenes: int = 1600  # composed, or cut out of photographs, for each epoch
    held_out: int = 200
    side: int = 96
    most: int = 3  # things in a scene
    width: int = 24
    channels: int = 48
    depth: int = 2
    folders: str = FOLDERS  # of stamps, between commas; each is a class
    held_out_photograph: str = "OSBS_029"  # of trees
    errors: str = "raise"  # or "skip", to leave out files that cannot be read


class BoxPrecision(MeanAveragePrecision):
    """The mean average precision at an IoU of 0.5 of an epoch's first images, for outputs of FCOS
    and targets of `sample_of`."""

    def __init__(self, side: int, most: int) -> None:
        super().__init__([0.5])
        self.side = side
        self.most = most

    def update(self, predictions: Any, targets: Any) -> None:
        if self.images < self.most:
            size = (self.side, self.side)
            best = FCOS.detect(predictions, size, score_thresh=0.1, topk_candidates=50)
            rows = targets.numpy()[:, predictions["boxes"].shape[1] :]
            rows = [x[x[:, 0] >= 0] for x in rows]
            super().update(
                best, [{"boxes": x[:, 1:5], "labels": x[:, 0].astype(int)} for x in rows]
            )

    def value(self) -> Any:
        return super().value()["map_50"]


class Detection(App):
    """Boxes of things, and their classes."""

    name = "detect"
    summary = "Detect things in scenes, or trees in aerial photographs"
    recipe: DetectRecipe = DetectRecipe()

    def make_model(self, recipe: DetectRecipe, assets: dict[str, Any]) -> FCOS:
        """FCOS on a narrow ResNet: (N, 3, side, side) -> scores and boxes of each place."""
        sizes: Any = {"channels": recipe.channels, "depth": recipe.depth, "width": recipe.width}
        return FCOS(len(assets["classes"]), "resnet18", **sizes)

    def prepare(self, recipe: DetectRecipe, folder: Path) -> Training:
        check_option("train detect", "dataset", recipe.dataset, ("stamps", "trees"))
        read = read_scenes if recipe.dataset == "stamps" else read_trees
        train, validation, held_out, assets = read(recipe, folder)
        model = self.make_model(recipe, assets)
        room = recipe.most if recipe.dataset == "stamps" else TREES_IN_A_TILE
        as_sample = partial(sample_of, model=model, room=room)
        data = DataLoader(train.map(as_sample), recipe.batch_size, drop_last=True,
                          num_workers=1, threads=True)  # fmt: skip
        optimizer = optim.AdamW(model.parameters(), lr=recipe.lr, weight_decay=0.02)
        return Training(
            model, data, partial(loss_of, model), optimizer,
            metrics={"map_50": BoxPrecision(recipe.side, len(validation))},
            validation=DataLoader(validation.map(as_sample), recipe.batch_size),
            schedule=optim.OneCycleLR(optimizer, recipe.lr, recipe.epochs * len(data)),
            clip_norm=10.0, assets=assets, held_out=held_out,
            monitor="val_map_50", mode="max",
        )  # fmt: skip

    def report(self, recipe: DetectRecipe, training: Training, out: Path) -> dict[str, Any]:
        assets, model, precision = training.assets, training.model, MeanAveragePrecision([0.5])
        pictures: list[Any] = []
        for scene in training.held_out:
            best = self.detect(scene["image"], recipe, assets, model, 0.05)
            truth = {name: scene[name] for name in ("boxes", "labels")}
            precision.update([best], [truth])
            if len(pictures) < 24:
                shown = self.distinct(best, 0.3)
                pictures.append(self.drawn(scene["image"], shown, assets, 3))
        save_sheet(pictures, 6, out / "boxes.png")
        values, classes = precision.value(), assets["classes"]
        each = {f"ap_{classes[label]}": x for label, x in values["per_class"].items()}
        if assets["scale"]:  # one photograph
            each |= shares(best["boxes"][best["scores"] >= 0.3], scene["boxes"])
        return {"map_50": values["map_50"], "pictures": len(training.held_out), **each}

    def detect(
        self, picture: Any, recipe: DetectRecipe, assets: dict[str, Any], model: Any, score: float
    ) -> dict[str, np.ndarray]:
        """The "boxes" in a picture's pixels, "scores" and "labels" of detections above `score`."""
        picture = in_colour(as_image(picture))
        size = np.array(picture.size)
        scale = assets["scale"] or recipe.side / size.max()
        width, height = (int(x) for x in np.maximum(np.round(size * scale / 32), 1) * 32)
        pixels = as_input(np.asarray(picture.resize((width, height))))
        with gh.no_grad():
            outputs = model(gh.asarray(pixels[None]))
        best = FCOS.detect(outputs, (height, width), score_thresh=score)[0]
        return best | {"boxes": best["boxes"] * np.tile(size / (width, height), 2)}

    def distinct(self, best: dict[str, np.ndarray], score: float) -> dict[str, np.ndarray]:
        """Detections of at least a score, one class per object: the best of overlapping boxes."""
        some = {name: x[best["scores"] >= score] for name, x in best.items()}
        stay = nms(some["boxes"], some["scores"], OVERLAP)
        return {name: x[stay] for name, x in some.items()}

    def drawn(self, picture: Any, best: dict[str, Any], assets: Any, zoom: int = 1) -> Any:
        """A picture, so many times larger, with boxes, names of classes and scores."""
        picture = in_colour(as_image(picture))
        picture = picture.resize((picture.width * zoom, picture.height * zoom))
        names = [assets["classes"][label] for label in best["labels"]]
        return draw_boxes(picture, best["boxes"] * zoom, names, best["scores"])


def read_scenes(recipe: DetectRecipe, folder: Path) -> tuple[Any, Any, Any, dict[str, Any]]:
    """(scenes to train with, those held out, the same for the report, assets)."""
    folders = names_of(recipe.folders)
    train, other = read_stamps(folder, folders, recipe.errors)
    held_out = ListDataset(list(scenes(other, recipe.held_out, recipe.side, recipe.most, 0)))
    composed = scenes(train, recipe.scenes, recipe.side, recipe.most, recipe.seed, True)
    assets = {"classes": [Path(x).name for x in folders], "scale": None}
    return composed, held_out, held_out, assets


def sample_of(scene: dict[str, Any], model: FCOS, room: int) -> tuple[np.ndarray, np.ndarray]:
    """A scene as the network reads it, and its target (places + room, 6): the class, box and
    centredness to predict at each place, then the boxes themselves; class -1 means no box."""
    image, boxes, labels = (scene[name] for name in ("image", "boxes", "labels"))
    image = as_input(np.asarray(image))
    goals = model.assign([{"boxes": boxes, "labels": labels}], image.shape[1:])
    count = goals["labels"].shape[1]
    target = np.zeros((count + room, 6), np.float32)
    target[:, 0] = -1
    target[:count, 0], target[:count, 1:5] = goals["labels"][0], goals["boxes"][0]
    target[:count, 5] = goals["ctrness"][0]
    rows = slice(count, count + len(boxes))
    target[rows, 0], target[rows, 1:5] = labels, boxes
    return image, target


def loss_of(model: FCOS, outputs: dict[str, gh.Tensor], target: gh.Tensor) -> gh.Tensor:
    """The sum of FCOS's losses for targets of `sample_of`."""
    goals = target[:, : outputs["boxes"].shape[1]]
    labels = goals[..., 0].astype("int64")
    parts = {"labels": labels, "boxes": goals[..., 1:5], "ctrness": goals[..., 5]}
    return sum(model.loss(outputs, parts).values(), gh.zeros(()))
