"""Readers of COCO's and Pascal VOC's annotations; damaged files are named, or left out."""

import json
import warnings

import numpy as np
import pytest

from glasshouse.base.errors import CheckpointError, OptionError
from glasshouse.data import (
    CocoDetection,
    ImageCollate,
    ImageFolder,
    Resize,
    ToArray,
    VOCDetection,
    cifar,
    mnist,
    open_image,
    write_idx,
)

Image = pytest.importorskip("PIL.Image")


def picture(path, side=16):
    pixels = np.random.default_rng(side).integers(0, 256, (side, side + 4, 3), np.uint8)
    path.parent.mkdir(exist_ok=True)
    Image.fromarray(pixels).save(path, quality=95)
    return path


def halve(path):
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


# -- COCO ----------------------------------------------------------------------------------------


def coco(folder, change=lambda content: None):
    for name in ("a.jpg", "b.jpg"):
        picture(folder / name)
    polygon = [2, 3, 9, 3, 9, 8, 2, 8]
    content = {
        "images": [{"id": 7, "file_name": "a.jpg"}, {"id": 3, "file_name": "b.jpg"}],
        "categories": [{"id": 18, "name": "dog"}, {"id": 5, "name": "ant"}],
        "annotations": [
            {"image_id": 7, "category_id": 18, "bbox": [2, 3, 7, 5], "area": 30, "id": 1,
             "segmentation": [polygon]},
            {"image_id": 7, "category_id": 5, "bbox": [0, 0, 4, 4], "iscrowd": 1, "id": 2,
             "segmentation": {"counts": [1, 3, 316], "size": [16, 20]}},
        ],
    }  # fmt: skip
    change(content)
    (folder / "boxes.json").write_text(json.dumps(content))
    return folder, folder / "boxes.json"


def test_coco_has_boxes_as_corners_and_classes_by_id(tmp_path):
    data = CocoDetection(*coco(tmp_path))
    assert data.classes == ["ant", "dog"] and len(data) == 2
    first, second = data[0], data[1]
    assert first["boxes"].tolist() == [[2, 3, 9, 8], [0, 0, 4, 4]]
    assert first["labels"].tolist() == [1, 0] and first["crowd"].tolist() == [False, True]
    assert first["area"].tolist() == [30, 16] and first["image"].size == (20, 16)
    assert second["boxes"].shape == (0, 4) and second["labels"].dtype == np.int64
    assert repr(data) == "CocoDetection(2 images, 2 classes)"


def test_coco_has_the_pixels_of_polygons_and_run_lengths(tmp_path):
    data = CocoDetection(*coco(tmp_path), masks=True)
    masks = data[0]["masks"]
    assert masks.shape == (2, 16, 20) and masks[0, 3:9, 2:10].all() and masks[0].sum() == 48
    assert masks[1, 1:4, 0].all() and masks[1].sum() == 3
    assert data[1]["masks"].shape == (0, 16, 20)


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_masks_of_coco_are_pycocotools(tmp_path):
    mask = pytest.importorskip("pycocotools.mask")
    counts = {"counts": [5, 40, 100, 17, 158], "size": [16, 20]}
    from glasshouse.data.objects import mask_of

    expected = mask.decode(mask.frPyObjects(counts, 16, 20))
    np.testing.assert_array_equal(mask_of("", counts, (20, 16)), expected)


def edit(place, **changes):
    return lambda content: content["annotations"][place].update(changes)


COCO_FAULTS = {
    "image": (edit(1, image_id=9), r"image_id 9 at .*boxes.json, annotations\[1\]"),
    "category": (edit(0, category_id=4), r"category_id 4 at .*annotations\[0\]"),
    "flat": (edit(0, bbox=[1, 1, 0, 4]), r"an area; got .* at .*annotations\[0\]"),
    "nan": (edit(0, bbox=[1, 1, float("nan"), 4]), r"an area; got .* at .*annotations\[0\]"),
    "three": (edit(0, bbox=[1, 1, 4]), r"four numbers; got .* at .*annotations\[0\]"),
    "none": (lambda content: content["annotations"][1].pop("bbox"), r"KeyError 'bbox' at .*\[1\]"),
}


