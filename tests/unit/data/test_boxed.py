"""Boxes and masks that follow their image; batches that are mixed; parts that are erased."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.errors import DTypeError, IndexOutOfRangeError, OptionError, ShapeError
from glasshouse.data import (
    BoxCollate,
    CenterCrop,
    ColorJitter,
    Compose,
    CutMix,
    DataLoader,
    ListDataset,
    MixUp,
    Normalize,
    RandAugment,
    RandomCrop,
    RandomErasing,
    RandomFlip,
    RandomResizedCrop,
    Resize,
    TensorDataset,
    ToArray,
)
from glasshouse.data.boxed import Placement
from glasshouse.data.colour import MOVES, OPERATIONS, moved

pytest.importorskip("PIL")
WIDTH, HEIGHT = 60, 40


def rng(seed=0):
    return np.random.default_rng(seed)


def sample(boxes=((10, 8, 30, 24), (40, 5, 55, 35))):
    """A picture in which each box is painted in a colour of its own, and its masks."""
    image = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    masks = np.zeros((len(boxes), HEIGHT, WIDTH), bool)
    for i, (x1, y1, x2, y2) in enumerate(boxes):
        image[y1:y2, x1:x2, i] = 255
        masks[i, y1:y2, x1:x2] = True
    mask = (masks * np.arange(1, len(boxes) + 1)[:, None, None]).sum(axis=0).astype(np.uint8)
    labels, area = np.arange(len(boxes)), masks.sum(axis=(1, 2))
    return {
        "image": image,
        "boxes": np.array(boxes, np.float32),
        "labels": labels,
        "area": area,
        "masks": masks,
        "mask": mask,
        "name": "kept",
    }


TRANSFORMS = {
    "resize": Resize((80, 90)),
    "shorter side": Resize(20),
    "centre": CenterCrop(30),
    "larger centre": CenterCrop((50, 70)),
    "crop": RandomCrop((30, 44), padding=4),
    "resized crop": RandomResizedCrop((48, 36), scale=(0.3, 0.9)),
    "flip": RandomFlip(1.0),
    "upside down": RandomFlip(1.0, vertical=True),
    "several": Compose(RandomFlip(), RandomCrop(36), ColorJitter(0.01), Resize(64)),
}


def box_of(pixels):
    rows, columns = np.flatnonzero(pixels.any(axis=1)), np.flatnonzero(pixels.any(axis=0))
    return [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]


def assert_follows(result, least=0.0):
    """Boxes and masks lie where the picture has their colour."""
    pixels = np.asarray(result["image"])
    assert result["mask"].shape == pixels.shape[:2]
    assert len(result["boxes"]) == len(result["labels"]) == len(result["masks"])
    for i, label in enumerate(result["labels"]):
        painted = pixels[..., label] > 127
        np.testing.assert_allclose(result["boxes"][i], box_of(painted), atol=1.5 + least)
        for mask in (result["masks"][i], result["mask"] == label + 1):
            assert (mask & painted).sum() >= 0.8 * (mask | painted).sum()
        assert abs(result["area"][i] - painted.sum()) <= 0.2 * painted.sum() + 20


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("seed", range(4))
def test_boxes_and_masks_follow_the_image(name, seed):
    before = sample()
    result = TRANSFORMS[name](before, rng(seed))
    assert_follows(result)
    assert result["name"] == "kept" and result["masks"].dtype == bool
    assert before["boxes"][0].tolist() == [10, 8, 30, 24]  # as it was
    same = TRANSFORMS[name](before["image"], rng(seed))
    np.testing.assert_array_equal(np.asarray(same), np.asarray(result["image"]))


@pytest.mark.parametrize("name", MOVES)
@pytest.mark.parametrize("part", [-0.4, 0.4])
def test_boxes_follow_the_moves_of_randaugment(name, part):
    operation, most, _ = OPERATIONS[name]
    before, amount = sample(((20, 14, 38, 26),)), most * part
    image = operation(gh.data.image.as_image(before["image"]), amount)
    coefficients = MOVES[name](amount, WIDTH, HEIGHT)
    result = {**moved(before, coefficients, (WIDTH, HEIGHT)), "image": image}
    assert_follows(result, least=1.0)


@pytest.mark.parametrize("seed", range(5))
def test_randaugment_of_a_sample_is_that_of_its_image(seed):
    transform = RandAugment(2, 9)
    result = transform(sample(), rng(seed))
    image = transform(sample()["image"], rng(seed))
    np.testing.assert_array_equal(np.asarray(result["image"]), np.asarray(image))
    assert len(result["boxes"]) == len(result["labels"])


def test_a_rotation_is_pillows():
    image = gh.data.image.as_image(rng().integers(0, 256, (21, 30, 3), np.uint8))
    for angle in (-25.0, 7.0, 30.0):
        turned = OPERATIONS["rotate"][0](image, angle)
        np.testing.assert_array_equal(np.asarray(turned), np.asarray(image.rotate(angle)))


def test_boxes_outside_are_taken_out_with_what_belongs_to_them():
    result = CenterCrop((40, 20))(sample())  # columns 20 to 40
    assert result["labels"].tolist() == [0]
    assert result["boxes"].tolist() == [[0, 8, 10, 24]]
    assert result["masks"].shape == (1, 40, 20) and result["area"].tolist() == [160]
    empty = CenterCrop(8)(sample(((2, 2, 9, 9),)))
    assert empty["boxes"].shape == (0, 4) and empty["masks"].shape == (0, 8, 8)
    assert CenterCrop(8)({"image": sample()["image"], "boxes": []})["boxes"].shape == (0, 4)


def test_places_move_points():
    place = Placement((10, 0, 30, 10), (40, 10), (True, False))
    assert place.move(np.array([[10.0, 5.0], [30.0, 0.0]])).tolist() == [[40, 5], [0, 0]]


def test_a_loader_makes_batches_of_samples_with_boxes():
    steps = Compose(RandomResizedCrop(24, scale=(0.5, 1)), RandomFlip())
    data = ListDataset([sample(), sample(((5, 5, 20, 20),)), sample()]).map(steps, seed=0)
    images, targets = next(iter(DataLoader(data, 3, collate_fn=BoxCollate(0.5, 0.25))))
    assert images.shape == (3, 3, 24, 24) and images.numpy().max() == pytest.approx(2.0)
    assert len(targets) == 3 and targets[0]["boxes"].shape[1] == 4 and "image" not in targets[0]
    arrays = data.map(Compose(ToArray(), Normalize(0.5, 0.25)))
    again = next(iter(DataLoader(arrays, 3, collate_fn=BoxCollate())))[0]
    np.testing.assert_allclose(again.numpy(), images.numpy(), atol=1e-6)


def test_mixup_is_the_sum_of_two_images():
    x, y = rng().normal(size=(4, 3, 8, 8)).astype(np.float32), np.array([0, 2, 1, 1])
    images, chances = MixUp(3, alpha=0.4)((x, y), rng(5))
    part = rng(5).beta(0.4, 0.4)
    np.testing.assert_allclose(images, part * x + (1 - part) * x[[3, 0, 1, 2]], rtol=1e-6)
    expected = part * np.eye(3)[y] + (1 - part) * np.eye(3)[y[[3, 0, 1, 2]]]
    np.testing.assert_allclose(chances, expected, rtol=1e-6)
    assert images.dtype == chances.dtype == np.float32


@pytest.mark.parametrize("seed", range(6))
def test_cutmix_takes_a_box_and_its_share_of_the_label(seed):
    x = np.arange(3, dtype=np.float32)[:, None, None, None] * np.ones((1, 2, 20, 30), np.float32)
    images, chances = CutMix(3)((x, np.arange(3)), rng(seed))
    for i in range(3):
        own = (images[i, 0] == i).mean()
        assert chances[i, i] == pytest.approx(own) and chances[i, i - 1] == pytest.approx(1 - own)
    assert set(np.unique(images)) <= {0, 1, 2} and (x[1] == 1).all()


def test_mixed_batches_train():
    data = TensorDataset(np.ones((8, 1, 4, 4), np.float32), np.arange(8) % 3)
    batches = data.batch(4).map(MixUp(3), seed=0)
    images, chances = batches[0]
    assert isinstance(images, gh.Tensor) and chances.shape == (4, 3)
    assert gh.nn.functional.cross_entropy(gh.zeros((4, 3)), chances).item() > 1
    np.testing.assert_array_equal(batches[0][1].numpy(), chances.numpy())


def test_a_part_is_erased():
    image = np.ones((3, 40, 50), np.float32)
    areas = []
    for seed in range(50):
        result = RandomErasing(1.0, scale=(0.1, 0.3), value=[0, 2, 3])(image, rng(seed))
        erased = result[0] == 0
        x1, y1, x2, y2 = box_of(erased)
        assert erased.sum() == (x2 - x1) * (y2 - y1)
        assert set(np.unique(result[1])) == {1, 2} and set(np.unique(result[2])) == {1, 3}
        areas.append(erased.mean())
        assert 0.25 < (y2 - y1) / (x2 - x1) < 4
    assert 0.08 < min(areas) < 0.14 and 0.25 < max(areas) < 0.32
    assert (image == 1).all()
    assert RandomErasing(0.0)(image, rng()) is image
    noise = RandomErasing(1.0, value="random")(image, rng())
    assert len(np.unique(noise)) > 20


BAD = [
    (lambda: Resize(8)({"picture": 1}), DTypeError, "'image'"),
    (lambda: Resize(8)(np.zeros((0, 4, 3), np.uint8)), ShapeError, "with pixels"),
    (lambda: Resize(8)({**sample(), "boxes": [[1, 2, 3]]}), ShapeError, r"boxes \(N, 4\)"),
    (lambda: Resize(8)({**sample(), "labels": [1]}), ShapeError, "1 for 2 boxes"),
    (lambda: RandomErasing(2.0), OptionError, "p"),
    (lambda: RandomErasing()(PIXELS, rng()), DTypeError, "ToArray"),
    (lambda: MixUp(0), OptionError, "num_classes"),
    (lambda: MixUp(3, alpha=0), OptionError, "alpha above 0"),
    (lambda: MixUp(3)(BATCH), OptionError, "seed=0"),
    (lambda: MixUp(3)((BATCH[0], [0, 3]), rng()), IndexOutOfRangeError, "0 to 2; got 3"),
    (lambda: CutMix(3)((BATCH[0][0], [0, 1]), rng()), ShapeError, "after batches"),
    (lambda: CutMix(3)(BATCH[0], rng()), DTypeError, "pairs"),
]
PIXELS = np.zeros((4, 4, 3), np.uint8)
BATCH = np.zeros((2, 1, 4, 4), np.float32), np.array([0, 1])


@pytest.mark.parametrize(("call", "error", "message"), BAD)
def test_errors_name_what_is_wrong(call, error, message):
    with pytest.raises(error, match=message):
        call()
