"""Read the text of a picture with the networks of the package rapidocr, as ONNX files.

pip download --no-deps rapidocr && unzip -q 'rapidocr-*.whl' -d rapidocr
python examples/read_text.py rapidocr/rapidocr/models [PICTURE]

A detector says for each pixel whether it belongs to text; a recogniser reads each line, whose
letters stand in its file. Without a picture it reads one that it draws."""

import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

import glasshouse as gh

DETECTOR, READER = "PP-OCRv6_det_small.onnx", "PP-OCRv6_rec_small.onnx"
LINES = ["A house of glass", "reads 2026 letters", "Hello, world!"]
IS_TEXT = 0.3  # from which probability on a pixel is text
GROWTH = 1.6  # the detector sees the middle of a line: the line is larger by area / perimeter


def drawn_picture() -> Image.Image:
    """Lines of black letters on white."""
    picture = Image.new("RGB", (480, 224), "white")
    draw = ImageDraw.Draw(picture)
    for i, line in enumerate(LINES):
        draw.text((30, 20 + 68 * i), line, "black", ImageFont.load_default(36))
    return picture


def as_input(picture: Image.Image) -> gh.Tensor:
    """A picture as the networks take it: (1, 3, H, W), blue first, from -1 to 1."""
    pixels = np.asarray(picture.convert("RGB"), np.float32)[:, :, ::-1] / 127.5 - 1
    return gh.asarray(np.ascontiguousarray(pixels.transpose(2, 0, 1)[None]))


def components(mask: np.ndarray) -> np.ndarray:
    """A number for each group of pixels that touch, 0 outside."""
    labels = np.where(mask, np.arange(1, mask.size + 1).reshape(mask.shape), 0)
    while True:
        wide, (h, w) = np.pad(labels, 1), mask.shape
        near = [wide[i : i + h, j : j + w] for i in range(3) for j in range(3)]
        spread = np.where(mask, np.max(near, axis=0), 0)
        if (spread == labels).all():
            return labels
        labels = spread


def boxes_of(detector: gh.nn.Module, picture: Image.Image) -> list[tuple[int, ...]]:
    """(left, top, right, bottom) of the lines, from the top down."""
    size = [max(32, -(-n // 32) * 32) for n in picture.size]
    chance = detector(as_input(picture.resize(size))).numpy()[0, 0]
    labels = components(chance > IS_TEXT)
    boxes = []
    for label in np.unique(labels[labels > 0]):
        rows, columns = np.nonzero(labels == label)
        top, bottom, left, right = rows.min(), rows.max() + 1, columns.min(), columns.max() + 1
        height, width = bottom - top, right - left
        more = height * width * GROWTH / (2 * (height + width))
        if height > 3 and width > 3:
            box = np.array([left - more, top - more, right + more, bottom + more])
            box = box * np.tile(np.divide(picture.size, size), 2)
            boxes.append(tuple(int(round(x)) for x in np.clip(box, 0, [*picture.size] * 2)))
    return sorted(boxes, key=lambda box: box[1])


def read_line(reader: gh.nn.Module, line: Image.Image) -> str:
    """The letters of one line: the best of each place, without repeats and blanks."""
    letters = ["", *reader.metadata["character"].split("\n"), " "]
    width = max(48, round(line.width * 48 / line.height))
    best = reader(as_input(line.resize((width, 48)))).numpy()[0].argmax(-1)
    kept = [int(b) for a, b in zip([0, *best], best) if b != a and b > 0]
    return "".join(letters[i] for i in kept)


def read_text(folder: Path, picture: Image.Image) -> list[str]:
    """The lines of text of a picture."""
    detector, reader = gh.onnx.load(folder / DETECTOR), gh.onnx.load(folder / READER)
    with gh.no_grad():
        return [read_line(reader, picture.crop(box)) for box in boxes_of(detector, picture)]


if __name__ == "__main__":
    source = Image.open(sys.argv[2]) if len(sys.argv) > 2 else drawn_picture()
    print("\n".join(read_text(Path(sys.argv[1]), source)))
