"""Pictures that `glasshouse detect` draws, and photographs of trees."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from app_samples import SAMPLES
from click.testing import CliRunner
from PIL import Image

import glasshouse as gh
from glasshouse.apps import find_app
from glasshouse.apps.detect import BoxPrecision, loss_of
from glasshouse.apps.trees import read_trees, shares
from glasshouse.base.errors import CheckpointError, OptionError
from glasshouse.cli.main import main

TREE = """<annotation><filename>{name}.tif</filename>
<object><name>Alive</name><bndbox><xmin>20</xmin><ymin>30</ymin><xmax>60</xmax><ymax>70</ymax>
</bndbox></object></annotation>"""


def write_trees(folder):
    """Three photographs of a tree, whose annotations name another ending."""
    (folder / "trees").mkdir()
    pixels = np.zeros((130, 120, 3), np.uint8)
    pixels[30:70, 20:60] = 200
    for name in ("a", "b", "OSBS_029"):
        Image.fromarray(pixels).save(folder / f"trees/{name}.png")
        (folder / f"trees/{name}.xml").write_text(TREE.format(name=name))


@pytest.fixture
def trees(tmp_path):
    """(folder of photographs, recipe)."""
    write_trees(tmp_path)
    sizes = {"side": 128, "width": 4, "channels": 8, "depth": 1, "scenes": 16, "batch_size": 4}
    return tmp_path, replace(find_app("detect").recipe, dataset="trees", **sizes)


def test_boxes_of_trees_follow_the_tiles(trees):
    train, tiles, whole, assets = read_trees(trees[1], trees[0])
    assert assets["classes"] == ["tree"] and len(tiles) == 4 and len(whole) == 1
    np.testing.assert_allclose(tiles[0]["boxes"], [[25.6, 38.4, 76.8, 89.6]], rtol=1e-5)
    for sample in [train[i] for i in range(8)]:
        pixels = np.asarray(sample["image"]).mean(axis=2)
        for left, top, right, bottom in sample["boxes"].round().astype(int):
            assert pixels[top + 1 : bottom - 1, left + 1 : right - 1].mean() > 0.6 * pixels.max()


def test_a_photograph_that_is_lost_or_damaged_is_named_or_left_out(trees):
    folder, recipe = trees
    path = folder / "trees/b.png"
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises((CheckpointError, OptionError), match="b.png"):
        read_trees(recipe, folder)
    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("always")
        read_trees(replace(recipe, errors="skip"), folder)
    assert "b.png" in str(messages[0].message)
    with pytest.raises(OptionError, match="one of OSBS_029, a, b; got c"):
        read_trees(replace(recipe, held_out_photograph="c", errors="skip"), folder)


def test_the_numbers_of_trees_are_of_the_whole_photograph(trees, tmp_path):
    app = find_app("detect")
    training = app.prepare(trees[1], trees[0])
    numbers = app.report(trees[1], replace(training, model=training.model.eval()), tmp_path)
    assert {"precision", "recall"} <= set(numbers)
    assert numbers["pictures"] == 1 and 0 <= numbers["map_50"] <= 1
    with Image.open(tmp_path / "boxes.png") as sheet:
        assert sheet.width > 3 * 120


def test_perfect_outputs_have_precision_one_and_a_small_loss(trees):
    training = find_app("detect").prepare(trees[1], trees[0])
    model, (images, target) = training.model, next(iter(training.validation))
    count = model(images)["boxes"].shape[1]
    goals = target[:, :count]
    sure = 20.0 * (2 * (goals[..., :1] >= 0).astype("float32") - 1)
    outputs = {"cls_logits": sure, "boxes": goals[..., 1:5], "bbox_ctrness": sure}
    precision = BoxPrecision(128, len(images))
    precision.update(outputs, target)
    assert precision.value() == pytest.approx(1)
    assert loss_of(model, outputs, target).item() > 0  # middles are not all at 1
    outputs = {**outputs, "boxes": outputs["boxes"] + 80.0}
    precision.reset()
    precision.update(outputs, target)
    assert precision.value() < 0.5


def test_a_photograph_that_is_skipped_is_not_replaced_by_the_one_held_out(trees):
    folder, recipe = trees
    Image.new("RGB", (120, 130), (255, 0, 0)).save(folder / "trees/b.png")
    recipe = replace(recipe, errors="skip", held_out_photograph="b")
    (folder / "trees/a.png").write_bytes(b"")
    with pytest.warns(UserWarning, match="a.png"):
        train, tiles, _, _ = read_trees(recipe, folder)
    brightest = [np.asarray(x["image"]).max(axis=(0, 1)) for x in (*train, *tiles)]
    red = [x[0] > 0 and x[1] == 0 for x in brightest]
    assert red == [False] * len(train) + [True] * len(tiles)


def test_each_tree_is_counted_once():
    trees = np.array([[0, 0, 10, 10], [20, 0, 30, 10.0]])
    boxes = np.array([[0, 0, 10, 9], [0, 0, 10, 10], [20, 8, 30, 18], [21, 0, 31, 10.0]])
    assert shares(boxes, trees) == {"precision": 0.5, "recall": 1.0}
    assert shares(boxes[:0], trees) == {"precision": 0.0, "recall": 0.0}


def test_targets_have_one_shape(trees):
    training = find_app("detect").prepare(trees[1], trees[0])
    shapes = {target.shape[1:] for _, target in training.data}
    assert len(shapes) == 1


@pytest.mark.slow
def test_the_command_draws_boxes_in_a_picture_of_any_size(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    settings = SAMPLES["detect"](data)
    options = [f"--{key.replace('_', '-')}={value}" for key, value in settings.items()]
    run = tmp_path / "run"
    words = ["train", "detect", f"--data={data}", f"--out={run}", "--epochs=1", *options]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    picture, out = tmp_path / "picture.jpg", tmp_path / "drawn.png"
    Image.new("L", (150, 90), 128).save(picture)
    words = ["detect", str(picture), f"--model={run}", f"--out={out}", "--score=0"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert lines[0].split()[1] in ("disks", "bars") and lines[-1] == f"In {out}"
    with Image.open(out) as result:
        assert result.size == (150, 90)
    words[3] = f"--out={tmp_path / 'drawn.nothing'}"
    assert CliRunner().invoke(main, words).exit_code == 2
    picture.write_bytes(b"no picture")
    done = CliRunner().invoke(main, words[:3])
    assert done.exit_code == 2 and "an image file" in done.output
    done = CliRunner().invoke(main, ["detect", str(out), f"--model={tmp_path / 'none'}"])
    assert done.exit_code == 1 and "glasshouse train detect" in done.output


def test_one_class_is_drawn_for_each_thing():
    boxes = np.array([[0, 0, 9, 9], [0, 0, 9, 8], [20, 0, 29, 9], [0, 20, 9, 29]], np.float32)
    best = {"boxes": boxes, "scores": np.array([0.9, 0.8, 0.5, 0.2]), "labels": np.arange(4)}
    assert find_app("detect").distinct(best, 0.3)["labels"].tolist() == [0, 2]


def test_outputs_without_boxes_have_no_precision():
    precision = BoxPrecision(64, 4)
    places = 64 + 16 + 4 + 1 + 1
    outputs = {"cls_logits": gh.full((1, places, 2), -9.0), "boxes": gh.zeros((1, places, 4)),
               "bbox_ctrness": gh.zeros((1, places, 1))}  # fmt: skip
    precision.update(outputs, gh.full((1, places + 3, 6), -1.0))
    assert np.isnan(precision.value())
