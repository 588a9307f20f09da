"""Recognition of speech: texts of prompts, broken recordings, transcripts by the command."""

import gzip
import io
from dataclasses import replace

import numpy as np
import pytest
from app_samples import spoken, write_prompts, write_sound
from click.testing import CliRunner
from rich.console import Console

import glasshouse as gh
from glasshouse.apps import find_app, train_app
from glasshouse.apps.asr import LetterErrorRate, read_scores
from glasshouse.apps.prompts import LANGUAGES, TOKENS, read_prompts, sentences_of, split_prompts
from glasshouse.apps.sources import data_sources
from glasshouse.base.errors import CheckpointError
from glasshouse.cli.main import main


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("Login incorrect.  Try again!", ["login incorrect", "try again"]),
        ("press * or #, then 7", ["press star or pound then seven"]),
        ("It is 5 A.M.", ["it is five a m"]),
        ('a "don\'t call" menu: now', ["a don't call menu", "now"]),
        ("at [@]", ["at"]),
        ("(2 seconds of silence)", []),
        ("Dial 500", []),
        ("H.323", []),
        ("3D audio", []),
    ],
)
def test_texts_are_what_is_said_in_letters(text, sentences):
    assert sentences_of(text) == sentences


def test_no_sentence_is_in_both_halves():
    rng = np.random.default_rng(0)
    prompts = [(None, rng.choice(200, rng.integers(1, 4)).astype(str).tolist()) for _ in range(99)]
    train, held_out = split_prompts(prompts)
    assert train and held_out and len(train) + len(held_out) == len(prompts)
    assert not {x for _, said in train for x in said} & {x for _, said in held_out for x in said}


def test_held_out_prompts_choose_nothing(tmp_path):
    app = find_app("asr")
    training = app.prepare(replace(app.recipe, **write_prompts(tmp_path)), tmp_path)
    held_out, choices, texts = training.held_out
    sets = [{text for _, text in held_out}, {text for _, text in choices}, set(texts)]
    assert all(sets) and len(set.union(*sets)) == sum(map(len, sets)) == 32
    assert len(training.validation.dataset) == len(choices)


def cut(path):
    path.write_bytes(path.read_bytes()[:500])


def with_nan(path):
    rate = (8000).to_bytes(4, "little") + (32000).to_bytes(4, "little")
    head = b"fmt " + (16).to_bytes(4, "little") + b"\x03\0\x01\0" + rate + b"\x04\0\x20\0"
    samples = np.full(800, np.nan, "<f4").tobytes()
    body = b"WAVE" + head + b"data" + len(samples).to_bytes(4, "little") + samples
    path.write_bytes(b"RIFF" + len(body).to_bytes(4, "little") + body)


def without_text(path):
    texts = path.parent / "core-sounds-en.txt.gz"
    lines = gzip.decompress(texts.read_bytes()).decode()
    texts.write_bytes(gzip.compress(lines.replace("dad: Dad.", "dad: ").encode()))


@pytest.mark.parametrize("damage", [cut, with_nan, without_text, lambda path: path.unlink()])
def test_what_is_broken_is_named_or_skipped(tmp_path, damage):
    if damage is with_nan:
        pytest.importorskip("soundfile")
    write_prompts(tmp_path)
    damage(tmp_path / "dad.wav")
    with pytest.raises(CheckpointError, match=r"dad\.wav"):
        read_prompts(tmp_path, "raise")
    prompts, skipped = read_prompts(tmp_path, "skip")
    assert len(prompts) == 31 and list(skipped) == ["dad"] and "dad.wav" in skipped["dad"]


def test_a_text_that_is_no_archive_is_named(tmp_path):
    write_prompts(tmp_path)
    (tmp_path / "core-sounds-en.txt.gz").write_bytes(b"activated: Activated.")
    with pytest.raises(CheckpointError, match=r"core-sounds-en\.txt\.gz to be a text"):
        read_prompts(tmp_path, "skip")


