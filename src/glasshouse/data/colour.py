"""Transforms of an image's colours, and random sequences of transforms."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from glasshouse.base.errors import OptionError
from glasshouse.data.boxed import follow
from glasshouse.data.image import ImageTransform, as_image, in_colour, pillow
from glasshouse.ops.checks import check_integer


class ColorJitter(ImageTransform):
    """Brightness, contrast, saturation and hue changed at random, in random order. A number b draws
    factors from max(0, 1-b) … 1+b, a pair from between its two; hue is a shift of up to ±hue turns.

    Raises: OptionError for a negative number, or a hue above 0.5.
    Source: torchvision.
    """

    is_random = True

    def __init__(
        self,
        brightness: float = 0.0,
        contrast: float = 0.0,
        saturation: float = 0.0,
        hue: float = 0.0,
    ) -> None:
        self.bounds: dict[str, tuple[float, float]] = {
            "Brightness": bounds_of("brightness", brightness),
            "Contrast": bounds_of("contrast", contrast),
            "Color": bounds_of("saturation", saturation),
        }
        low, high = bounds_of("hue", hue)
        self.hue: tuple[float, float] = (
            (low - 1, high - 1) if not isinstance(hue, (tuple, list)) else (low, high)
        )
        if not -0.5 <= self.hue[0] <= self.hue[1] <= 0.5:
            raise OptionError("ColorJitter", "hue within -0.5 … 0.5", repr(hue), "It is in turns.")

    def apply(self, image: Any, rng: "np.random.Generator") -> Any:
        image = in_colour(as_image(image))
        names = [*self.bounds, "Hue"]
        factors = {name: rng.uniform(*bounds) for name, bounds in self.bounds.items()}
        factors["Hue"] = rng.uniform(*self.hue)
        for place in rng.permutation(len(names)).tolist():
            image = adjusted(image, names[place], factors[names[place]])
        return image


def bounds_of(name: str, amount: float) -> tuple[float, float]:
    if isinstance(amount, (tuple, list)) and len(amount) == 2 and amount[0] <= amount[1]:
        return tuple(amount)
    if isinstance(amount, (int, float)) and amount >= 0:
        return max(0.0, 1 - amount), 1 + amount
    fix = "Pass e.g. 0.4."
    raise OptionError("ColorJitter", f"{name} of 0 or more, or (low, high)", repr(amount), fix)


def adjusted(image: Any, name: str, amount: float) -> Any:
    """The image with one property changed: a factor, for hue a shift in turns."""
    if name != "Hue":
        return (
            image if amount == 1 else getattr(pillow("ImageEnhance"), name)(image).enhance(amount)
        )
    if amount == 0:
        return image
    hue, saturation, value = image.convert("HSV").split()
    turned = np.asarray(hue) + np.uint8(int(amount * 255) % 256)  # uint8 wraps around, as hues do
    hue = pillow("Image").fromarray(turned)
    return pillow("Image").merge("HSV", (hue, saturation, value)).convert("RGB")


def affine(image: Any, *coefficients: Any) -> Any:
    """output (x, y) = input (a x + b y + c, d x + e y + f); outside it is black."""
    return image.transform(image.size, 0, coefficients)  # Pillow's AFFINE is 0


def rotation(degrees: float, width: int, height: int) -> tuple[float, ...]:
    """The coefficients of `affine` that turn an image about its middle, against the clock."""
    angle = math.radians(degrees)
    a, b, x, y = math.cos(angle), -math.sin(angle), width / 2, height / 2
    return a, b, x - a * x - b * y, -b, a, y + b * x - a * y


# Where operations that move pixels take them from: coefficients of (amount, width, height).
MOVES: dict[str, Any] = {
    "shear-x": lambda x, width, height: (1, x, 0, 0, 1, 0),
    "shear-y": lambda x, width, height: (1, 0, 0, x, 1, 0),
    "translate-x": lambda x, width, height: (1, 0, x * width, 0, 1, 0),
    "translate-y": lambda x, width, height: (1, 0, 0, 0, 1, x * height),
    "rotate": rotation,
}


def mover(name: str) -> Any:
    return lambda image, x: affine(image, *MOVES[name](x, *image.size))


# The largest amount of each operation and whether its sign is random; amounts of Cubuk et al. 2020
# in the form of torchvision.
OPERATIONS: dict[str, Any] = {
    "identity": (lambda image, x: image, 0.0, False),
    "shear-x": (mover("shear-x"), 0.3, True),
    "shear-y": (mover("shear-y"), 0.3, True),
    "translate-x": (mover("translate-x"), 150 / 331, True),
    "translate-y": (mover("translate-y"), 150 / 331, True),
    "rotate": (mover("rotate"), 30.0, True),
    "brightness": (lambda image, x: adjusted(image, "Brightness", 1 + x), 0.9, True),
    "saturation": (lambda image, x: adjusted(image, "Color", 1 + x), 0.9, True),
    "contrast": (lambda image, x: adjusted(image, "Contrast", 1 + x), 0.9, True),
    "sharpness": (lambda image, x: adjusted(image, "Sharpness", 1 + x), 0.9, True),
    "posterize": (lambda image, x: pillow("ImageOps").posterize(image, 8 - round(x)), 4.0, False),
    "solarize": (lambda image, x: pillow("ImageOps").solarize(image, 256 - x), 256.0, False),
    "autocontrast": (lambda image, x: pillow("ImageOps").autocontrast(image), 0.0, False),
    "equalize": (lambda image, x: pillow("ImageOps").equalize(image), 0.0, False),
}


class RandAugment(ImageTransform):
    """`num_ops` operations one after the other, drawn from 14, each at `magnitude` of `num_bins`.

    Raises: OptionError unless 0 <= magnitude < num_bins.
    Source: Cubuk et al. 2020, RandAugment, arXiv:1909.13719.
    """

    is_random = True

    def __init__(self, num_ops: int = 2, magnitude: int = 9, num_bins: int = 31) -> None:
        self.num_ops: int = check_integer("RandAugment", "num_ops", num_ops, 0)
        self.num_bins: int = check_integer("RandAugment", "num_bins", num_bins, 2)
        self.magnitude: int = check_integer("RandAugment", "magnitude", magnitude, 0)
        if self.magnitude >= self.num_bins:
            fix = "It counts num_bins steps from none to the most."
            raise OptionError("RandAugment", f"a magnitude below {num_bins}", magnitude, fix)

    def drawn(self, rng: "np.random.Generator") -> Iterator[tuple[str, float]]:
        """The operations by name, each with its amount."""
        names = list(OPERATIONS)
        for place in rng.integers(len(names), size=self.num_ops).tolist():
            _, most, is_signed = OPERATIONS[names[place]]
            amount = most * self.magnitude / (self.num_bins - 1)
            is_negative = is_signed and rng.random() < 0.5
            yield names[place], -amount if is_negative else amount

    def apply(self, image: Any, rng: "np.random.Generator") -> Any:
        return self.apply_sample({"image": image}, rng)["image"]

    def apply_sample(self, sample: dict[str, Any], rng: "np.random.Generator") -> dict[str, Any]:
        for name, amount in self.drawn(rng):
            image = in_colour(as_image(sample["image"]))
            if name in MOVES:
                sample = moved(sample, MOVES[name](amount, *image.size), image.size)
            sample = {**sample, "image": OPERATIONS[name][0](image, amount)}
        return {**sample, "image": in_colour(as_image(sample["image"]))}


def moved(sample: dict[str, Any], coefficients: Any, size: tuple[int, int]) -> dict[str, Any]:
    """The sample's boxes and masks as `affine` moves an image."""
    a, b, c, d, e, f = coefficients
    back = np.linalg.inv(np.array([[a, b], [d, e]]))

    def move_mask(mask: Any) -> np.ndarray:
        image = pillow("Image").fromarray(np.asarray(mask, np.int32))
        return np.asarray(affine(image, *coefficients)).astype(np.asarray(mask).dtype)

    return follow(sample, lambda points: (points - [c, f]) @ back.T, size, move_mask)
