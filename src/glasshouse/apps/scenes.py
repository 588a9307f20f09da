"""Scenes composed of cut-out pictures on backgrounds, from which `detect` and `segment` learn.

A stamp is a picture with a transparent part, which is its mask; the folder that it lies in is its
class. Every fifth stamp of a class and every fifth background are held out."""

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from glasshouse.base.errors import CheckpointError
from glasshouse.data import ListDataset
from glasshouse.data.folder import ENDINGS, FileDataset
from glasshouse.data.image import decoded, in_colour, open_image, pillow

STAMP_SIDE, BACKGROUND_SIDE = 160, 480  # in memory pictures are at most so many pixels wide or high
REDUCE: dict[str, Any] = {
    "resample": 2,
    "reducing_gap": 2.0,
}  # Pillow's bilinear, after a cheap halving
TURN, STRETCH = 20, 0.25  # degrees, and share of a side, by which stamps are varied at most
GAIN = 0.3  # by which the light of a picture is varied at most, and each of its colours
LEAST_SHOWN = 0.4  # of a stamp below others; a scene's box needs so much of it
FIX = "Run glasshouse data detect, or pass --data FOLDER."


class Pictures(FileDataset):
    """(picture, class) of files that are read at first use, and then stay in memory, scaled down.
    If `cut_out`, a picture has transparency, and is cropped to its opaque part."""

    def __init__(self, samples: Sequence[tuple[Path, int]], cut_out: bool, errors: str) -> None:
        super().__init__(errors)
        self.samples: list[tuple[Path, int]] = list(samples)
        self.cut_out = cut_out
        self.memory: dict[Path, Any] = {}

    def __len__(self) -> int:
        return len(self.samples)

    def path(self, index: int) -> Path:
        return self.samples[index][0]

    def read(self, index: int) -> tuple[Any, int]:
        path, label = self.samples[index]
        if path not in self.memory:
            self.memory[path] = self.smaller(path)
        return self.memory[path], label

    def smaller(self, path: Path) -> Any:
        """The picture of a file as it stays in memory.

        Raises: CheckpointError, OptionError for a damaged file, or one with nothing to be seen.
        """
        image = open_image(path)
        side = STAMP_SIDE if self.cut_out else BACKGROUND_SIDE
        image.draft("RGB", (side, side))  # a JPEG is read smaller at once
        image = decoded(image)
        if not self.cut_out:
            image = in_colour(image)
            image.thumbnail((side, side))
            return image
        image = image.convert("RGBA")
        box = image.getchannel("A").point(lambda alpha: 255 * (alpha > 127)).getbbox()
        if box is None:
            expected = "a picture of which something is seen"
            raise CheckpointError("train", expected, f"nothing at {path}", "Leave it out.")
        image = image.crop(box)
        image.thumbnail((side, side))
        return image


def read_stamps(
    folder: Path, classes: Sequence[str], errors: str
) -> tuple[tuple[Pictures, Pictures], tuple[Pictures, Pictures]]:
    """((stamps, backgrounds) to train with, those held out). `classes` are folders of stamps.

    Raises: CheckpointError for a folder with less than two pictures.
    """
    stamps = [halves(folder / "stamps" / name, label) for label, name in enumerate(classes)]
    backgrounds = halves(folder / "backgrounds", 0)
    results = []
    for part in (0, 1):
        samples = [sample for pair in stamps for sample in pair[part]]
        results.append(
            (Pictures(samples, True, errors), Pictures(backgrounds[part], False, errors))
        )
    return results[0], results[1]


def halves(folder: Path, label: int) -> tuple[list[Any], list[Any]]:
    """(files to train with, files held out) below a folder, with a class. Mirrored and larger
    copies of a picture are left out, so that none of them is in the other half."""
    paths = [path for path in sorted(folder.rglob("*")) if path.suffix.lower() in ENDINGS]
    paths = [path for path in paths if not re.search(r"_(mirror|flip|\d+x\d+)", path.stem)]
    if len(paths) < 2:
        raise CheckpointError("train", f"two pictures or more in {folder}", len(paths), FIX)
    is_held_out = [number % 5 == 1 for number in range(len(paths))]
    parts = [[(p, label) for p, x in zip(paths, is_held_out) if x == part] for part in (0, 1)]
    return parts[0], parts[1]


