"""Images in folders, a folder for each class."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from glasshouse.base.errors import OptionError
from glasshouse.data.dataset import Dataset
from glasshouse.data.image import open_image
from glasshouse.data.index import check_index

ENDINGS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp", ".gif")


class ImageFolder(Dataset):
    """(image, class) of every image below `root`: each folder in it is a class, by name in order.
    Images are Pillow's, decoded when a transform reads them.

    Raises: OptionError if there is no such folder, or no image in it.
    Source: torchvision.
    """

    def __init__(self, root: str | Path, endings: Sequence[str] = ENDINGS) -> None:
        self.root = Path(root)
        folders = [path for path in self.root.glob("*") if path.is_dir()]
        self.classes = sorted(path.name for path in folders)
        self.class_to_idx = {name: number for number, name in enumerate(self.classes)}
        self.samples = [
            (str(path), number)
            for name, number in self.class_to_idx.items()
            for path in sorted((self.root / name).rglob("*"))
            if path.suffix.lower() in endings
        ]
        if not self.samples:
            expected = "a folder with a folder of images for each class"
            fix = f"Put images there: root/class/name{endings[0]}."
            raise OptionError("ImageFolder", expected, str(root), fix)

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        path, number = self.samples[check_index("ImageFolder", index, len(self))]
        return open_image(path), number

    def __repr__(self) -> str:
        return f"ImageFolder({str(self.root)!r}, {len(self)} images, {len(self.classes)} classes)"
