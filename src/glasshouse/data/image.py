"""Transforms of images: Pillow's images, or uint8 arrays (height, width, channels).

A transform is a function of (image, rng). All randomness is drawn from `rng`, which a seeded map
passes: `data.transform(Compose(RandomResizedCrop(224), RandomFlip()), None, seed=0)`. In place of
an image it takes a sample, a dict with an "image": its "boxes" and masks follow (`boxed.py`)."""

import math
import numbers
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from io import BytesIO
from types import ModuleType
from typing import Any

import numpy as np

from glasshouse.base.errors import (
    CheckpointError,
    DTypeError,
    OptionError,
    ShapeError,
    optional,
    type_name,
)
from glasshouse.data.boxed import Placement, follow
from glasshouse.data.collate import Collate
from glasshouse.data.formats import read_bytes
from glasshouse.ops.checks import check_integer, check_option, check_range

__all__ = ["CenterCrop", "Compose", "ImageCollate", "ImageTransform", "Normalize", "RandomCrop",
           "RandomErasing", "RandomFlip", "RandomResizedCrop", "Resize", "ToArray",
           "open_image"]  # fmt: skip

FILTERS = ("nearest", "bilinear", "bicubic", "lanczos", "box", "hamming")
FULL = 255.0  # a uint8's largest value


@cache
def pillow(module: str) -> ModuleType:
    return optional("data", "Pillow for images", f"PIL.{module}", "vision")


def open_image(file: Any) -> Any:
    """The image in a file, a path or bytes; its pixels are decoded when they are needed.

    Raises: OptionError if there is no image in it, CheckpointError if there is no such file.
    """
    data = file
    if not isinstance(file, bytes):
        data = read_bytes("open_image", file)
    shown = f"{len(data)} bytes" if isinstance(file, bytes) else str(file)
    try:
        image = pillow("Image").open(BytesIO(data))
    except (OSError, SyntaxError, ValueError):  # Pillow's own error is an OSError
        raise OptionError("open_image", "an image file", shown, "See its format.") from None
    image.filename = shown
    return image


def decoded(image: Any) -> Any:
    """The image with its pixels read.

    Raises: CheckpointError that names the file, if it is damaged.
    """
    with damage_named(image):
        image.load()
    return image


@contextmanager
def damage_named(image: Any) -> Iterator[None]:
    """A block in which pixels are read: an error of Pillow's becomes one that names the file."""
    try:
        yield
    except (OSError, SyntaxError) as error:
        got = f"{getattr(image, 'filename', '') or 'an image'}: {error}"
        fix = "Fetch the file again, or leave it out: errors='skip'."
        raise CheckpointError("open_image", "an undamaged image file", got, fix) from None


def as_image(image: Any) -> Any:
    """A Pillow image of the pixels."""
    if isinstance(image, np.ndarray):
        if image.dtype != np.uint8 or image.ndim not in (2, 3):
            expected = "a Pillow image, or uint8 (height, width, channels)"
            fix = "Put ToArray() after what works on images."
            raise DTypeError("transform", expected, f"{image.dtype} {image.shape}", fix)
        if not image.size:
            raise ShapeError("transform", "an image with pixels", image.shape, "Leave it out.")
        return pillow("Image").fromarray(image)
    if not hasattr(image, "resize") or not hasattr(image, "getbands"):
        fix = "Name the field: transform(fn)."
        raise DTypeError("transform", "an image", type_name(image), fix)
    return image


def in_colour(image: Any) -> Any:
    return image if image.mode == "RGB" else image.convert("RGB")


def check_size(where: str, size: Any) -> tuple[int, int]:
    """(height, width)."""
    pair = size if isinstance(size, (tuple, list)) else (size, size)
    if len(pair) != 2:
        raise ShapeError(where, "a size or (height, width)", repr(size), "Pass e.g. 224.")
    return check_integer(where, "size", pair[0], 1), check_integer(where, "size", pair[1], 1)


