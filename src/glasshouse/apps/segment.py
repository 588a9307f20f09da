"""`glasshouse train segment`: a U-Net that finds which pixels belong to things.

The data are scenes of cut-out pictures on backgrounds, whose transparency is the truth."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from glasshouse import optim
from glasshouse.apps.app import App, AppRecipe, Training
from glasshouse.apps.pictures import save_grid
from glasshouse.apps.scenes import as_input, names_of, read_stamps, scenes
from glasshouse.data import DataLoader, ListDataset
from glasshouse.metrics import IoU
from glasshouse.nn.functional import cross_entropy
from glasshouse.vision import draw_mask
from glasshouse.vision.models import UNet

FOLDERS = "animals,clothes,food,hobbies,household,plants,vehicles"
CLASSES = ["background", "thing"]


@dataclass(frozen=True)
class SegmentRecipe(AppRecipe):
    """Options of a run."""

    epochs: int = 12
    lr: float = 2e-3
    batch_size: int = 16
    scenes: int = 1600  # composed for each epoch
    held_out: int = 160
    side: int = 96
    most: int = 3  # things in a scene
    width: int = 16
    depth: int = 3
    folders: str = FOLDERS  # of stamps, between commas
    errors: str = "raise"  # or "skip", to leave out files that cannot be read


class Segmentation(App):
    """Which pixels belong to things."""

    name = "segment"
    data_set = "detect"
    summary = "Segment scenes: which pixels belong to things, which to the background"
    recipe: SegmentRecipe = SegmentRecipe()

    def make_model(self, recipe: SegmentRecipe, assets: dict[str, Any]) -> UNet:
        """A U-Net: (N, 3, side, side) -> (N, 2, side, side)."""
        return UNet(len(assets["classes"]), width=recipe.width, depth=recipe.depth)

    def prepare(self, recipe: SegmentRecipe, folder: Path) -> Training:
        train, other = read_stamps(folder, names_of(recipe.folders), recipe.errors)
        held_out = scenes(other, recipe.held_out, recipe.side, recipe.most, recipe.seed)
        held_out = ListDataset(list(held_out))  # the same in each epoch
        composed = scenes(train, recipe.scenes, recipe.side, recipe.most, recipe.seed, True)
        data = DataLoader(composed.map(as_sample), recipe.batch_size, drop_last=True,
                          num_workers=1, threads=True)  # fmt: skip
        assets = {"classes": CLASSES}
        model = self.make_model(recipe, assets)
        optimizer = optim.AdamW(model.parameters(), lr=recipe.lr, weight_decay=0.01)
        return Training(
            model, data, cross_entropy, optimizer,
            metrics={"iou": IoU(len(CLASSES))},
            validation=DataLoader(held_out.map(as_sample), recipe.batch_size),
            schedule=optim.OneCycleLR(optimizer, recipe.lr, recipe.epochs * len(data)),
            schedule_every="step", assets=assets, held_out=held_out,
            monitor="val_iou", mode="max",
        )  # fmt: skip

    def report(self, recipe: SegmentRecipe, training: Training, out: Path) -> dict[str, Any]:
        overlap = IoU(len(CLASSES), average=None)
        pictures: list[np.ndarray] = []
        titles: list[str] = []
        for images, masks in training.validation:
            scores = training.model(images)
            overlap.update(scores, masks)
            for classes, mask in zip(scores.argmax(axis=1).numpy(), masks.numpy()):
                scene = training.held_out[len(titles)]
                one = IoU(len(CLASSES))
                one.update(classes, mask)
                pictures.append(np.asarray(draw_mask(scene["image"], classes)))
                titles.append(f"IoU {one.value():.2f}")
        save_grid(pictures[:40], titles[:40], out / "overlays.png")
        of_background, of_things = overlap.value()
        return {
            "mean_iou": float((of_background + of_things) / 2),
            "iou_of_things": float(of_things), "scenes": len(pictures),
        }  # fmt: skip


def as_sample(scene: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """A scene as the network reads it, and for each pixel whether it belongs to a thing."""
    return as_input(scene["image"]), (scene["mask"] > 0).astype(np.int64)
