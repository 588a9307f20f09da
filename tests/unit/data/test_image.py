"""Transforms of images against Pillow and NumPy, and their seeds."""

import io

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.errors import DTypeError, OptionError, ShapeError
from glasshouse.data import (
    CenterCrop,
    ColorJitter,
    Compose,
    DataLoader,
    ImageCollate,
    ImageFolder,
    ListDataset,
    Normalize,
    RandAugment,
    RandomCrop,
    RandomFlip,
    RandomResizedCrop,
    Resize,
    ToArray,
    open_image,
)
from glasshouse.data.colour import OPERATIONS, adjusted

Image = pytest.importorskip("PIL.Image")
from PIL import ImageOps  # noqa: E402

PIXELS = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)
IMAGE = Image.fromarray(PIXELS)


def rng(seed=0):
    return np.random.default_rng(seed)


def array(image):
    return np.asarray(image)


def test_resize_is_pillows():
    expected = IMAGE.resize((15, 10), Image.BICUBIC)
    np.testing.assert_array_equal(array(Resize((10, 15), "bicubic")(IMAGE)), array(expected))
    assert Resize(10)(PIXELS).size == (15, 10)
    assert Resize(10)(PIXELS.transpose(1, 0, 2)).size == (10, 15)


def test_crops_are_parts():
    np.testing.assert_array_equal(array(CenterCrop((10, 6))(IMAGE)), PIXELS[5:15, 12:18])
    assert array(CenterCrop(40)(IMAGE)).sum() == PIXELS.sum()
    parts = {RandomCrop(19)(IMAGE, rng(seed)).tobytes() for seed in range(200)}
    every = {PIXELS[y : y + 19, x : x + 19].tobytes() for y in range(2) for x in range(12)}
    assert parts == every
    assert RandomCrop(24, padding=4)(IMAGE, rng()).size == (24, 24)


def test_a_resized_crop_has_the_area_and_ratio_asked_for():
    crop = RandomResizedCrop(8, scale=(0.2, 0.5), ratio=(0.5, 2.0))
    boxes = [crop.box(300, 200, rng(seed)) for seed in range(200)]
    for left, top, width, height in boxes:
        assert 0 <= left <= 300 - width and 0 <= top <= 200 - height
        assert 0.19 < width * height / 60_000 < 0.51 and 0.48 < width / height < 2.05
    assert len(set(boxes)) > 190
    assert RandomResizedCrop(8, (1, 1), (5, 5)).box(30, 30, rng()) == (0, 12, 30, 6)


def test_a_resized_crop_is_pillows():
    crop = RandomResizedCrop((8, 6))
    left, top, width, height = crop.box(30, 20, rng(3))
    box = (left, top, left + width, top + height)
    expected = IMAGE.crop(box).resize((6, 8), Image.BILINEAR)
    np.testing.assert_array_equal(array(crop(IMAGE, rng(3))), array(expected))


def jpeg(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=95)
    return file.getvalue()


def test_a_draft_decodes_less_and_differs_little():
    smooth = array(Image.fromarray(PIXELS[:8, :8]).resize((400, 320), Image.BICUBIC))
    whole = RandomResizedCrop(16, scale=(0.6, 1.0), draft=False)(open_image(jpeg(smooth)), rng(1))
    image = open_image(jpeg(smooth))
    drafted = RandomResizedCrop(16, scale=(0.6, 1.0))(image, rng(1))
    assert image.size == (50, 40)
    assert abs(array(whole).astype(int) - array(drafted)).mean() < 3


def test_flips():
    assert RandomFlip(1.0)(IMAGE, rng()) == ImageOps.mirror(IMAGE)
    assert RandomFlip(1.0, vertical=True)(IMAGE, rng()) == ImageOps.flip(IMAGE)
    assert RandomFlip(0.0)(IMAGE, rng()) is IMAGE
    flips = sum(RandomFlip()(IMAGE, rng(seed)) is not IMAGE for seed in range(400))
    assert 150 < flips < 250


def test_to_array_and_normalize():
    x = Compose(ToArray(), Normalize([0.1, 0.2, 0.3], [1, 2, 4]))(IMAGE)
    expected = PIXELS.transpose(2, 0, 1) / 255 - np.array([0.1, 0.2, 0.3])[:, None, None]
    expected /= np.array([1, 2, 4])[:, None, None]
    assert (x.dtype, x.shape) == (np.float32, (3, 20, 30))
    np.testing.assert_allclose(x, expected, atol=1e-6)
    assert ToArray()(IMAGE.convert("L")).shape == (1, 20, 30)


@pytest.mark.parametrize("workers", [0, 1])
def test_image_collate_is_to_array_and_normalize(workers):
    mean, std = [0.1, 0.2, 0.3], [1, 2, 4]
    each = Compose(ToArray(), Normalize(mean, std))
    data = ListDataset([(IMAGE, 1), (ImageOps.mirror(IMAGE), 2)])
    (expected,) = DataLoader(data.transform(each), 2)
    (ours,) = DataLoader(data, 2, collate_fn=ImageCollate(mean, std), num_workers=workers)
    assert isinstance(ours[0], gh.Tensor) and ours[1].tolist() == [1, 2]
    np.testing.assert_allclose(ours[0].numpy(), expected[0].numpy(), atol=1e-6)


