"""Loading data beside PyTorch's DataLoader: JPEG files decoded, augmented and batched, and tensors.

    python benchmarks/data.py [jpeg] [tensors] [--smoke] [--out DIR]

Both sides read the same files and make the same batches: random resized crops of 224 x 224, flipped
at random, as normalized float32. PyTorch's transforms are torchvision's where it can be imported,
else the same Pillow and torch calls, written out below. Every number is a whole epoch with workers
that are there already; the sides take turns."""

import math
import os
import tempfile
import warnings
from pathlib import Path

import numpy as np
import torch
from harness import measure, parse_arguments, save, show, summarize
from PIL import Image
from torch.utils import data as torch_data

from glasshouse.data import (
    Compose,
    DataLoader,
    ImageCollate,
    ImageFolder,
    RandomFlip,
    RandomResizedCrop,
    TensorDataset,
)

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]  # ImageNet's, as torchvision has them
SIZE = 224
JPEGS = {"224 x 224": (224, 224), "500 x 375": (375, 500), "1600 x 1200": (1200, 1600)}


def write_jpegs(folder: Path, shape: tuple[int, int], count: int, rng) -> None:
    """Images with large and small structure, so that they compress about as photographs do."""
    height, width = shape
    for number in range(count):
        coarse = rng.integers(0, 256, (max(2, height // 16), max(2, width // 16), 3), np.uint8)
        pixels = np.asarray(Image.fromarray(coarse).resize((width, height), Image.BICUBIC))
        noise = rng.integers(-12, 13, (height, width, 3), np.int16)
        image = Image.fromarray((pixels + noise).clip(0, 255).astype(np.uint8))
        path = folder / f"class{number % 4}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path, quality=90)


def crop_box(width: int, height: int):
    """torchvision's draw of a crop's place: (top, left, height, width)."""
    for _ in range(10):
        area = height * width * torch.empty(1).uniform_(0.08, 1.0).item()
        ratio = torch.exp(torch.empty(1).uniform_(math.log(3 / 4), math.log(4 / 3))).item()
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            top = torch.randint(0, height - h + 1, size=(1,)).item()
            return top, torch.randint(0, width - w + 1, size=(1,)).item(), h, w
    return 0, 0, height, width


def augment_by_torch(image):
    """Crop, resize, flip, to tensor, normalize: the calls that torchvision makes."""
    top, left, height, width = crop_box(*image.size)
    image = image.crop((left, top, left + width, top + height))
    image = image.resize((SIZE, SIZE), Image.BILINEAR)
    if torch.rand(1) < 0.5:
        image = image.transpose(Image.FLIP_LEFT_RIGHT)
    pixels = torch.from_numpy(np.array(image, np.uint8, copy=True))
    pixels = pixels.view(SIZE, SIZE, 3).permute(2, 0, 1).contiguous()
    out = pixels.to(torch.float32).div(255).clone()
    mean, std = torch.as_tensor(MEAN).view(-1, 1, 1), torch.as_tensor(STD).view(-1, 1, 1)
    return out.sub_(mean).div_(std)


def torch_transform():
    try:
        from torchvision import transforms
    except Exception:
        return augment_by_torch, "Pillow and torch"
    steps = [
        transforms.RandomResizedCrop(SIZE, antialias=True),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize(MEAN, STD),
    ]
    return transforms.Compose(steps), "torchvision"


class TorchImages(torch_data.Dataset):
    """torchvision's ImageFolder: an image is opened, converted and transformed."""

    def __init__(self, samples, transform):
        self.samples, self.transform = samples, transform

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        path, number = self.samples[index]
        with open(path, "rb") as file:
            image = Image.open(file).convert("RGB")
        return self.transform(image), number


def read_all(loader) -> int:
    return sum(len(labels) for _, labels in loader)


def compared(name: str, ours, theirs, rounds: int, count: int) -> dict:
    """Seconds of an epoch of both, in turn."""
    assert read_all(ours) == read_all(theirs) == count
    cases = {"glasshouse": lambda: read_all(ours), "torch": lambda: read_all(theirs)}
    times = measure(cases, rounds)
    ratios = sorted(b / a for a, b in zip(times["glasshouse"], times["torch"], strict=True))
    summary = summarize(times)
    ours.close()
    return {
        "name": name,
        "samples": count,
        "ratio": ratios[len(ratios) // 2],
        "lowest_ratio": ratios[0],
        "highest_ratio": ratios[-1],
        **{f"{side}_s": summary[side]["median_s"] for side in cases},
    }


def loaders(ours, theirs, workers: int, batch: int, **options):
    kept = {"persistent_workers": True} if workers else {}
    return (
        DataLoader(ours, batch, num_workers=workers, **kept, **options),
        torch_data.DataLoader(theirs, batch, num_workers=workers, **kept),
    )


def jpeg(smoke: bool) -> list[dict]:
    """JPEG files of three sizes, with 2 and 4 workers."""
    transform, _ = torch_transform()
    rows = []
    for name, shape in JPEGS.items():
        count = 16 if smoke else 256 if max(shape) < 1000 else 64
        with tempfile.TemporaryDirectory() as folder:
            write_jpegs(Path(folder), shape, count, np.random.default_rng(0))
            images = ImageFolder(folder)
            ours = images.transform(Compose(RandomResizedCrop(SIZE), RandomFlip()), seed=0)
            theirs = TorchImages(images.samples, transform)
            for workers in (2, 4):
                pair = loaders(ours, theirs, workers, 32, collate_fn=ImageCollate(MEAN, STD))
                title = f"JPEG {name}, {workers} workers"
                rows.append(compared(title, *pair, 1 if smoke else 9, count))
    return rows


def tensors(smoke: bool) -> list[dict]:
    """50,000 rows of 784 float32 and their labels, in batches of 64."""
    count = 2_000 if smoke else 50_000
    x = np.random.default_rng(0).random((count, 784), np.float32)
    y = np.arange(count)
    ours = TensorDataset(x, y)
    theirs = torch_data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    rows = []
    for workers in (0, 4):
        pair = loaders(ours, theirs, workers, 64)
        rows.append(compared(f"tensors, {workers} workers", *pair, 1 if smoke else 9, count))
    return rows


PARTS = {"jpeg": jpeg, "tensors": tensors}


def main() -> None:
    options = parse_arguments(__doc__.splitlines()[0], PARTS)
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", "This DataLoader will create")
    rows = [row for part in options.parts or PARTS for row in PARTS[part](options.smoke)]
    table = [
        [
            row["name"],
            f"{row['samples'] / row['glasshouse_s']:,.0f}",
            f"{row['samples'] / row['torch_s']:,.0f}",
            f"{row['ratio']:.2f}",
            f"{row['lowest_ratio']:.2f} … {row['highest_ratio']:.2f}",
        ]
        for row in rows
    ]
    columns = ["case", "ours, samples/s", "torch, samples/s", "ratio", "lowest … highest"]
    note = f"torch's transforms: {torch_transform()[1]}; {os.cpu_count()} cores"
    show("Loading data", columns, table, note)
    save("data", {"rows": rows, "note": note}, options)


if __name__ == "__main__":
    main()
