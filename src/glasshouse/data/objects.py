"""Images with boxes of objects: COCO's annotations, Pascal VOC's."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from glasshouse.base.errors import CheckpointError, OptionError
from glasshouse.data.boxed import separated
from glasshouse.data.folder import FileDataset
from glasshouse.data.formats import read_bytes
from glasshouse.data.image import ImageCollate, open_image, pillow


class BoxDataset(FileDataset):
    """Base of images with boxes: `rows` has (path of the image, its objects), each a dict.

    A sample is a dict: "image", Pillow's; "boxes" (N, 4), corners in pixels; "labels" (N,), numbers
    of `classes`; and the objects' other fields, one entry for each box. A transform of images takes
    it as a whole: `dataset.map(Compose(RandomResizedCrop(224), RandomFlip()), seed=0)`."""

    dtypes: dict[str, Any] = {"labels": np.int64, "area": np.float32}  # of fields; others are flags

    def __init__(self, classes: Sequence[str], errors: str) -> None:
        super().__init__(errors)
        self.classes: list[str] = list(classes)
        self.rows: list[tuple[Path, list[dict[str, Any]]]] = []

    def __len__(self) -> int:
        return len(self.rows)

    def path(self, index: int) -> Path:
        return self.rows[index][0]

    def read(self, index: int) -> dict[str, Any]:
        path, objects = self.rows[index]
        boxes = np.array([one["box"] for one in objects], np.float32).reshape(-1, 4)
        sample = {"image": open_image(path), "boxes": boxes}
        for name in self.fields:
            dtype = self.dtypes.get(name, bool)
            sample[name] = np.array([one[name] for one in objects], dtype)
        return sample

    fields: tuple[str, ...] = ("labels",)

    def __repr__(self) -> str:
        name, classes = type(self).__name__, len(self.classes)
        return f"{name}({len(self)} images, {classes} classes)"

    def checked_box(self, place: str, low: Any, high: Any) -> list[float] | None:
        """The box of two corners; one without an area is an error, or None if they are skipped."""
        box = [*low, *high]
        if np.isfinite(box).all() and low[0] < high[0] and low[1] < high[1]:
            return box
        return self.refuse(place, "a box with an area", f"corners {box}")


class CocoDetection(BoxDataset):
    """The images of a file of COCO's annotations, which lie in `root`, with their objects: boxes,
    "crowd", "area" and, if `masks`, the pixels of each (N, height, width) from its polygons.
    Classes are numbered from 0 in the order of their ids.

    Raises: CheckpointError, which names file and place, for annotations that are not COCO's, an
        unknown image or class, or a box without an area; with errors="skip" these objects are left
        out, and in place of an image that is missing or damaged the next one is read, with a
        warning.
    Source: Lin et al. 2014, arXiv:1405.0312, and its "Data format".
    """

    fields: tuple[str, ...] = ("labels", "crowd", "area")

    def __init__(
        self,
        root: str | Path,
        annotations: str | Path,
        masks: bool = False,
        errors: str = "raise",
    ) -> None:
        content = read_json(annotations)
        kinds = sorted(content["categories"], key=lambda kind: kind["id"])
        super().__init__([str(kind["name"]) for kind in kinds], errors)
        self.file: str = str(annotations)
        self.has_masks: bool = bool(masks)
        numbers = {kind["id"]: number for number, kind in enumerate(kinds)}
        objects: dict[Any, list[dict[str, Any]]] = {image["id"]: [] for image in content["images"]}
        for place, annotation in enumerate(content["annotations"]):
            one = self.object_of(f"{self.file}, annotations[{place}]", annotation, numbers, objects)
            if one is not None:
                objects[annotation["image_id"]].append(one)
        folder = Path(root)
        self.rows: list[tuple[Path, list[dict[str, Any]]]] = [
            (folder / row["file_name"], objects[row["id"]]) for row in content["images"]
        ]

    def object_of(
        self, place: str, annotation: Any, numbers: dict[Any, int], images: Any
    ) -> dict[str, Any] | None:
        """The checked object of one annotation; None where it is left out."""
        try:
            image, kind = annotation["image_id"], annotation["category_id"]
            x, y, width, height = map(float, annotation["bbox"])
        except (KeyError, TypeError, ValueError) as error:
            got = f"{type(error).__name__} {error}"
            return self.refuse(place, "image_id, category_id and a bbox of four numbers", got)
        if image not in images:
            return self.refuse(place, "the id of an image", f"image_id {image!r}")
        if kind not in numbers:
            return self.refuse(place, "the id of a category", f"category_id {kind!r}")
        box = self.checked_box(place, (x, y), (x + width, y + height))
        if box is None:
            return None
        one = {"box": box, "labels": numbers[kind], "crowd": bool(annotation.get("iscrowd"))}
        shape = annotation.get("segmentation") if self.has_masks else None
        return one | {
            "area": float(annotation.get("area", width * height)),
            "shape": (place, shape),
        }

    def read(self, index: int) -> dict[str, Any]:
        sample = super().read(index)
        if self.has_masks:
            size = sample["image"].size
            shapes = [one["shape"] for one in self.rows[index][1]]
            masks = [mask_of(place, shape, size) for place, shape in shapes]
            empty = np.zeros((0, size[1], size[0]), bool)
            sample["masks"] = np.stack(masks) if masks else empty
        return sample


NEEDED: dict[str, Any] = {
    "images": ("id", "file_name"),
    "annotations": (),
    "categories": ("id", "name"),
}


def read_json(path: str | Path) -> dict[str, Any]:
    expected = "COCO's annotations: images, annotations and categories"
    try:
        content = json.loads(read_bytes("CocoDetection", path))
    except ValueError as error:
        got = f"{path}: {error}"
        raise CheckpointError("CocoDetection", expected, got, "Fetch the file again.") from None
    for name, fields in NEEDED.items():
        entries = content.get(name) if isinstance(content, dict) else None
        if not isinstance(entries, list):
            fix = "Is it another format?"
            raise CheckpointError("CocoDetection", expected, f"{path} without {name}", fix)
        for place, entry in enumerate(entries):
            lacking = [x for x in fields if not isinstance(entry, dict) or x not in entry]
            if lacking:
                got = f"{path}, {name}[{place}] without {lacking[0]}"
                raise CheckpointError("CocoDetection", expected, got, "Correct it.")
    return content


def mask_of(place: str, shape: Any, size: tuple[int, int]) -> np.ndarray:
    """The pixels (height, width) of polygons, or of run lengths by column."""
    if isinstance(shape, dict) and isinstance(shape.get("counts"), list):
        runs = shape["counts"]
        pixels = np.repeat(np.arange(len(runs)) % 2 == 1, runs)
        if pixels.size == size[0] * size[1]:
            return pixels.reshape(size[0], size[1]).T
    if not isinstance(shape, list):
        fix = "Leave masks out."
        got = f"{str(shape):.60} at {place}"
        raise CheckpointError("CocoDetection", "polygons, or a list of run lengths", got, fix)
    picture = pillow("Image").new("1", size)
    pen = pillow("ImageDraw").Draw(picture)
    for polygon in shape:
        pen.polygon(list(polygon), fill=1)
    return np.asarray(picture)


class VOCDetection(BoxDataset):
    """The images of a folder of Pascal VOC's XML files, which lie in `images`, with their boxes and
    whether each is "difficult". `names` are those of the files to read, without ending, or the path
    of a list of them; by default all are read. `classes` are by default all names of objects, in
    order.

    Raises: CheckpointError, which names the file, for one that is not VOC's, an object whose class
        is not among `classes`, or a box without an area; with errors="skip" these are left out, and
        in place of an image that is missing or damaged the next one is read, with a warning.
    Source: Everingham et al. 2010, The PASCAL Visual Object Classes (VOC) challenge.
    """

    fields: tuple[str, ...] = ("labels", "difficult")

    def __init__(
        self,
        annotations: str | Path,
        images: str | Path,
        classes: Sequence[str] | None = None,
        names: Sequence[str] | str | Path | None = None,
        errors: str = "raise",
    ) -> None:
        super().__init__(classes or (), errors)
        if isinstance(names, (str, Path)):
            lines = read_bytes("VOCDetection", names).decode().splitlines()
            names = [line.split()[0] for line in lines if line.strip()]
        folder = Path(annotations)
        paths = (
            sorted(folder.glob("*.xml")) if names is None else [folder / f"{n}.xml" for n in names]
        )
        if not paths:
            fix = "Pass the folder of annotations, then that of images."
            raise OptionError("VOCDetection", "a folder of XML files", str(folder), fix)
        for path in paths:
            tree = self.parsed(path)
            if tree is not None:
                image = Path(images) / (tree.findtext("filename") or f"{path.stem}.jpg")
                self.rows.append((image, list(self.objects_of(path, tree))))
        if classes is None:
            self.classes: list[Any] = sorted(
                {one["labels"] for _, objects in self.rows for one in objects}
            )
        numbers = {name: number for number, name in enumerate(self.classes)}
        for _, objects in self.rows:
            for one in objects:
                one["labels"] = numbers[one["labels"]]

    def parsed(self, path: Path) -> Any:
        try:
            return ElementTree.fromstring(read_bytes("VOCDetection", path))
        except ElementTree.ParseError as error:
            return self.refuse(str(path), "Pascal VOC's XML", str(error))

    def objects_of(self, path: Path, tree: Any) -> Iterator[dict[str, Any]]:
        for number, element in enumerate(tree.iter("object")):
            place, name = f"{path}, object {number}", element.findtext("name")
            if name is None or (self.classes and name not in self.classes):
                self.refuse(place, f"a class among {self.classes}", repr(name))
                continue
            corners = [element.findtext(f"bndbox/{x}") for x in ("xmin", "ymin", "xmax", "ymax")]
            try:
                numbers = [float(x or "") for x in corners]
            except ValueError:
                self.refuse(place, "bndbox with xmin, ymin, xmax and ymax", f"{corners}")
                continue
            box = self.checked_box(place, numbers[:2], numbers[2:])
            if box is not None:
                is_difficult = element.findtext("difficult") == "1"
                yield {"box": box, "labels": name, "difficult": is_difficult}


class BoxCollate(ImageCollate):
    """A batch of samples with boxes: (images, a list of the rest of each sample). Images are joined
    as ImageCollate does, or if they are arrays, as they are.

    Shapes: images (height, width, channels) -> (samples, channels, height, width).
    Raises: ShapeError for images of different sizes.
    """

    def stack(self, samples: Sequence[Any], empty: Any = np.empty) -> Any:
        images, rest = separated(samples)
        return super().stack(images, empty), rest