def check_bounds(
    where: str, name: str, bounds: Sequence[float], least: float, most: float
) -> tuple[float, float]:
    """(low, high) within least … most."""
    pair: Any = tuple(bounds) if isinstance(bounds, (tuple, list)) else ()
    is_pair = len(pair) == 2 and all(isinstance(x, numbers.Real) for x in pair)
    if not is_pair or not least <= pair[0] <= pair[1] <= most:
        fix = "Put low first."
        raise OptionError(where, f"{name}=(low, high) within {least} … {most}", repr(bounds), fix)
    return pair


class ImageTransform:
    """A function of an image: subclasses define `apply(image, rng)`."""

    is_random = False

    def __call__(self, image: Any, rng: "np.random.Generator | None" = None) -> Any:
        if self.is_random and rng is None:
            fix = "Give the map a seed: data.map(fn, seed=0)."
            raise OptionError(type(self).__name__, "a generator of random numbers", "none", fix)
        if not isinstance(image, dict):
            with damage_named(image):
                return self.apply(image, rng)
        if "image" not in image:
            fix = "Name the image so."
            raise DTypeError("transform", "a sample with 'image'", f"{sorted(image)}", fix)
        with damage_named(image["image"]):
            return self.apply_sample(image, rng)

    def apply(self, image: Any, rng: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__}: expected apply; got none.")

    def apply_sample(self, sample: dict[str, Any], rng: Any) -> dict[str, Any]:
        """The sample with its image changed; here pixels alone are, so that boxes stay."""
        return {**sample, "image": self.apply(sample["image"], rng)}


class PlaceTransform(ImageTransform):
    """A transform that takes a part of the image to another size, or mirrors it: subclasses define
    `place(width, height, rng)`, None for the image as it is."""

    filter = 0  # Pillow's number of the nearest pixel

    def place(self, width: int, height: int, rng: Any) -> Placement | None:
        raise NotImplementedError(f"{type(self).__name__}: expected place; got none.")

    def pixels(self, image: Any, place: Placement) -> Any:
        return placed(image, place, self.filter)

    def apply(self, image: Any, rng: Any) -> Any:
        picture = as_image(image)
        place = self.place(picture.width, picture.height, rng)
        return image if place is None else self.pixels(picture, place)

    def apply_sample(self, sample: dict[str, Any], rng: Any) -> dict[str, Any]:
        picture = as_image(sample["image"])
        place = self.place(picture.width, picture.height, rng)
        if place is None:
            return sample
        result = follow(sample, place.move, place.size, lambda mask: moved_mask(mask, place))
        return {**result, "image": self.pixels(picture, place)}


def placed(image: Any, place: Placement, filter_number: int) -> Any:
    """The part of a Pillow image at its new size."""
    left, top, right, bottom = place.box
    if place.box != (0, 0, *image.size):
        image = image.crop(place.box)
    if place.size != (right - left, bottom - top):
        image = image.resize(place.size, filter_number)
    for is_mirrored, number in zip(place.mirrored, (0, 1), strict=True):  # Pillow's FLIP_ numbers
        image = image.transpose(number) if is_mirrored else image
    return image


def moved_mask(mask: Any, place: Placement) -> Any:
    """A mask as `placed` does it, without values between its own."""
    image = pillow("Image").fromarray(np.asarray(mask, np.int32))
    return np.asarray(placed(image, place, 0)).astype(np.asarray(mask).dtype)


class Compose(ImageTransform):
    """One transform after the other; plain functions of the image may be among them."""

    def __init__(self, *transforms: Any) -> None:
        if len(transforms) == 1 and isinstance(transforms[0], (list, tuple)):
            transforms = tuple(transforms[0])
        for transform in transforms:
            if not callable(transform):
                raise DTypeError("Compose", "functions", repr(transform), "Pass transforms.")
        self.transforms = transforms

    def __call__(self, image: Any, rng: "np.random.Generator | None" = None) -> Any:
        for transform in self.transforms:
            takes_rng = isinstance(transform, ImageTransform)
            image = transform(image, rng) if takes_rng else transform(image)
        return image


