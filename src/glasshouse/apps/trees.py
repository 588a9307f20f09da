"""Aerial photographs with boxes of trees, from which `detect` learns: Pascal VOC's files."""

from copy import copy
from pathlib import Path
from typing import Any

import numpy as np

from glasshouse.apps.scenes import coloured
from glasshouse.base.errors import OptionError
from glasshouse.data import ListDataset, VOCDetection
from glasshouse.data.boxed import Placement
from glasshouse.data.image import (
    Compose,
    PlaceTransform,
    RandomCrop,
    RandomFlip,
    Resize,
    as_image,
    decoded,
)
from glasshouse.vision import assignment
from glasshouse.vision.boxes import box_iou

ZOOM = 1.28  # of an aerial photograph, whose pixels are about 10 cm, for the network
ZOOMS = 0.6, 1.6  # of a tile's width, for trees of other regions are of another size
LEAST_TREE = 4.0  # pixels; smaller parts of trees at the edge of a tile are ignored
TREES_IN_A_TILE = 64  # at most
LEAST_OVERLAP = 0.4  # of a box and a tree that it stands for, as deepforest counts


def read_trees(recipe: Any, folder: Path) -> tuple[Any, Any, Any, dict[str, Any]]:
    """(tiles of photographs to train with, those of the photograph held out, the whole of it for
    the report, assets).

    Raises: OptionError where no photograph has its name.
    """
    trees = VOCDetection(folder / "trees", folder / "trees", errors=recipe.errors)
    trees.rows = [(photograph(path), objects) for path, objects in trees.rows]
    names = [path.stem for path, _ in trees.rows]
    if recipe.held_out_photograph not in names:
        expected, got = f"one of {', '.join(names)}", recipe.held_out_photograph
        raise OptionError("train detect", expected, got, "See --held-out-photograph.")
    others, last = copy(trees), names.index(recipe.held_out_photograph)
    others.rows, trees.rows = trees.rows[:last] + trees.rows[last + 1 :], [trees.rows[last]]
    photographs, held_out = (
        [{**x, "image": decoded(x["image"]), "labels": 0 * x["labels"]} for x in part]
        for part in (others, trees)
    )
    tile_side = round(recipe.side / ZOOM)
    turns = Resize(recipe.side), RandomFlip(), RandomFlip(vertical=True)
    areas = np.array([x["image"].width * x["image"].height for x in photographs], float)

    def tile(_: int, rng: np.random.Generator) -> dict[str, Any]:
        whole = photographs[rng.choice(len(areas), p=areas / areas.sum())]
        cut = round(tile_side * rng.uniform(*ZOOMS))
        sample = Compose(RandomCrop(min(cut, *whole["image"].size)), *turns)(whole, rng)
        return {**sample, "image": coloured(as_image(sample["image"]), rng)}

    train = ListDataset(range(recipe.scenes)).map(tile, seed=recipe.seed)
    width, height = held_out[0]["image"].size
    corners = [(x, y) for y in range(0, height, tile_side) for x in range(0, width, tile_side)]
    tiles = [Tile(corner, tile_side, recipe.side)(held_out[0]) for corner in corners]
    assets = {"classes": ["tree"], "scale": recipe.side / tile_side}
    train, tiles = (x.map(with_whole_trees) for x in (train, ListDataset(tiles)))
    return train, tiles, ListDataset(held_out), assets


class Tile(PlaceTransform):
    """The square of a photograph at a corner (left, top), `cut` pixels wide, brought to a side."""

    filter = 2  # Pillow's number of bilinear

    def __init__(self, corner: tuple[int, int], cut: int, side: int) -> None:
        self.corner = corner
        self.cut = cut
        self.side = side

    def place(self, width: int, height: int, rng: Any) -> Placement:
        left, top = self.corner
        return Placement((left, top, left + self.cut, top + self.cut), (self.side, self.side))


def photograph(path: Path) -> Path:
    """The file of a photograph whose annotations may name another ending."""
    return path if path.exists() else path.with_suffix(".png")


def with_whole_trees(sample: dict[str, Any]) -> dict[str, Any]:
    """The sample without slivers of trees at its edges."""
    boxes = sample["boxes"]
    stay = np.flatnonzero((boxes[:, 2:] - boxes[:, :2] >= LEAST_TREE).all(axis=1))[:TREES_IN_A_TILE]
    return {**sample, "boxes": boxes[stay], "labels": sample["labels"][stay]}


def shares(boxes: np.ndarray, trees: np.ndarray) -> dict[str, float]:
    """The share of the boxes that stand for a tree ("precision"), and of the trees that a box
    stands for ("recall"), paired so that overlaps are largest.

    Source: deepforest's guide, "Evaluation"; of its own model and OSBS_029 it says 0.781 and 0.705.
    """
    overlap = box_iou(boxes, trees)
    hits = int((overlap[assignment(-overlap)] > LEAST_OVERLAP).sum()) if overlap.size else 0
    return {"precision": hits / max(len(boxes), 1), "recall": hits / max(len(trees), 1)}