@pytest.mark.parametrize("name", COCO_FAULTS)
def test_faults_of_coco_are_named_or_left_out(tmp_path, name):
    change, message = COCO_FAULTS[name]
    files = coco(tmp_path, change)
    with pytest.raises(CheckpointError, match=message):
        CocoDetection(*files)
    with pytest.warns(UserWarning, match=message):
        data = CocoDetection(*files, errors="skip")
    assert len(data) == 2 and len(data[0]["boxes"]) == 1


def test_files_that_are_not_cocos(tmp_path):
    root, file = coco(tmp_path, lambda content: content.pop("categories"))
    with pytest.raises(CheckpointError, match=r"boxes.json without categories"):
        CocoDetection(root, file)
    _, file = coco(tmp_path, lambda content: content["images"][1].pop("id"))
    with pytest.raises(CheckpointError, match=r"boxes.json, images\[1\] without id"):
        CocoDetection(root, file)
    halve(file)
    with pytest.raises(CheckpointError, match="boxes.json: "):
        CocoDetection(root, file)
    with pytest.raises(CheckpointError, match="nothing.json"):
        CocoDetection(root, tmp_path / "nothing.json")


# -- Pascal VOC ----------------------------------------------------------------------------------

BOX = "<bndbox><xmin>2</xmin><ymin>3</ymin><xmax>{}</xmax><ymax>8</ymax></bndbox>"


def voc(folder, x2="9", name="cat"):
    picture(folder / "images" / "one.jpg")
    picture(folder / "images" / "two.jpg")
    notes = folder / "notes"
    notes.mkdir(exist_ok=True)
    other = "<object><name>bird</name><difficult>1</difficult>" + BOX.format(5) + "</object>"
    thing = f"<object><name>{name}</name>" + BOX.format(x2) + "</object>"
    text = "<annotation><filename>{}.jpg</filename>{}</annotation>"
    (notes / "one.xml").write_text(text.format("one", other + thing))
    (notes / "two.xml").write_text(text.format("two", ""))
    return notes, folder / "images"


def test_voc_has_boxes_and_classes_by_name(tmp_path):
    files = voc(tmp_path)
    data = VOCDetection(*files)
    assert data.classes == ["bird", "cat"] and len(data) == 2
    first = data[0]
    assert first["boxes"].tolist() == [[2, 3, 5, 8], [2, 3, 9, 8]]
    assert first["labels"].tolist() == [0, 1] and first["difficult"].tolist() == [True, False]
    assert data[1]["boxes"].shape == (0, 4)
    assert VOCDetection(*files, classes=["cat", "bird"])[0]["labels"].tolist() == [1, 0]
    (tmp_path / "train.txt").write_text("two\n")
    assert len(VOCDetection(*files, names=tmp_path / "train.txt")) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"x2": "1"}, "an area; got .* at .*one.xml, object 1"),
        ({"x2": "wide"}, "bndbox with .* at .*one.xml, object 1"),
        ({"name": "crocodile"}, "class among .*got 'crocodile' at .*one.xml, object 1"),
    ],
)
def test_faults_of_voc_are_named_or_left_out(tmp_path, options, message):
    files = voc(tmp_path, **options)
    with pytest.raises(CheckpointError, match=message):
        VOCDetection(*files, classes=["bird", "cat"])
    with pytest.warns(UserWarning, match=message):
        data = VOCDetection(*files, classes=["bird", "cat"], errors="skip")
    assert len(data[0]["boxes"]) == 1


def test_files_that_are_not_vocs(tmp_path):
    notes, images = voc(tmp_path)
    halve(notes / "one.xml")
    with pytest.raises(CheckpointError, match="one.xml"):
        VOCDetection(notes, images)
    with pytest.warns(UserWarning, match="one.xml"):
        assert len(VOCDetection(notes, images, errors="skip")) == 1
    with pytest.raises(OptionError, match="folder of XML files"):
        VOCDetection(images, notes)
    with pytest.raises(CheckpointError, match="three.xml"):
        VOCDetection(notes, images, names=["three"])