class Resize(PlaceTransform):
    """The image scaled to (height, width), or its shorter side to a single size.

    Source: torchvision.
    """

    def __init__(self, size: Any, interpolation: str = "bilinear") -> None:
        self.shorter: bool = isinstance(size, int)
        self.size: tuple[int, int] = check_size("Resize", size)
        self.filter: int = filter_of("Resize", interpolation)

    def place(self, width: int, height: int, rng: Any) -> Placement:
        rows, columns = self.size
        if self.shorter:
            columns, rows = (int(rows * side / min(width, height)) for side in (width, height))
        return Placement((0, 0, width, height), (columns, rows))


def filter_of(where: str, name: str) -> int:
    check_option(where, "interpolation", name, FILTERS)
    return FILTER_NUMBERS[name]


# Pillow's own numbers of its filters.
FILTER_NUMBERS = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "box": 4, "hamming": 5}


class CenterCrop(PlaceTransform):
    """The middle of the image; pixels outside the image are black."""

    def __init__(self, size: tuple[int, ...] | int) -> None:
        self.size: tuple[int, int] = check_size("CenterCrop", size)

    def place(self, width: int, height: int, rng: Any) -> Placement:
        rows, columns = self.size
        left, top = round((width - columns) / 2), round((height - rows) / 2)
        return Placement((left, top, left + columns, top + rows), (columns, rows))


class RandomCrop(PlaceTransform):
    """A part of the image at a random place, `padding` black pixels around it included.

    Raises: ShapeError if the image is smaller.
    """

    is_random = True

    def __init__(self, size: int, padding: int = 0) -> None:
        self.size: tuple[int, int] = check_size("RandomCrop", size)
        self.padding: int = check_integer("RandomCrop", "padding", padding, 0)

    def place(self, width: int, height: int, rng: Any) -> Placement:
        rows, columns = self.size
        down, across = height + 2 * self.padding - rows, width + 2 * self.padding - columns
        if down < 0 or across < 0:
            expected = f"an image of at least {self.size}"
            fix = "Resize it first, or pass padding."
            raise ShapeError("RandomCrop", expected, (height, width), fix)
        top = int(rng.integers(down + 1)) - self.padding
        left = int(rng.integers(across + 1)) - self.padding
        return Placement((left, top, left + columns, top + rows), (columns, rows))


class RandomResizedCrop(PlaceTransform):
    """A random part of the image, of `scale` of its area and a random `ratio` of width to height,
    resized. With `draft`, a JPEG of which twice as much is read as needed, or more, is decoded at
    half the size, or less, which is faster and differs as another filter would.

    Source: Szegedy et al. 2015, Going deeper with convolutions, arXiv:1409.4842, sec. 6.
    """

    is_random = True

    def __init__(
        self,
        size: tuple[int, ...] | int,
        scale: Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3 / 4, 4 / 3),
        interpolation: str = "bilinear",
        draft: bool = True,
    ) -> None:
        self.size: tuple[int, int] = check_size("RandomResizedCrop", size)
        self.scale: tuple[float, float] = check_bounds(
            "RandomResizedCrop", "scale", scale, 0.0, 1.0
        )
        self.ratio: tuple[float, float] = check_bounds(
            "RandomResizedCrop", "ratio", ratio, 1e-3, 1e3
        )
        self.filter: int = filter_of("RandomResizedCrop", interpolation)
        self.draft: bool = bool(draft)

    def place(self, width: int, height: int, rng: Any) -> Placement:
        left, top, columns, rows = self.box(width, height, rng)
        return Placement((left, top, left + columns, top + rows), (self.size[1], self.size[0]))

    def pixels(self, image: Any, place: Placement) -> Any:
        left, top, right, bottom = place.box
        width, height = right - left, bottom - top
        columns, rows = place.size
        full = image.size
        if self.draft and hasattr(image, "draft"):
            draft_size = math.ceil(full[0] * columns / width), math.ceil(full[1] * rows / height)
            image.draft(None, draft_size)
        if image.size == full:
            return placed(in_colour(image.crop(place.box)), place.from_corner(), self.filter)
        across, down = image.width / full[0], image.height / full[1]
        ends = min(right * across, image.width), min(bottom * down, image.height)
        box = (left * across, top * down, *ends)
        return in_colour(image).resize((columns, rows), self.filter, box=box)

    def box(self, width: int, height: int, rng: "np.random.Generator") -> tuple[int, int, int, int]:
        """(left, top, width, height) of the part: ten tries, then the middle."""
        if part := random_part(width, height, self.scale, self.ratio, rng):
            return part
        ratio = min(max(width / height, self.ratio[0]), self.ratio[1])
        columns = min(width, round(height * ratio))
        rows = min(height, round(width / ratio))
        return (width - columns) // 2, (height - rows) // 2, columns, rows


