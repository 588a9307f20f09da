"""Recordings with their texts: files of sound, lists of them, and folders as data sets come."""

import re
import wave
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from glasshouse.base.errors import CheckpointError, optional
from glasshouse.data.dataset import Dataset
from glasshouse.data.formats import read_lines
from glasshouse.data.index import check_index
from glasshouse.ops.checks import check_option, check_path
from glasshouse.speech.features import resample

__all__ = ["SpeechDataset", "Utterance", "read_asterisk", "read_fillets", "read_librispeech",
           "read_list", "read_sound"]  # fmt: skip

ENDINGS = (".wav", ".flac", ".ogg")


@dataclass(frozen=True)
class Utterance:
    """A recording: its name, its file, its transcript."""

    id: str
    path: Path
    text: str


def read_sound(path: str | Path) -> tuple[np.ndarray, int]:
    """(the waveform (samples,), float32 in [-1, 1], the mean of its channels; its rate). PCM wav by
    Python's own reader, other files through the package soundfile.

    Units: hertz.
    Raises: CheckpointError with the file, and the place where there is one, if it is missing, cut
        off, empty or has NaN; BackendError if soundfile is needed and missing.
    """
    path = check_path("read_sound", path)
    if not path.is_file():
        raise CheckpointError("read_sound", "a file", str(path), "Check the path.")
    try:
        x, rate = read_wave(path)
    except (wave.Error, EOFError) as error:
        if path.suffix == ".wav" and "unknown format" not in str(error):
            fix = "Get the file again."
            raise CheckpointError("read_sound", f"{path} to be a wav file", error, fix) from None
        x, rate = read_other(path)
    if not len(x):
        raise CheckpointError("read_sound", f"samples in {path}", "none", "Leave it out.")
    if not np.isfinite(x).all():
        place = int((~np.isfinite(x)).reshape(len(x), -1).any(1).argmax())
        got = f"{x[place]} at sample {place}"
        raise CheckpointError("read_sound", f"finite samples in {path}", got, "Leave it out.")
    return (x if x.ndim == 1 else x.mean(1)).astype(np.float32), rate


