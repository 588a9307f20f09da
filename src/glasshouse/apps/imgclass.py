"""`glasshouse train imgclass`: a convolutional network that classifies images.

The data are 5,000 digits of MNIST, MNIST's idx files, or a folder of images for each class."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import glasshouse as gh
from glasshouse import nn, optim
from glasshouse.apps.app import App, AppRecipe, Training
from glasshouse.apps.pictures import save_confusion, save_grid
from glasshouse.base.errors import CheckpointError
from glasshouse.data import DataLoader, ImageFolder, TensorDataset, mnist
from glasshouse.data.formats import read_bytes
from glasshouse.metrics import Accuracy, ConfusionMatrix
from glasshouse.nn.functional import affine_grid, cross_entropy, grid_sample

SIDE = 28  # of the images, in pixels
DIGITS = "mnist_5k.csv.gz"
AGAIN = "Fetch it again: glasshouse data imgclass"


@dataclass(frozen=True)
class ImageRecipe(AppRecipe):
    """Options of a run."""

    epochs: int = 24
    lr: float = 0.01
    batch_size: int = 64
    width: int = 24
    distort: float = 1.0  # how much images are turned, scaled and shifted; 0 for not
    dropout: float = 0.3


class RandomAffine(nn.Module):
    """Turns, scales, shears and shifts each image of a batch at random; while training only.

    Shapes: (N, C, H, W) -> the same
    """

    def __init__(self, amount: float = 1.0) -> None:
        super().__init__()
        self.amount = amount

    def forward(self, images: gh.Tensor) -> gh.Tensor:
        if not self.training or not self.amount:
            return images
        draws = gh.random.uniform((images.shape[0], 6), -self.amount, self.amount)
        draws = (draws * gh.asarray([0.25, 0.15, 0.15, 0.15, 0.12, 0.12])).T
        turn, wide, high, shear, right, down = draws
        cos, sin = gh.cos(turn), gh.sin(turn)
        rows = [
            [(1 + wide) * cos, shear - sin, right],
            [sin, (1 + high) * cos, down],
        ]
        matrices = gh.stack([gh.stack(row, axis=-1) for row in rows], axis=1)  # (N, 2, 3)
        return grid_sample(images, affine_grid(matrices, images.shape, False), align_corners=False)


class ImageClassification(App):
    """Classes of images."""

    name = "imgclass"
    summary = "Classify images: handwritten digits, or a folder of images for each class"
    recipe: ImageRecipe = ImageRecipe()

    def make_model(self, recipe: ImageRecipe, assets: dict[str, Any]) -> nn.Module:
        """Three convolutions and a linear layer: (N, 1, 28, 28) -> (N, classes)."""
        width = recipe.width
        parts: list[nn.Module] = [RandomAffine(recipe.distort)]
        for channels, out in ((1, width), (width, 2 * width), (2 * width, 4 * width)):
            conv = nn.Conv2d(channels, out, 3, padding=1, bias=False)
            parts += [conv, nn.BatchNorm2d(out), nn.ReLU(), nn.MaxPool2d(2)]
        flat = 4 * width * (SIDE // 8) ** 2
        return nn.Sequential(
            *parts,
            nn.Flatten(),
            nn.Dropout(recipe.dropout),
            nn.Linear(flat, len(assets["classes"])),
        )

    def prepare(self, recipe: ImageRecipe, folder: Path) -> Training:
        train, held_out, classes = read_images(folder)
        assets = {"classes": classes}
        model = self.make_model(recipe, assets)
        optimizer = optim.AdamW(model.parameters(), lr=recipe.lr, weight_decay=0.02)
        data = DataLoader(train, recipe.batch_size, True, drop_last=True, seed=recipe.seed)
        return Training(
            model, data, cross_entropy, optimizer,
            metrics={"accuracy": Accuracy()},
            validation=DataLoader(held_out, 250),
            schedule=optim.OneCycleLR(optimizer, recipe.lr, recipe.epochs * len(data)),
            assets=assets, held_out=held_out, monitor="loss",
        )  # fmt: skip

    def report(self, recipe: ImageRecipe, training: Training, out: Path) -> dict[str, Any]:
        classes = training.assets["classes"]
        counts, pictures, titles = ConfusionMatrix(len(classes)), [], []
        for images, labels in training.validation:
            scores = training.model(images)
            counts.update(scores, labels)
            predictions = scores.argmax(axis=1).numpy()
            for i in np.flatnonzero(predictions != labels.numpy()):
                pictures.append(images[int(i), 0].numpy())
                titles.append(f"{classes[int(labels[int(i)])]}, not {classes[predictions[i]]}")
        save_grid(pictures[:40], titles[:40], out / "errors.png")
        save_confusion(counts.value(), classes, out / "confusion.png")
        total = len(training.held_out)
        return {"accuracy": 1 - len(pictures) / total, "errors": len(pictures), "images": total}


def read_images(folder: Path) -> tuple[Any, Any, list[str]]:
    """(training samples, held-out samples, names of classes) of a folder in one of three forms.

    Raises: CheckpointError for a folder of another form, or a damaged file.
    """
    if (folder / DIGITS).exists():
        images, labels = read_table(folder / DIGITS)
        is_held_out = np.arange(len(labels)) % 5 == 4  # rows are sorted by class
        parts = [TensorDataset(images[x], labels[x]) for x in (~is_held_out, is_held_out)]
        return parts[0], parts[1], list("0123456789")
    if any(folder.glob("train-images*")):
        sets = [mnist(folder, part).map(as_digit) for part in ("train", "test")]
        return sets[0], sets[1], list("0123456789")
    if (folder / "train").is_dir():
        folders = [ImageFolder(folder / part) for part in ("train", "test")]
        return folders[0].map(as_sample), folders[1].map(as_sample), folders[0].classes
    expected = f"{DIGITS}, MNIST's idx files, or folders train and test in {folder}"
    fix = "Run glasshouse data imgclass, or pass --data FOLDER."
    raise CheckpointError("train imgclass", expected, "none of them", fix)


def read_table(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """(images (N, 1, 28, 28) from 0 to 1, labels (N,)) of rows of 784 pixels and a label."""
    data = read_bytes("train imgclass", path)
    try:
        rows = np.array([line.split(b",") for line in data.splitlines()]).astype(np.float32)
    except ValueError as error:
        raise CheckpointError("train imgclass", f"numbers in {path}", error, AGAIN) from None
    if rows.ndim != 2 or rows.shape[1] != SIDE * SIDE + 1:
        expected = f"rows of {SIDE * SIDE + 1} numbers in {path}"
        raise CheckpointError("train imgclass", expected, rows.shape, AGAIN)
    return (rows[:, :-1] / 255).reshape(-1, 1, SIDE, SIDE), rows[:, -1].astype(np.int64)


def as_digit(sample: tuple[Any, Any]) -> tuple[np.ndarray, int]:
    """An image of MNIST as the network reads it."""
    return sample[0][None].astype(np.float32) / 255, int(sample[1])


def as_sample(sample: tuple[Any, int]) -> tuple[np.ndarray, int]:
    """An image of a folder as the network reads it: gray, 28 pixels wide and high."""
    image, label = sample
    pixels = np.asarray(image.convert("L").resize((SIDE, SIDE)), np.float32)
    return pixels[None] / 255, label
