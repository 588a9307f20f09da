"""Scenes composed of stamps: what is in them, and files that cannot be read."""

import warnings

import numpy as np
import pytest
from app_samples import write_stamps
from PIL import Image

from glasshouse.apps.scenes import read_stamps, scenes
from glasshouse.base.errors import CheckpointError, Explained
from glasshouse.data import DataLoader

NAMES = ["bars", "disks"]


@pytest.fixture
def folder(tmp_path):
    """Four stamps and two backgrounds, one of each five held out."""
    write_stamps(tmp_path)
    for name in NAMES:  # more than the least, so that some may be missing
        for number in range(2, 5):
            first = tmp_path / f"stamps/{name}/0.png"
            first.with_name(f"{number}.png").write_bytes(first.read_bytes())
    return tmp_path


def two_epochs(data):
    loader = DataLoader(data, 4, collate_fn=list)
    return [[scene for batch in loader for scene in batch] for _ in range(2)]


@pytest.mark.parametrize("varied", [False, True])
def test_boxes_enclose_what_the_mask_shows(folder, varied):
    train, _ = read_stamps(folder, NAMES, "raise")
    for scene in scenes(train, 12, 48, 1, 0, varied):
        rows, columns = np.nonzero(scene["mask"])
        box = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
        np.testing.assert_array_equal(scene["boxes"], [box])
        assert set(scene["mask"].ravel()) == {0, scene["labels"][0] + 1}


def test_an_epoch_has_other_scenes_and_a_second_run_the_same(folder):
    train, _ = read_stamps(folder, NAMES, "raise")
    first, second = two_epochs(scenes(train, 4, 32, 2, seed=0))
    again, _ = two_epochs(scenes(train, 4, 32, 2, seed=0))
    assert any((x["image"] != y["image"]).any() for x, y in zip(first, second))
    for x, y in zip(first, again):
        np.testing.assert_array_equal(x["image"], y["image"])


def test_no_picture_is_in_both_halves(folder):
    for ending in ("_mirror", "_flip", "_64x48"):
        copy = folder / f"stamps/bars/0{ending}.png"
        copy.write_bytes((folder / "stamps/bars/0.png").read_bytes())
    parts = read_stamps(folder, NAMES, "raise")
    train, held_out = ({path for p in part for path, _ in p.samples} for part in parts)
    assert not train & held_out and len(train | held_out) == 12


@pytest.mark.parametrize("fault", ["missing", "empty", "cut", "nothing to be seen", "no width"])
def test_a_file_that_is_lost_in_an_epoch_is_named_or_left_out(folder, fault):
    names = {errors: read_stamps(folder, NAMES, errors)[0] for errors in ("raise", "skip")}
    path = folder / "stamps/bars/3.png"
    whole = path.read_bytes()
    if fault == "nothing to be seen":
        Image.new("RGBA", (9, 9)).save(path)
    else:
        header = whole[:16] + bytes(8) + whole[24:]
        path.write_bytes({"empty": b"", "no width": header}.get(fault, whole[: len(whole) // 2]))
    if fault == "missing":
        path.unlink()
    with pytest.raises(Explained, match=str(path)):
        list(scenes(names["raise"], 30, 16, 3, seed=0))
    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("always")
        assert len(list(scenes(names["skip"], 30, 16, 3, seed=0))) == 30
    assert len(messages) == 1 and str(path) in str(messages[0].message)


def test_a_class_without_pictures_is_named(folder):
    with pytest.raises(CheckpointError, match="two pictures or more in .*birds"):
        read_stamps(folder, ["bars", "birds"], "raise")
