"""Readers on files of their formats; broken files are named, or skipped."""

import gzip
import wave

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import speech

rng = np.random.default_rng(0)


def write_wav(path, x, width=2, rate=8000, channels=1):
    """PCM of a waveform in [-1, 1)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = np.round(np.asarray(x) * 2 ** (8 * width - 1)).astype(np.int64)
    data = (whole + 128).astype(np.uint8).tobytes() if width == 1 else b""
    if width > 1:
        data = whole.astype("<i8").view(np.uint8).reshape(-1, 8)[:, :width].tobytes()
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(data)
    return path


@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize("channels", [1, 2])
def test_waves_of_each_width(tmp_path, width, channels):
    x = rng.uniform(-0.9, 0.9, size=(50, channels))
    path = write_wav(tmp_path / "a.wav", x.reshape(-1), width, 16000, channels)
    got, rate = speech.read_sound(path)
    assert rate == 16000 and got.dtype == np.float32
    np.testing.assert_allclose(got, x.mean(1), atol=2.0 ** (1 - 8 * width) + 1e-6)


@pytest.mark.parametrize("ending", ["flac", "ogg", "wav"])
def test_other_files_go_through_soundfile(tmp_path, ending):
    soundfile = pytest.importorskip("soundfile")
    x = np.sin(np.arange(4000) / 9) * 0.5
    path = tmp_path / f"a.{ending}"
    soundfile.write(path, x, 8000, subtype="FLOAT" if ending == "wav" else None)
    got, rate = speech.read_sound(path)
    assert rate == 8000
    np.testing.assert_allclose(got, x, atol=0.05 if ending == "ogg" else 1e-4)


def truncated(path):
    path.write_bytes(path.read_bytes()[:-30])


def with_nan(path):
    soundfile = pytest.importorskip("soundfile")
    x = np.zeros(90, np.float32)
    x[17] = np.nan
    soundfile.write(path, x, 8000, subtype="FLOAT")


BROKEN = {
    "truncated": (truncated, "100 samples in .*; got 85: the file is cut off"),
    "missing": (lambda path: path.unlink(), "expected a file"),
    "no wav": (lambda path: path.write_bytes(b"hello, here is no sound"), "to be a wav file"),
    "no bytes": (lambda path: path.write_bytes(b""), "to be a wav file"),
    "NaN": (with_nan, "nan.* at sample 17"),
    "no samples": (lambda path: write_wav(path, []), "samples in .*; got none"),
    "header cut": (lambda path: path.write_bytes(path.read_bytes()[:20]), "to be a wav file"),
}


@pytest.fixture
def folder(tmp_path):
    for name in "abc":
        write_wav(tmp_path / f"{name}.wav", rng.uniform(-0.5, 0.5, 100))
    lines = [f"{name} {name}.wav 12.5 text of {name}" for name in "abc"]
    (tmp_path / "list.txt").write_text("\n".join([*lines, ""]))
    return tmp_path


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_named_or_skipped(folder, name):
    change, message = BROKEN[name]
    change(folder / "b.wav")
    rows = speech.read_list(folder / "list.txt")
    with pytest.raises(gh.CheckpointError, match=message) as caught:
        speech.SpeechDataset(rows)[1]
    assert "b.wav" in str(caught.value)
    skipping = speech.SpeechDataset(rows, errors="skip")
    assert [skipping[i][1] for i in range(3)] == ["text of a", "text of c", "text of c"]
    assert list(skipping.skipped) == ["b"] and "b.wav" in skipping.skipped["b"]


def test_an_empty_text_is_named_or_skipped(folder):
    rows = speech.read_list(folder / "list.txt")
    rows[0] = speech.Utterance("a", rows[0].path, " ")
    with pytest.raises(gh.CheckpointError, match=r"a text of a \(.*a.wav\)"):
        speech.SpeechDataset(rows)[0]
    assert speech.SpeechDataset(rows, errors="skip")[0][1] == "text of b"
    with pytest.raises(gh.CheckpointError, match="none of 1. The first: .*text of a"):
        speech.SpeechDataset(rows[:1], errors="skip")[0]


def test_recordings_are_brought_to_one_rate(folder):
    x, text = speech.SpeechDataset(speech.read_list(folder / "list.txt"), 16000)[2]
    assert x.shape == (200,) and x.dtype == np.float32 and text == "text of c"


def test_librispeech(tmp_path):
    chapter = tmp_path / "19" / "198"
    write_wav(chapter / "19-198-0001.wav", [0.1])
    (chapter / "19-198.trans.txt").write_text("19-198-0000 NORTHANGER ABBEY\n19-198-0001 THIS\n")
    rows = speech.read_librispeech(tmp_path)
    assert [(r.id, r.path.name, r.text) for r in rows] == [
        ("19-198-0000", "19-198-0000.wav", "NORTHANGER ABBEY"),
        ("19-198-0001", "19-198-0001.wav", "THIS"),
    ]


def test_prompts_of_asterisk(tmp_path):
    for name in ("activated", "digits/1", "beep"):
        write_wav(tmp_path / f"{name}.wav", [0.1])
    lines = ["; Sounds: in English", "", "activated: Activated.", "digits/1: one"]
    lines += ["beep: [a simple beep]", "gone: not there"]
    texts = tmp_path / "core.txt.gz"
    texts.write_bytes(gzip.compress("\n".join(lines).encode()))
    rows = speech.read_asterisk(tmp_path, texts)
    assert [(r.id, r.text) for r in rows] == [("activated", "Activated."), ("digits/1", "one")]


def test_dialogues_of_fillets(tmp_path):
    script = tmp_path / "script" / "city"
    script.mkdir(parents=True)
    (script / "dialogs_nl.lua").write_text(
        '\ndialogId("vit-a", "font_statue", "Welcome (to us).")\ndialogStr("Welkom \\"hier\\".")\n'
        '\ndialogId("vit-b", "font_big", "Only English.")\n\n'
        'dialogId("vit-c", "font_big", "x")\ndialogStr("y")\n'
    )
    for name in ("vit-a", "vit-b"):
        write_wav(tmp_path / "sound" / "city" / "nl" / f"{name}.wav", [0.1])
    rows = speech.read_fillets(tmp_path, "nl")
    assert [(r.id, r.text) for r in rows] == [
        ("city/vit-a", 'Welkom "hier".'),
        ("city/vit-b", "Only English."),
    ]


@pytest.mark.parametrize("line", ["a b.wav", "a b.wav long text", "a"])
def test_lines_of_lists_that_are_none(tmp_path, line):
    path = tmp_path / "list.txt"
    path.write_text(f"x x.wav 3 hello\n{line}\n")
    with pytest.raises(gh.CheckpointError, match="line 2 of .*list.txt"):
        speech.read_list(path)


EMPTY = [
    lambda path: speech.read_list(path / "no.txt"),
    lambda path: speech.read_librispeech(path),
    lambda path: speech.read_asterisk(path, path / "no.txt"),
    lambda path: speech.read_fillets(path, "nl"),
]


@pytest.mark.parametrize("number", range(len(EMPTY)))
def test_folders_without_utterances(tmp_path, number):
    with pytest.raises(gh.CheckpointError, match=r"Check the path[.,]"):
        EMPTY[number](tmp_path)