def scenes(
    pictures: tuple[Pictures, Pictures], count: int, side: int, most: int, seed: int,
    varied: bool = False,
) -> Any:  # fmt: skip
    """A data set of `count` scenes, other ones in each epoch: dicts with "image", uint8
    (side, side, 3), "mask" (side, side), 0 or 1 more than the class of the stamp that is seen, and
    "boxes" (N, 4), "labels" (N,) of at most `most` stamps. If `varied`, stamps are turned,
    stretched and coloured a little, as training wants it."""
    vary = variation if varied else None
    make = partial(composed, pictures=pictures, side=side, most=most, vary=vary)
    return ListDataset(range(count)).map(make, seed=seed)


def variation(stamp: Any, rng: np.random.Generator) -> Any:
    """A stamp turned, stretched and coloured a little."""
    size = np.array(stamp.size) * rng.uniform(1 - STRETCH, 1, 2)
    stamp = stamp.resize(tuple(int(x) for x in np.maximum(size, 2)), **REDUCE)
    stamp = coloured(stamp, rng)
    return stamp.rotate(rng.uniform(-TURN, TURN), resample=REDUCE["resample"], expand=True)


def coloured(picture: Any, rng: np.random.Generator) -> Any:
    """A picture with other light, and its colours a little other."""
    gains = (1 + rng.uniform(-GAIN, GAIN)) * (1 + rng.uniform(-GAIN, GAIN, 3))
    pixels = np.array(picture)
    pixels[..., :3] = np.minimum(pixels[..., :3] * gains, 255)  # not of the alpha
    return pillow("Image").fromarray(pixels, picture.mode)


def composed(
    index: int,
    rng: np.random.Generator,
    pictures: tuple[Pictures, Pictures],
    side: int,
    most: int,
    vary: Any = None,
) -> dict[str, Any]:
    """One scene: a part of a background, and stamps of random classes, sizes and places."""
    stamps, backgrounds = pictures
    picture = part_of(backgrounds[int(rng.integers(len(backgrounds)))][0], side, rng)
    labels = np.array([label for _, label in stamps.samples])
    owner, kinds, whole = np.zeros((side, side), np.int64), [], []
    for number in range(1, int(rng.integers(1, most + 1)) + 1):
        label = rng.choice(np.unique(labels))
        stamp, label = stamps[int(rng.choice(np.flatnonzero(labels == label)))]
        size = np.array(stamp.size) * (rng.uniform(0.25, 0.65) * side / max(stamp.size))
        stamp = stamp.resize(tuple(max(int(x), 2) for x in size), **REDUCE)
        if rng.random() < 0.5:
            stamp = stamp.transpose(pillow("Image").Transpose.FLIP_LEFT_RIGHT)
        stamp = vary(stamp, rng) if vary else stamp
        width, height = stamp.size
        left, top = (int(rng.integers(0, side - x + 1)) for x in (width, height))
        picture.paste(stamp, (left, top), stamp)
        shown = np.asarray(stamp.getchannel("A")) > 127
        owner[top : top + height, left : left + width][shown] = number
        kinds.append(label)
        whole.append(max(int(shown.sum()), 1))
    boxes, stay = [], []
    for number, (label, pixels) in enumerate(zip(kinds, whole), 1):
        rows, columns = np.nonzero(owner == number)
        if len(rows) >= max(LEAST_SHOWN * pixels, 4):
            boxes.append([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1])
            stay.append(label)
    mask = np.concatenate([[0], np.array(kinds) + 1])[owner]
    light = rng.uniform(0.7, 1.15)
    image = np.clip(np.asarray(picture, np.float32) * light, 0, 255).astype(np.uint8)
    return {
        "image": image, "mask": mask,
        "boxes": np.array(boxes, np.float32).reshape(-1, 4), "labels": np.array(stay, np.int64),
    }  # fmt: skip


def names_of(folders: str) -> list[str]:
    """The names between commas."""
    return [name.strip() for name in folders.split(",")]


def part_of(picture: Any, side: int, rng: np.random.Generator) -> Any:
    """A random square of a picture, `side` pixels wide."""
    width, height = picture.size
    cut = rng.uniform(0.4, 1.0) * min(width, height)
    left, top = rng.uniform(0, width - cut), rng.uniform(0, height - cut)
    return picture.resize((side, side), box=(left, top, left + cut, top + cut), **REDUCE)


def as_input(image: np.ndarray) -> np.ndarray:
    """A picture (H, W, 3) of bytes as networks read it: (3, H, W), about -2 to 2."""
    return np.ascontiguousarray(image.transpose(2, 0, 1), np.float32) / 64 - 2
