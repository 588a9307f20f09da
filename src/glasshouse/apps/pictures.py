"""Pictures of a run: curves, grids of images, tables of counts. Without matplotlib they are left
out."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from glasshouse.data.image import pillow

BLUE, ORANGE = "#2a78b5", "#d9622b"  # distinct in any kind of colour vision


def new_figure(width: float, height: float) -> Any:
    """A figure of matplotlib of so many inches; None without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    return Figure(figsize=(width, height), layout="constrained")


def save_curves(history: Any, path: Path) -> None:
    """A chart for each number of the rows, training and validation in one."""
    names = [x for x in history[0] if not x.startswith("val_") and x not in ("epoch", "seconds")]
    names += [x.removeprefix("val_") for x in history[0] if x.startswith("val_")]
    names = list(dict.fromkeys(names))
    figure = new_figure(4.2 * len(names), 3.4)
    if figure is None:
        return
    for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names):
        for column, label, color in ((name, "training", BLUE), (f"val_{name}", "held out", ORANGE)):
            if column in history[0]:
                axes.plot(history["epoch"], history[column], "o-", color=color, label=label, ms=3)
        axes.set_title(name, loc="left")
        axes.set_xlabel("epoch")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
    figure.savefig(path, dpi=110)


def save_grid(images: Sequence[np.ndarray], titles: Sequence[str], path: Path) -> None:
    """Images (H, W) or (H, W, 3) side by side, eight in a row, each under its title."""
    rows = -(-len(images) // 8)
    figure = new_figure(10, 1.5 * rows + 0.2) if rows else None
    if figure is None:
        return
    for axes in (places := figure.subplots(rows, 8, squeeze=False).ravel()):
        axes.set_axis_off()
    for axes, image, title in zip(places, images, titles):
        axes.imshow(image, cmap="gray_r" if image.ndim == 2 else None)
        axes.set_title(title, fontsize=9)
    figure.savefig(path, dpi=110)


def save_sheet(pictures: Sequence[Any], columns: int, path: Path) -> None:
    """Pictures of Pillow in rows, as they are, with white between them."""
    width, height = (max(side) + 6 for side in zip(*(picture.size for picture in pictures)))
    columns = min(columns, len(pictures))
    rows = -(-len(pictures) // columns)
    sheet = pillow("Image").new("RGB", (columns * width, rows * height), "white")
    for number, picture in enumerate(pictures):
        row, column = divmod(number, columns)
        sheet.paste(picture, (column * width + 3, row * height + 3))
    sheet.save(path)


def save_confusion(counts: np.ndarray, names: Sequence[str], path: Path) -> None:
    """A confusion matrix: a row for each true class, its shares as shades, its counts as text."""
    side = 2 + 0.4 * len(names)
    figure = new_figure(side + 1, side)
    if figure is None:
        return
    axes = figure.subplots()
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    axes.set_xticks(range(len(names)), names, rotation=90)
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel("predicted class")
    axes.set_ylabel("true class")
    for (row, column), count in np.ndenumerate(counts):
        if count:
            color = "white" if shares[row, column] > 0.6 else "black"
            axes.text(column, row, int(count), ha="center", va="center", size=7, color=color)
    figure.savefig(path, dpi=110)


def save_alignment(
    features: np.ndarray, words: Sequence[Any], stride: int, frame_s: float, path: Path
) -> None:
    """Bands over time (frames, bands), and on them the words of a text, `speech.Segment`s of rows
    of scores, `stride` frames each."""
    figure = new_figure(10, 3.2)
    if figure is None:
        return
    axes, (frames, bands) = figure.subplots(), features.shape
    extent = (0, frames * frame_s, 0, bands)
    axes.imshow(features.T, cmap="magma", origin="lower", aspect="auto", extent=extent)
    for word in words:
        start, end = (stride * frame_s * row for row in (word.start, word.end))
        axes.axvspan(start, end, fill=False, edgecolor="white", lw=0.8)
        axes.text((start + end) / 2, bands * 1.02, word.text, ha="center", va="bottom", rotation=30)
    axes.set_xlabel("seconds")
    axes.set_ylabel("mel band")
    figure.savefig(path, dpi=110)