def random_part(
    width: int, height: int, scale: Any, ratio: Any, rng: "np.random.Generator"
) -> tuple[int, int, int, int] | None:
    """(left, top, width, height) of a part with this share of the area and ratio of width to
    height; None if none fits in ten tries."""
    for _ in range(10):
        area = width * height * rng.uniform(*scale)
        shape = math.exp(rng.uniform(math.log(ratio[0]), math.log(ratio[1])))
        columns = round(math.sqrt(area * shape))
        rows = round(math.sqrt(area / shape))
        if 0 < columns <= width and 0 < rows <= height:
            left = int(rng.integers(width - columns + 1))
            return left, int(rng.integers(height - rows + 1)), columns, rows
    return None


class RandomFlip(PlaceTransform):
    """The image mirrored from left to right (with `vertical`, upside down) with probability p."""

    is_random = True

    def __init__(self, p: float = 0.5, vertical: bool = False) -> None:
        self.p: float = check_range("RandomFlip", "p", p, 0, 1)
        self.vertical: bool = bool(vertical)

    def place(self, width: int, height: int, rng: Any) -> Placement | None:
        if rng.random() >= self.p:
            return None
        mirrored = (not self.vertical, self.vertical)
        return Placement((0, 0, width, height), (width, height), mirrored)


class RandomErasing(ImageTransform):
    """A random part of the image replaced with probability p: by `value`, one or one a channel, or
    by normal noise for "random". It has `scale` of the area and `ratio` of height to width.

    Raises: OptionError for a p, scale or ratio that cannot be; DTypeError for other than floats.
    Source: Zhong et al. 2017, arXiv:1708.04896, algorithm 1.
    """

    is_random = True

    def __init__(
        self,
        p: float = 0.5,
        scale: Sequence[float] = (0.02, 0.33),
        ratio: Sequence[float] = (0.3, 3.3),
        value: Any = 0.0,
    ) -> None:
        self.p: float = check_range("RandomErasing", "p", p, 0, 1)
        self.scale: tuple[float, float] = check_bounds("RandomErasing", "scale", scale, 0.0, 1.0)
        self.ratio: tuple[float, float] = check_bounds("RandomErasing", "ratio", ratio, 1e-3, 1e3)
        self.value = value

    def apply(self, image: Any, rng: "np.random.Generator") -> np.ndarray:
        image = check_floats("RandomErasing", image)
        if rng.random() >= self.p:
            return image
        rows, columns = image.shape[1:]
        part = random_part(rows, columns, self.scale, self.ratio, rng)
        if part is None:
            return image
        top, left, height, width = part
        image = image.copy()
        area = image[:, top : top + height, left : left + width]
        is_noise = isinstance(self.value, str)
        area[...] = rng.normal(size=area.shape) if is_noise else in_channels(self.value)
        return image


def in_channels(value: Any) -> np.ndarray:
    value = np.asarray(value, np.float32)
    return value[:, None, None] if value.ndim else value


def check_floats(where: str, image: Any) -> np.ndarray:
    """The image, which is a floating array (channels, height, width)."""
    if not isinstance(image, np.ndarray) or image.dtype.kind != "f" or image.ndim != 3:
        got = f"{image.dtype} {image.shape}" if isinstance(image, np.ndarray) else type_name(image)
        expected = "a floating array (channels, height, width)"
        raise DTypeError(where, expected, got, "Put ToArray() before it.")
    return image


