"""Prompts for a recogniser of speech: recordings and their texts, in two halves."""

import re
import string
import unicodedata
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from glasshouse import speech
from glasshouse.autograd import no_grad
from glasshouse.base.errors import CheckpointError
from glasshouse.ops.checks import check_option

RATE, HOP, BANDS = 8000, 80, 40  # samples a second, samples from frame to frame, bands of a frame
TOKENS = ["", " ", "'", *string.ascii_lowercase]  # the first is CTC's blank
LONGEST_S = 25.0  # of a recording
ASIDE = re.compile(r"\[.*?\]|\(.*?\)|<.*?>")  # what is not said
DIGITS = "zero one two three four five six seven eight nine".split()
NUMBER = re.compile(r"\d[\d.]*\d|\d[a-z]|[a-z]\.?\d")  # which can be said in several ways
SAID = {"#": "pound", "*": "star", "&": "and", **{str(n): word for n, word in enumerate(DIGITS)}}
LANGUAGES = ("en", "fr", "es", "it", "ru", "nl", "cs")
DIALOGUES = ("nl", "cs")  # of a game; the others are telephone prompts
SOUNDS = "a b v g d e zh z i k l m n o p r s t u f kh ts ch sh shch y e yu ya".split()
LATIN = str.maketrans({
    **dict(zip("абвгдежзиклмнопрстуфхцчшщыэюя", SOUNDS)), "ъ": "", "ь": "",
    "’": "'", "œ": "oe", "æ": "ae",
})  # fmt: skip

Prompt = tuple[np.ndarray, list[str]]


def read_prompts(
    folder: Path, errors: str, language: str = "en"
) -> tuple[list[Prompt], dict[str, str]]:
    """((waveform at 8 kHz, sentences) of each prompt, why others were skipped): recordings in
    a folder, and "name: text" lines in its file *.txt or *.txt.gz; of Dutch and Czech, dialogues of
    Fish Fillets. Broken and missing recordings
    and empty texts are skipped, or errors with "raise"; prompts without words, those with numbers
    that can be read in many ways, and those over 25 s are left out.

    Raises: CheckpointError for a folder without prompts, or a broken one with "raise".
    """
    check_option("train asr", "errors", errors, ("skip", "raise"))
    check_option("train asr", "dataset", language, LANGUAGES)
    paths = sorted([*folder.glob("*.txt"), *folder.glob("*.txt.gz")])
    if not paths and language not in DIALOGUES:
        fix = "Run glasshouse data asr, or pass --data FOLDER."
        raise CheckpointError("train asr", f"a file *.txt or *.txt.gz in {folder}", "none", fix)
    if language in DIALOGUES:
        utterances = speech.read_fillets(folder, language)
    else:
        utterances = speech.read_asterisk(folder, paths[0], keep_missing=True)
    data = speech.SpeechDataset(utterances, RATE)
    prompts, skipped = [], {}
    for utterance in utterances:
        try:
            waveform, text = data.read(utterance)
        except CheckpointError as error:
            if errors == "raise":
                raise
            skipped[utterance.id] = str(error)
            continue
        sentences = sentences_of(text, language)
        if sentences and RATE // 10 < len(waveform) < LONGEST_S * RATE:
            prompts.append((waveform, sentences))
    if len(prompts) < 8:
        got = f"{len(prompts)}; {len(skipped)} are broken: {next(iter(skipped.values()), 'none')}"
        raise CheckpointError("train asr", f"prompts in {folder}", got, "Mend the files.")
    return prompts, skipped


def sentences_of(text: str, language: str = "en") -> list[str]:
    """The sentences of a text as letters a to z without accents, apostrophes and single spaces;
    none of a text with numbers of several digits, or in other languages than English with any.

    Example:
        >>> sentences_of("Press 1, then # (a tone plays). It's 5 A.M.")
        ['press one then pound', "it's five a m"]
        >>> sentences_of("Да, цифра. Été", "ru")
        ['da tsifra', 'ete']
    """
    parts = unicodedata.normalize("NFKD", ASIDE.sub(" ", text.lower()))
    text = "".join(filter(lambda x: not unicodedata.combining(x), parts)).translate(LATIN)
    if NUMBER.search(text) or (language != "en" and re.search(r"[\d#*&]", text)):
        return []
    text = re.sub(r"[\d#*&]", lambda match: f" {SAID[match.group()]} ", text)
    sentences = []
    for sentence in re.split(r"[.!?;:]+(?=\s|$)", text):
        words = (word.strip("'") for word in re.sub(r"[^a-z']", " ", sentence).split())
        sentences.append(" ".join(filter(None, words)))
    return list(filter(None, sentences))


def split_prompts(prompts: list[Prompt], share: int = 6) -> tuple[list[Prompt], list[Prompt]]:
    """(training, held-out) prompts: those that have a sentence in common, or have one in common
    with a third, are in the same half; about one group of `share` is held out, by its hash."""
    group_of: dict[str, int] = {}
    for number, (_, sentences) in enumerate(prompts):
        linked = {group_of[x] for x in sentences if x in group_of}
        group_of |= {x: number for x, group in group_of.items() if group in linked}
        group_of |= dict.fromkeys(sentences, number)
    members: dict[int, list[Prompt]] = {}
    for prompt in prompts:
        members.setdefault(group_of[prompt[1][0]], []).append(prompt)
    groups = sorted(members.values(), key=lambda group: zlib.crc32(group[0][1][0].encode()))
    groups.sort(key=lambda group: len(group) > len(prompts) // 20)  # the largest, for training
    count = max(len(groups) // share, 1)
    return sum(groups[count:], []), sum(groups[:count], [])


@cache
def front_end() -> speech.LogMelSpectrogram:
    """The features of a recording, from overlapping pieces of 25 ms."""
    return speech.LogMelSpectrogram(RATE, 256, 200, HOP, n_mels=BANDS, f_min=60.0)


def log_mels(waveform: np.ndarray) -> np.ndarray:
    """Logarithms of energy in bands (frames, bands)."""
    with no_grad():
        return front_end()(waveform).numpy().T


def normalised(features: np.ndarray, assets: dict[str, Any]) -> np.ndarray:
    """Bands less their means, over their deviations."""
    mean, std = (np.array(assets[key], np.float32) for key in ("mean", "std"))
    return (features - mean) / (std + 1e-3)
