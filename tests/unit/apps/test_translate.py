"""The application `translate` on generated files: readers, training, results, PyTorch's losses."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console

from glasshouse.apps import load_app, train_app
from glasshouse.apps.descriptions import paragraphs
from glasshouse.apps.translate import (
    Translation,
    read_pairs,
)
from glasshouse.base.errors import CheckpointError
from glasshouse.cli.main import main

WORDS = {"red": "rosso", "free": "libero", "small": "piccolo", "old": "vecchio", "new": "nuovo",
         "fast": "veloce", "simple": "semplice", "light": "leggero"}  # fmt: skip
THINGS = {"tool": "strumento", "game": "gioco", "editor": "editore", "server": "servente"}
SMALL = {"epochs": 1, "dim": 64, "layers": 1, "vocab": 300, "batch_size": 16, "length": 32,
         "reported": 20, "dropout": 0.0, "lr": 3e-3}  # fmt: skip


def sentence(draw):
    """A description and its translation, whose words stand in another order."""
    a, b, c = draw.choice(list(WORDS), 3, replace=False)
    thing = draw.choice(list(THINGS))
    return f"a {a} {b} {c} {thing}", f"un {THINGS[thing]} {WORDS[a]} {WORDS[b]} {WORDS[c]}"


def write_lists(folder, count=250):
    """Packages, Translation-en and Translation-it, as apt keeps them."""
    draw = np.random.default_rng(0)
    lists = {"Packages": [], "Translation-en": [], "Translation-it": []}
    for i in range(count):
        pairs = [sentence(draw) for _ in range(3)]
        head = f"Package: p{i}\n"
        digest = f"Description-md5: {i:032x}\n"
        lists["Packages"].append(f"{head}Source: s{i} (1.0)\n{digest}")
        for language, side in (("en", 0), ("it", 1)):
            first, *rest = (pair[side] for pair in pairs)
            text = "\n .\n".join(f" {part}" for part in rest)
            lists[f"Translation-{language}"].append(
                f"{head}{digest}Description-{language}: {first}\n{text}\n"
            )
    for name, blocks in lists.items():
        (folder / name).write_text("\n".join(blocks), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    pytest.importorskip("tokenizers")
    pytest.importorskip("sacrebleu")
    return write_lists(tmp_path_factory.mktemp("lists"))


def test_pairs_of_one_source_are_in_one_part_and_templates_in_one(folder):
    train, held_out = read_pairs(folder)
    assert set(held_out).isdisjoint(train)
    assert all(len(pair) == 2 for pair in train)
    assert len(train) > 400 and len(held_out) > 5


def test_words_with_digits_or_capitals_do_not_make_a_template(tmp_path):
    write_lists(tmp_path, 100)
    for language, text in (("en", "built from the X{} module"), ("it", "fatto dal modulo X{}")):
        path = tmp_path / f"Translation-{language}"
        blocks = path.read_text().split("\n\n")
        blocks = [f"{block.rstrip()}\n .\n {text.format(i)}" for i, block in enumerate(blocks)]
        path.write_text("\n\n".join(blocks) + "\n")
    train, held_out = read_pairs(tmp_path)
    assert sum("built from" in text for text, _ in train) > 90
    assert not any("built from" in text for text, _ in held_out)


def test_paragraphs_are_joined_lines():
    lines = ["title", "one", "two", ".", "three", "four"]
    assert paragraphs(lines) == ["title", "one two", "three four"]
    assert paragraphs([]) == []


def test_a_folder_whose_parts_are_empty(tmp_path):
    for name in ("Packages", "Translation-en", "Translation-it"):
        (tmp_path / name).write_text("")
    with pytest.raises(CheckpointError, match="pairs of texts"):
        read_pairs(tmp_path)


def test_aligned_lines_are_read(tmp_path):
    for part in ("train", "test"):
        (tmp_path / f"{part}.en").write_text("one\ntwo\n")
        (tmp_path / f"{part}.it").write_text("uno\ndue\n")
    assert read_pairs(tmp_path) == ([("one", "uno"), ("two", "due")],) * 2
    (tmp_path / "test.it").write_text("uno\n")
    with pytest.raises(CheckpointError, match=r"as many lines in test.en and test.it"):
        read_pairs(tmp_path)


@pytest.mark.parametrize("name", ["Packages", "Translation-en", "Translation-it"])
@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00"])
def test_lists_that_are_missing_or_no_text(tmp_path, name, content):
    write_lists(tmp_path, 4)
    path = tmp_path / name
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(CheckpointError) as caught:
        read_pairs(tmp_path)
    assert name in str(caught.value)


@pytest.mark.slow
def test_a_run_writes_translations_and_a_picture(folder, tmp_path):
    console = Console(quiet=True)
    numbers = train_app(Translation(), {**SMALL, "epochs": 12}, folder, tmp_path, False, console)
    assert numbers["BLEU"] > 20
    names = {path.name for path in tmp_path.iterdir()}
    assert {"translations.txt", "numbers.json", "curves.png", "attention.png"} <= names
    recipe, assets, model = load_app(Translation(), tmp_path)
    texts = ["a red old game", "", "a " * 200]
    translate = Translation().translate
    results = translate(texts, recipe, assets, model)
    assert len(results) == 3
    alone = [translate([text], recipe, assets, model)[0] for text in texts]
    assert results == alone
    assert json.loads((tmp_path / "app.json").read_text())["app"] == "translate"


@pytest.mark.slow
def test_the_command_translates(folder, tmp_path):
    data = ["--data", str(folder), "--out", str(tmp_path)]
    options = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
    done = CliRunner().invoke(main, ["train", "translate", *data, *options])
    assert done.exit_code == 0, done.output
    done = CliRunner().invoke(
        main, ["translate", "a red old game", "a tool", "--out", str(tmp_path)]
    )
    assert done.exit_code == 0 and len(done.output.splitlines()) == 2
    lost = CliRunner().invoke(main, ["translate", "a", "--out", str(tmp_path / "none")])
    assert lost.exit_code == 1 and "glasshouse train translate" in lost.output