class ToArray(ImageTransform):
    """float32 (channels, height, width), from 0 to 1."""

    def apply(self, image: Any, rng: "np.random.Generator | None") -> np.ndarray:
        pixels = np.asarray(as_image(image))
        pixels = pixels[:, :, None] if pixels.ndim == 2 else pixels
        return np.ascontiguousarray(pixels.transpose(2, 0, 1)) / np.float32(FULL)


class Normalize(ImageTransform):
    """(x - mean) / std of each channel: x (channels, height, width).

    Raises: ShapeError unless mean and std have one entry a channel, OptionError for a std of 0.
    """

    mean: np.ndarray
    std: np.ndarray

    def __init__(self, mean: Any, std: Any) -> None:
        self.mean, self.std = check_moments("Normalize", mean, std)

    def apply(self, image: Any, rng: "np.random.Generator | None") -> np.ndarray:
        image = check_floats("Normalize", image)
        if image.shape[:1] != self.mean.shape and self.mean.size != 1:
            fix = "Give one mean a channel."
            raise ShapeError("Normalize", f"{self.mean.size} channels", image.shape, fix)
        return (image - self.mean[:, None, None]) / self.std[:, None, None]


def check_moments(where: str, mean: Any, std: Any) -> tuple[np.ndarray, np.ndarray]:
    try:
        mean = np.atleast_1d(np.asarray(mean, np.float32))
        std = np.atleast_1d(np.asarray(std, np.float32))
    except (TypeError, ValueError):
        got = f"{mean!r:.40} and {std!r:.40}"
        raise DTypeError(where, "numbers as mean and std", got, "Pass two lists.") from None
    if mean.ndim != 1 or mean.shape != std.shape:
        fix = "Pass two lists."
        raise ShapeError(where, "one mean and std a channel", f"{mean.shape} and {std.shape}", fix)
    if not (std > 0).all():
        raise OptionError(where, "std above 0", std.tolist(), "Leave out constant channels.")
    return mean, std


class ImageCollate(Collate):
    """A batch of images as float32 (samples, channels, height, width), normalized: each pixel
    becomes (x / 255 - mean) / std. Images are the leaves that Pillow or uint8 arrays with three
    axes; all others are collated as usual. It is faster than `ToArray` and `Normalize` of each
    sample, since pixels are written once, into the batch.

    Shapes: images (height, width, channels) -> (samples, channels, height, width).
    Raises: ShapeError for images of different sizes, or channels other than the mean's.
    """

    def __init__(
        self, mean: Sequence[float] | float = 0.0, std: Sequence[float] | float = 1.0
    ) -> None:
        mean, std = check_moments("ImageCollate", mean, std)
        self.scale: Any = (1 / (FULL * std)).astype(np.float32)[:, None, None]
        self.shift: Any = (mean / std).astype(np.float32)[:, None, None]

    def stack_leaves(self, leaves: tuple[Any, ...], empty: Callable[..., Any]) -> np.ndarray:
        pixels = [array for leaf in leaves if (array := pixels_of(leaf)) is not None]
        if len(pixels) < len(leaves):
            return super().stack_leaves(leaves, empty)
        height, width, channels = pixels[0].shape
        if channels != len(self.scale) != 1:
            fix = "Give a mean for each."
            raise ShapeError("ImageCollate", f"{len(self.scale)} channels", channels, fix)
        out = empty((len(pixels), channels, height, width), np.float32)
        for image, array in zip(out, pixels, strict=True):
            if array.shape != pixels[0].shape:
                got = f"{pixels[0].shape} and {array.shape}"
                raise ShapeError("ImageCollate", "images of one size", got, "Crop or resize them.")
            image[...] = array.transpose(2, 0, 1)
            image *= self.scale
            image -= self.shift
        return out


def pixels_of(leaf: Any) -> np.ndarray | None:
    """(height, width, channels) of an image, None of anything else."""
    if hasattr(leaf, "getbands"):
        leaf = np.asarray(decoded(leaf))
        return leaf[:, :, None] if leaf.ndim == 2 else leaf
    is_image = isinstance(leaf, np.ndarray) and leaf.dtype == np.uint8 and leaf.ndim == 3
    return leaf if is_image else None