def test_the_letter_error_rate_is_the_edit_distance():
    rng = np.random.default_rng(0)
    meter, exact = LetterErrorRate(), gh.metrics.EditDistance()
    for _ in range(5):
        scores = rng.normal(size=(2, 9, 4)).astype(np.float32)
        targets = np.array([[1, 2, 3, 1, 0], [2, 2, 0, 0, 0]])
        meter.update(gh.asarray(scores), gh.asarray(targets))
        for path, target in zip(scores.argmax(-1), targets):
            kept = [x for x, last in zip(path, [0, *path]) if x not in (0, last)]
            exact.update(kept, target[target > 0].tolist())
    assert meter.value() == exact.value()


def test_padding_does_not_change_the_scores():
    app = find_app("asr")
    gh.random.seed(0)
    model = app.make_model(app.recipe, {}).eval()
    features = np.random.default_rng(0).normal(size=(1, 96, 40)).astype(np.float32)
    lengths = gh.asarray(np.array([70]))
    with gh.no_grad():
        long, short = (model(gh.asarray(features[:, :n] * (np.arange(n) < 70)[:, None]), lengths)
                       for n in (96, 72))  # fmt: skip
    np.testing.assert_allclose(long.numpy()[:, :24], short.numpy(), atol=1e-5)
    assert (long.numpy()[:, 24:].argmax(-1) == 0).all()


def test_repeats_are_merged_and_spaces_are_single():
    path = [0, 3, 3, 0, 3, 1, 1, 0, 1, 4, 0]
    assert read_scores(np.eye(len(TOKENS))[path], None) == "aa b"


@pytest.mark.slow
def test_the_command_transcribes_at_any_rate(tmp_path):
    data, run = tmp_path / "data", tmp_path / "run"
    data.mkdir()
    settings = write_prompts(data) | {"epochs": 60, "lr": 0.02}
    numbers = train_app(find_app("asr"), settings, data, run, False, Console(file=io.StringIO()))
    assert {"words.arpa", "transcripts.txt", "alignment.png"} <= {x.name for x in run.iterdir()}
    assert 0 <= numbers["beam letters"] <= 1.5 and numbers["prompts"] == 5
    write_sound(tmp_path / "x.wav", spoken(" head ", 16000), 16000)
    words = ["transcribe", str(tmp_path / "x.wav"), "--model", str(run)]
    beam, greedy = (CliRunner().invoke(main, [*words, *more]) for more in ([], ["--greedy"]))
    assert beam.exit_code == greedy.exit_code == 0, beam.output
    assert beam.output.strip() == "head", (beam.output, greedy.output)
    write_sound(tmp_path / "short.wav", np.zeros(5))
    short = CliRunner().invoke(main, ["transcribe", str(tmp_path / "short.wav"), f"--model={run}"])
    assert short.exit_code == 0, short.output
    for name in ("words.arpa", "weights.json"):
        (run / name).unlink()
        lost = CliRunner().invoke(main, words)
        assert lost.exit_code == 1 and name in lost.output
    cut(tmp_path / "x.wav")
    broken = CliRunner().invoke(main, words)
    assert broken.exit_code == 1


def test_other_languages_have_data_of_their_own_in_the_same_letters(tmp_path):
    app = find_app("asr")
    assert app.data_for({}) == "asr" and app.data_for({"dataset": "ru"}) == "asr-ru"
    assert {app.data_for({"dataset": x}) for x in LANGUAGES} <= set(data_sources())
    assert sentences_of("Нажмите цифру, затем #.", "ru") == []
    assert sentences_of("Appuyez, s’il vous plaît. Cœur", "fr") == [
        "appuyez s'il vous plait", "coeur"
    ]  # fmt: skip


def test_dialogues_of_the_game_are_prompts(tmp_path):
    (tmp_path / "script/city").mkdir(parents=True)
    (tmp_path / "sound/city/cs").mkdir(parents=True)
    lines = []
    for number in range(9):
        text = "á".join("abcdefghi"[: number + 1])
        lines.append(f'dialogId("x{number}", "font_small", "what")\ndialogStr("{text}")')
        write_sound(tmp_path / f"sound/city/cs/x{number}.wav", np.ones(4000) / 9)
    (tmp_path / "script/city/dialogs_cs.lua").write_text("\n".join(lines))
    prompts, skipped = read_prompts(tmp_path, "raise", "cs")
    assert [x for _, x in prompts[:3]] == [["a"], ["aab"], ["aabac"]] and not skipped