def read_wave(path: Path) -> tuple[np.ndarray, int]:
    with wave.open(str(path), "rb") as file:
        width, count, channels = file.getsampwidth(), file.getnframes(), file.getnchannels()
        data, rate = file.readframes(count), file.getframerate()
    if len(data) != count * width * channels:
        got = f"{len(data) // (width * channels)}: the file is cut off"
        raise CheckpointError("read_sound", f"{count} samples in {path}", got, "Get it again.")
    if width == 1:
        x = (np.frombuffer(data, np.uint8).astype(np.float32) - 128) / 128
    elif width == 3:  # as the upper bytes of 32 bits
        rows = np.zeros((len(data) // 3, 4), np.uint8)
        rows[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
        x = rows.reshape(-1).view("<i4") / np.float32(2**31)
    else:
        x = np.frombuffer(data, f"<i{width}") / np.float32(2 ** (8 * width - 1))
    return x.reshape(-1, channels), rate


def read_other(path: Path) -> tuple[np.ndarray, int]:
    soundfile = optional("read_sound", f"soundfile, for {path.name}", "soundfile", "speech")
    try:
        return soundfile.read(str(path), dtype="float32", always_2d=True)
    except (RuntimeError, soundfile.LibsndfileError) as error:
        expected = f"{path} to be a file of sound"
        raise CheckpointError("read_sound", expected, error, "Get it again.") from None


class SpeechDataset(Dataset):
    """(waveform (samples,), text) of each utterance, at `sample_rate` if that is given. With
    `errors` "skip" an utterance that cannot be read, or has no text, gives the next one that can;
    `skipped` says which and why. With "raise" it is an error when it is read.

    Raises: CheckpointError for a broken file or an empty text, with the utterance's name.
    """

    def __init__(
        self, utterances: Iterable[Utterance], sample_rate: int | None = None, errors: str = "raise"
    ) -> None:
        self.utterances: list[Utterance] = list(utterances)
        self.sample_rate = sample_rate
        self.errors: Any = check_option("SpeechDataset", "errors", errors, ("raise", "skip"))
        self.skipped: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self.utterances)

    def __getitem__(self, index: int) -> tuple[np.ndarray, str]:
        index = check_index("SpeechDataset", index, len(self))
        for i in range(len(self)):
            utterance = self.utterances[(index + i) % len(self)]
            try:
                return self.read(utterance)
            except CheckpointError as error:
                if self.errors == "raise":
                    raise
                self.skipped[utterance.id] = str(error)
        got, fix = f"none of {len(self)}", f"The first: {next(iter(self.skipped.values()))}"
        raise CheckpointError("SpeechDataset", "an utterance that can be read", got, fix)

    def read(self, utterance: Utterance) -> tuple[np.ndarray, str]:
        """The waveform and the text of one utterance.

        Raises: CheckpointError for an empty text.
        """
        if not utterance.text.strip():
            expected, got = f"a text of {utterance.id} ({utterance.path})", repr(utterance.text)
            raise CheckpointError("SpeechDataset", expected, got, "Leave it out.")
        x, rate = read_sound(utterance.path)
        if self.sample_rate not in (None, rate):
            x = resample(x, rate, self.sample_rate).numpy()
        return x, utterance.text

    def __repr__(self) -> str:
        return f"SpeechDataset({len(self)} utterances)"


def sound_file(folder: Path, name: str) -> Path:
    """The file of that name with an ending of sound, the first that is there."""
    paths = [folder / f"{name}{ending}" for ending in ENDINGS]
    return next((path for path in paths if path.is_file()), paths[0])


def some(where: str, rows: list[Utterance], place: Any) -> list[Utterance]:
    if not rows:
        raise CheckpointError(where, f"utterances in {place}", "none", "Check the path.")
    return rows


def read_list(path: str | Path) -> list[Utterance]:
    """The utterances of a list file: a name, a file, its length and its text in each line. Files
    are looked for from the list's folder.

    Raises: CheckpointError for a missing list, or a line with less, with its number.
    Source: Flashlight (and wav2letter), list files.
    """
    rows = []
    for number, line in enumerate(read_lines("read_list", path), 1):
        parts = line.split(maxsplit=3)
        if not parts:
            continue
        try:
            name, file, _ = *parts[:2], float(parts[2])
        except (ValueError, IndexError):
            expected, fix = f"id, path, length and text in line {number} of {path}", "Mend it."
            raise CheckpointError("read_list", expected, f"{line:.60}", fix) from None
        rows.append(Utterance(name, Path(path).parent / file, " ".join(parts[3:])))
    return some("read_list", rows, path)


def read_librispeech(root: str | Path) -> list[Utterance]:
    """The utterances below a folder of LibriSpeech: reader/chapter/reader-chapter.trans.txt, with
    a name and a text in each line, and the recordings beside it.

    Raises: CheckpointError if there are none.
    Source: Panayotov et al. 2015, "LibriSpeech".
    """
    rows = []
    for path in sorted(check_path("read_librispeech", root).rglob("*.trans.txt")):
        for line in filter(None, read_lines("read_librispeech", path)):
            name, _, text = line.partition(" ")
            rows.append(Utterance(name, sound_file(path.parent, name), text))
    return some("read_librispeech", rows, root)


def read_asterisk(
    sounds: str | Path, texts: str | Path, keep_missing: bool = False
) -> list[Utterance]:
    """Asterisk's prompts: recordings in a folder, and a file with "name: text" lines, compressed or
    not, in which ";" begins a remark. Tones, "[…]", are left out, and prompts without a recording,
    unless `keep_missing` leaves it to who reads them.

    Raises: CheckpointError if there are none.
    """
    folder, rows = check_path("read_asterisk", sounds), []
    for line in read_lines("read_asterisk", texts):
        name, colon, text = line.partition(":")
        path = sound_file(folder, name.strip())
        is_tone = text.strip().startswith("[") and text.strip().endswith("]")
        if colon and not line.startswith(";") and not is_tone and (keep_missing or path.is_file()):
            rows.append(Utterance(name.strip(), path, text.strip()))
    return some("read_asterisk", rows, folder)


DIALOG = re.compile(
    r'dialogId\(\s*"([^"]+)"[^)]*?"((?:[^"\\]|\\.)*)"\s*\)'
    r'(?:\s*dialogStr\(\s*"((?:[^"\\]|\\.)*)"\s*\))?'
)


def read_fillets(root: str | Path, language: str) -> list[Utterance]:
    """The dialogues of Fish Fillets NG in a language ("nl", "cs"): texts from
    script/LEVEL/dialogs_LANGUAGE.lua, recordings from sound/LEVEL/LANGUAGE; those without a
    recording are left out.

    Raises: CheckpointError if there are none.
    """
    root, rows = check_path("read_fillets", root), []
    for path in sorted((root / "script").glob(f"*/dialogs_{language}.lua")):
        folder = root / "sound" / path.parent.name / language
        for name, english, text in DIALOG.findall("\n".join(read_lines("read_fillets", path))):
            file = sound_file(folder, name)
            if file.is_file():
                said = re.sub(r"\\(.)", r"\1", text or english)
                rows.append(Utterance(f"{path.parent.name}/{name}", file, said))
    return some("read_fillets", rows, root)