# -- damaged images ------------------------------------------------------------------------------


def folder_of_images(folder, damage):
    for name in ("0.jpg", "1.jpg", "2.jpg"):
        picture(folder / "cat" / name)
    damage(folder / "cat" / "1.jpg")
    return folder


DAMAGES = {
    "half of it": (halve, "damaged|undamaged"),
    "no bytes": (lambda path: path.write_bytes(b""), "an image file"),
    "text": (lambda path: path.write_text("no image"), "an image file"),
}


@pytest.mark.parametrize("name", DAMAGES)
@pytest.mark.parametrize("reader", [Resize(8), ToArray(), ImageCollate().__call__])
def test_damaged_images_are_named_where_pixels_are_read(tmp_path, name, reader):
    damage, message = DAMAGES[name]
    data = ImageFolder(folder_of_images(tmp_path, damage))
    data[0][0].load()
    with pytest.raises((CheckpointError, OptionError), match=message) as raised:
        image = data[1][0]
        reader([image]) if not isinstance(reader, (Resize, ToArray)) else reader(image)
    assert "1.jpg" in str(raised.value)


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_images_are_left_out_if_asked_for(tmp_path, name):
    data = ImageFolder(folder_of_images(tmp_path, DAMAGES[name][0]), errors="skip")
    with pytest.warns(UserWarning, match="1.jpg"):
        image = data[1][0]
    assert image.filename.endswith("2.jpg")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # named once
        assert [sample[0].filename[-5:] for sample in data] == ["0.jpg", "2.jpg", "2.jpg"]


def test_a_file_missing_in_the_middle_of_an_epoch(tmp_path):
    root = folder_of_images(tmp_path, lambda path: None)
    strict, lenient = ImageFolder(root), ImageFolder(root, errors="skip")
    (root / "cat" / "2.jpg").unlink()
    with pytest.raises(CheckpointError, match="2.jpg"):
        strict[2]
    with pytest.warns(UserWarning, match="2.jpg"):
        assert lenient[2][0].filename.endswith("0.jpg")
    for name in ("0.jpg", "1.jpg"):
        (root / "cat" / name).unlink()
    with pytest.warns(UserWarning), pytest.raises(CheckpointError, match="can be read"):
        lenient[0]


def test_images_of_coco_and_voc_are_left_out_if_asked_for(tmp_path):
    for data in (CocoDetection(*coco(tmp_path), errors="skip"),
                 VOCDetection(*voc(tmp_path), errors="skip")):  # fmt: skip
        halve(data.path(0))
        with pytest.warns(UserWarning, match=data.path(0).name):
            assert len(data[0]["boxes"]) == 0  # that is the second one


def test_a_damaged_png_is_named(tmp_path):
    path = picture(tmp_path / "x.png", 64)
    halve(path)
    with pytest.raises((CheckpointError, OptionError), match="x.png"):
        ToArray()(open_image(path))


# -- labels of well-known files ------------------------------------------------------------------


def test_labels_outside_of_their_range_are_named(tmp_path):
    rows = np.zeros((3, 3073), np.uint8)
    rows[2, 0] = 10
    for number in range(1, 6):
        (tmp_path / f"data_batch_{number}.bin").write_bytes(rows.tobytes())
    with pytest.raises(CheckpointError, match=r"below 10; got 10 at sample 2 of .*data_batch_1"):
        cifar(tmp_path)
    write_idx(tmp_path / "train-images-idx3-ubyte", np.zeros((4, 28, 28), np.uint8))
    write_idx(tmp_path / "train-labels-idx1-ubyte", np.array([0, 11, 2, 3], np.uint8))
    with pytest.raises(CheckpointError, match=r"got 11 at sample 1 of .*train-labels"):
        mnist(tmp_path)
    write_idx(tmp_path / "train-labels-idx1-ubyte", np.zeros(3, np.uint8))
    with pytest.raises(CheckpointError, match="4 images and 3 labels"):
        mnist(tmp_path)
