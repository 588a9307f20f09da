"""The beam-search decoder beside pyctcdecode: the same scores, the same ARPA file and words, beams
of one size; one thread, in turn. Time, and how many characters of the best text are wrong.

The scores are those of a recogniser with errors: each letter of a random text over a small language
for a few frames, with noise, as sharp as trained models are."""

import logging
import math
import random
import tempfile
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from harness import measure, parse_arguments, save, show, summarize

from glasshouse import metrics, speech

LETTERS = ["", " ", *"abcdefghijklmnopqrstuvwxyz"]
# (recordings, noise): the more noise, the more tokens of a frame are likely
SETS = {"clear": (20, 2.0), "noisy": (20, 3.0), "very noisy": (30, 3.5)}
WEIGHTS = {"alpha": 0.7, "beta": 1.0, "unk_score_offset": -10.0}
UNKNOWN = WEIGHTS["alpha"] * WEIGHTS["unk_score_offset"] * np.log(10)  # pyctcdecode weighs it so
BEAM = 100


def language(seed: int, words: int, texts: int) -> list[str]:
    """Texts of invented words, in which each word has a few that follow it."""
    draw = random.Random(seed)
    vocabulary = ["".join(draw.choices(LETTERS[2:], k=draw.randint(2, 8))) for _ in range(words)]
    after = {word: draw.choices(vocabulary, k=12) for word in vocabulary}
    rows = []
    for _ in range(texts):
        row = [draw.choice(vocabulary)]
        while len(row) < 12:
            row.append(draw.choice(after[row[-1]]))
        rows.append(" ".join(row))
    return rows


def scores_of(text: str, noise: float, rng: np.random.Generator) -> np.ndarray:
    """Log-probabilities (T, tokens) of a noisy recogniser that has heard the text."""
    path: list[int] = []
    for letter in text:
        path += [LETTERS.index(letter)] * rng.integers(1, 3) + [0] * rng.integers(1, 4)
    logits = rng.normal(size=(len(path), len(LETTERS))) * noise
    logits[range(len(path)), path] += 9.0
    logits[:, 0] += 2.0
    shifted = logits - logits.max(1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(1, keepdims=True))


def all_of(case, spoken: list[np.ndarray]) -> list[str]:
    return [case(x) for x in spoken]


def errors_of(case, spoken: list[np.ndarray], said: list[str]) -> float:
    errors = metrics.CharErrorRate()
    errors.update(all_of(case, spoken), said)
    return errors.value()


def main() -> None:
    options = parse_arguments(__doc__)
    logging.disable(logging.WARNING)
    peers = all(map(find_spec, ("pyctcdecode", "kenlm")))  # without them ours alone is measured
    words, texts = (200, 300) if options.smoke else (5000, 20000)
    rows = language(0, words, texts + 60)
    train, held_out = rows[:texts], rows[texts:]
    model = speech.train_ngrams(train, order=3)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.arpa"
        model.save_arpa(path)
        ours_model = speech.NGramModel.from_arpa(path)
        vocabulary = ours_model.words()
        decoders, models = {}, {"ours": ours_model}
        if peers:
            from pyctcdecode import build_ctcdecoder

            theirs = build_ctcdecoder(LETTERS, str(path), vocabulary, **WEIGHTS)
            models["kenlm"] = speech.KenLM(path)
        for name, language_model in models.items():
            decoders[name] = speech.BeamDecoder(
                LETTERS,
                language_model,
                vocabulary,
                beam_size=BEAM,
                beam_threshold=10.0,
                lm_weight=WEIGHTS["alpha"],
                word_score=WEIGHTS["beta"],
                unknown_score=UNKNOWN,
            )
    results, table = {}, []
    for name, (count, noise) in SETS.items():
        rng = np.random.default_rng(1)
        count = 2 if options.smoke else count
        said = held_out[:count]
        spoken = [scores_of(text, noise, rng) for text in said]
        cases = {}
        if peers:
            cases["pyctcdecode"] = lambda x: theirs.decode(
                x, beam_width=BEAM, beam_prune_logp=-10.0, token_min_logp=-5.0
            )
        for key, decoder in decoders.items():
            cases[key] = lambda x, decoder=decoder: decoder.decode(x)[0].text
        wrong = {key: errors_of(case, spoken, said) for key, case in cases.items()}
        greedy = speech.BeamDecoder(LETTERS, beam_size=1)
        wrong["greedy"] = errors_of(lambda x, g=greedy: g.decode(x)[0].text, spoken, said)
        cases = {key: partial(all_of, case, spoken) for key, case in cases.items()}
        result = summarize(measure(cases, 1 if options.smoke else 3))
        frames = sum(map(len, spoken))
        results[name] = result | {"errors": wrong, "frames": frames}
        ratio = (
            result["pyctcdecode"]["median_s"] / result["ours"]["median_s"] if peers else math.nan
        )
        results[name] |= {"ratio": ratio} if peers else {}
        micro = [f"{result[key]['median_s'] / frames * 1e6:.0f} µs" for key in cases]
        table.append(
            [name, *micro, f"{ratio:.1f}", *(f"{wrong[k]:.2%}" for k in [*cases, "greedy"])]
        )
    columns = ["scores", *cases, "ratio", *(f"errors: {key}" for key in wrong)]
    show(
        "Beam search",
        columns,
        table,
        f"time for a frame; beam of {BEAM}; a ratio above 1: ours is faster",
    )
    print(save("beam_decoder", results, options))


if __name__ == "__main__":
    main()
