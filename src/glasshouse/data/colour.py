"""Transforms of an image's colours, and random sequences of transforms."""

from typing import Any

import numpy as np

from glasshouse.base.errors import OptionError
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
        self.bounds = {
            "Brightness": bounds_of("brightness", brightness),
            "Contrast": bounds_of("contrast", contrast),
            "Color": bounds_of("saturation", saturation),
        }
        low, high = bounds_of("hue", hue)
        self.hue = (low - 1, high - 1) if not isinstance(hue, (tuple, list)) else (low, high)
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


def translate(image: Any, fraction: float, axis: int) -> Any:
    offset = fraction * image.size[axis]
    return affine(image, 1, 0, offset if axis == 0 else 0, 0, 1, offset if axis == 1 else 0)


# The largest amount of each operation and whether its sign is random; amounts of Cubuk et al. 2020
# in the form of torchvision.
OPERATIONS = {
    "identity": (lambda image, x: image, 0.0, False),
    "shear-x": (lambda image, x: affine(image, 1, x, 0, 0, 1, 0), 0.3, True),
    "shear-y": (lambda image, x: affine(image, 1, 0, 0, x, 1, 0), 0.3, True),
    "translate-x": (lambda image, x: translate(image, x, 0), 150 / 331, True),
    "translate-y": (lambda image, x: translate(image, x, 1), 150 / 331, True),
    "rotate": (lambda image, x: image.rotate(x), 30.0, True),
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
        self.num_ops = check_integer("RandAugment", "num_ops", num_ops, 0)
        self.num_bins = check_integer("RandAugment", "num_bins", num_bins, 2)
        self.magnitude = check_integer("RandAugment", "magnitude", magnitude, 0)
        if self.magnitude >= self.num_bins:
            fix = "It counts num_bins steps from none to the most."
            raise OptionError("RandAugment", f"a magnitude below {num_bins}", magnitude, fix)

    def apply(self, image: Any, rng: "np.random.Generator") -> Any:
        image = in_colour(as_image(image))
        names = list(OPERATIONS)
        for place in rng.integers(len(names), size=self.num_ops).tolist():
            operation, most, is_signed = OPERATIONS[names[place]]
            amount = most * self.magnitude / (self.num_bins - 1)
            if is_signed and rng.random() < 0.5:
                amount = -amount
            image = operation(image, amount)
        return image