def test_brightness_contrast_and_saturation_blend():
    x = PIXELS.astype(float)
    grey = array(IMAGE.convert("L")).astype(float)
    blends = {"Brightness": 0, "Contrast": int(grey.mean() + 0.5), "Color": grey[:, :, None]}
    for name, base in blends.items():
        expected = np.clip(base + 0.5 * (x - base), 0, 255)
        assert abs(array(adjusted(IMAGE, name, 0.5)) - expected).max() <= 1


def test_hue_goes_round():
    red = Image.new("RGB", (1, 1), (255, 0, 0))
    assert np.argmax(array(adjusted(red, "Hue", 1 / 3))) == 1
    assert np.argmax(array(adjusted(red, "Hue", -1 / 3))) == 2
    assert adjusted(red, "Hue", 0) is red


RANDOM = {
    "crop": RandomCrop(10),
    "resized": RandomResizedCrop(10),
    "jitter": ColorJitter(0.4, 0.4, (0.5, 1.5), 0.1),
    "augment": RandAugment(3, 15),
}


@pytest.mark.parametrize("name", RANDOM)
def test_what_is_random_depends_on_the_generator_alone(name):
    outs = [array(RANDOM[name](IMAGE, rng(seed))).tobytes() for seed in (1, 1, 2)]
    assert outs[0] == outs[1] != outs[2]
    with pytest.raises(OptionError, match="seed=0"):
        RANDOM[name](IMAGE)


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_of_randaugment_change_the_image_but_for_none(name):
    operation, most, _ = OPERATIONS[name]
    out = operation(IMAGE, most * 0.6)
    assert (out.size, out.mode) == (IMAGE.size, "RGB")
    assert (out.tobytes() != IMAGE.tobytes()) == (name not in ("identity", "autocontrast"))
    if most:
        assert operation(IMAGE, 0.0).tobytes() == IMAGE.tobytes()


def test_image_folder(tmp_path):
    for name, count in (("cat", 2), ("ant", 1)):
        (tmp_path / name).mkdir()
        for number in range(count):
            IMAGE.save(tmp_path / name / f"{number}.png")
    (tmp_path / "cat" / "notes.txt").write_text("no image")
    data = ImageFolder(tmp_path)
    assert data.classes == ["ant", "cat"] and data.class_to_idx == {"ant": 0, "cat": 1}
    assert [label for _, label in data] == [0, 1, 1]
    np.testing.assert_array_equal(array(data[-1][0]), PIXELS)
    batches = DataLoader(
        data.transform(RandomCrop(8), seed=0), 2, collate_fn=ImageCollate(), num_workers=1
    )
    assert [x.shape for x, _ in batches] == [(2, 3, 8, 8), (1, 3, 8, 8)]


BAD_CALLS = [
    (lambda: Resize(0), OptionError, "size"),
    (lambda: Resize(8, "bilinaer"), OptionError, "'bilinear'"),
    (lambda: Resize((1, 2, 3)), ShapeError, r"\(1, 2, 3\)"),
    (lambda: Resize(8)("image"), DTypeError, "an image; got str"),
    (lambda: Resize(8)(PIXELS / 255), DTypeError, "float64"),
    (lambda: RandomCrop(40)(IMAGE, rng()), ShapeError, r"at least \(40, 40\); got \(20, 30\)"),
    (lambda: RandomResizedCrop(8, scale=(0.5, 0.1)), OptionError, "scale"),
    (lambda: RandomFlip(1.5), OptionError, "p as a number.*got 1.5"),
    (lambda: ColorJitter(-1), OptionError, "brightness of 0 or more"),
    (lambda: ColorJitter(hue=0.7), OptionError, "hue within"),
    (lambda: RandAugment(2, 31), OptionError, "below 31; got 31"),
    (lambda: Normalize([0, 0], [1]), ShapeError, r"\(2,\) and \(1,\)"),
    (lambda: Normalize([0], [0]), OptionError, "std above 0"),
    (lambda: Normalize([0], [1])(IMAGE), DTypeError, "ToArray"),
    (lambda: Normalize([0, 0], [1, 1])(np.ones((3, 2, 2))), ShapeError, "2 channels"),
    (lambda: Compose(3), DTypeError, "functions; got 3"),
    (lambda: ImageFolder("/no/such"), OptionError, "/no/such"),
    (lambda: open_image(b"no image"), OptionError, "8 bytes"),
    (lambda: ImageCollate()([PIXELS, PIXELS[:4]]), ShapeError, "one size"),
    (lambda: ImageCollate([0, 0], [1, 1])([PIXELS]), ShapeError, "2 channels; got 3"),
]


@pytest.mark.parametrize("number", range(len(BAD_CALLS)))
def test_bad_calls(number):
    call, error, text = BAD_CALLS[number]
    with pytest.raises(error, match=text):
        call()
