"""Images in folders, a folder for each class, and the handling of damaged files."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from glasshouse.base.errors import CheckpointError, Explained, OptionError
from glasshouse.data.dataset import Dataset
from glasshouse.data.image import decoded, open_image
from glasshouse.data.index import check_index
from glasshouse.ops.checks import check_option

ENDINGS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp", ".gif")


class FileDataset(Dataset):
    """Base of sets of files: subclasses define `read(index)` and `path(index)`. With errors="raise"
    a file that is missing or damaged is an error that names it, when it is read or its pixels are;
    with "skip" the next sample that can be read takes its place, and a warning names it once."""

    def __init__(self, errors: str = "raise") -> None:
        where = type(self).__name__
        self.errors: Any = check_option(where, "errors", errors, ("raise", "skip"))
        self.refused: set[str] = set()

    def read(self, index: int) -> Any:
        raise NotImplementedError(f"{type(self).__name__}: expected read; got none.")

    def path(self, index: int) -> Any:
        raise NotImplementedError(f"{type(self).__name__}: expected path; got none.")

    def __getitem__(self, index: int) -> Any:
        where = type(self).__name__
        index = check_index(where, index, len(self))
        if self.errors == "raise":
            return self.read(index)
        for step in range(len(self)):
            place = (index + step) % len(self)
            try:
                sample = self.read(place)
                decoded(sample["image"] if isinstance(sample, dict) else sample[0])
                return sample
            except Explained as error:
                self.warn(str(self.path(place)), error)
        raise CheckpointError(
            where, "a file that can be read", f"{len(self)} of none", "See above."
        )

    def refuse(self, place: str, expected: str, got: str) -> Any:
        """Raise an error that names the place, or warn of it once if errors are skipped."""
        error = CheckpointError(type(self).__name__, expected, f"{got} at {place}", "Correct it.")
        if self.errors == "raise":
            raise error
        self.warn(place, error)

    def warn(self, place: str, error: Exception) -> None:
        if place not in self.refused:
            self.refused.add(place)
            warnings.warn(f"left out: {error}", stacklevel=3)


class ImageFolder(FileDataset):
    """(image, class) of every image below `root`: each folder in it is a class, by name in order.
    Images are Pillow's, decoded when a transform reads them. With errors="skip" the next image that
    can be read takes the place of one that is missing or damaged, with a warning.

    Raises: OptionError if there is no such folder, or no image in it, or a file is no image;
        CheckpointError for a file that is missing or damaged.
    Source: torchvision.
    """

    def __init__(
        self, root: str | Path, endings: Sequence[str] = ENDINGS, errors: str = "raise"
    ) -> None:
        super().__init__(errors)
        self.root: Path = Path(root)
        folders = [path for path in self.root.glob("*") if path.is_dir()]
        self.classes: list[str] = sorted(path.name for path in folders)
        self.class_to_idx: dict[str, int] = {
            name: number for number, name in enumerate(self.classes)
        }
        self.samples: list[tuple[str, int]] = [
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

    def read(self, index: int) -> tuple[Any, int]:
        path, number = self.samples[index]
        return open_image(path), number

    def path(self, index: int) -> str:
        return self.samples[index][0]

    def __repr__(self) -> str:
        return f"ImageFolder({str(self.root)!r}, {len(self)} images, {len(self.classes)} classes)"
