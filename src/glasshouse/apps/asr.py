"""`glasshouse train asr`: a recogniser of speech, letter by letter, trained with CTC.

The data are telephone prompts with their texts, 8 kHz. Prompts that share a sentence are in one
part: for training, for choices (the best epoch, the weights of the beam search), or held out. The
held-out ones are read twice: the likeliest letter of each frame, and a beam search with a language
model of the training texts, which is kept beside the checkpoint."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import glasshouse as gh
from glasshouse import nn, optim, speech
from glasshouse.apps.app import App, AppRecipe, Training
from glasshouse.apps.letters import (
    LANGUAGE,
    LetterErrorRate,
    make_decoder,
    read_scores,
    read_weights,
    tune_weights,
)
from glasshouse.apps.pictures import save_alignment
from glasshouse.apps.prompts import (
    BANDS,
    HOP,
    RATE,
    TOKENS,
    log_mels,
    normalised,
    read_prompts,
    split_prompts,
)
from glasshouse.autograd import no_grad
from glasshouse.data import BucketBatchSampler, DataLoader
from glasshouse.metrics import CharErrorRate, WordErrorRate
from glasshouse.nn.functional import ctc_loss, log_softmax, silu

SIZES = [3 * round(16 * 1.3**n) for n in range(24)]  # frames that batches are padded to
STRIDE = 3  # frames for each row of scores
NEVER = -1e4  # ln p of a letter in the padding


@dataclass(frozen=True)
class SpeechRecipe(AppRecipe):
    """Options of a run. `errors` handles a broken recording or empty text: "skip" or "raise"."""

    epochs: int = 90
    lr: float = 2e-3
    batch_size: int = 16
    dataset: str = "en"  # a language: fr, es, it, ru (prompts), nl, cs (dialogues)
    dim: int = 192
    layers: int = 10
    kernel: int = 11
    dropout: float = 0.15
    masks: int = 2  # of bands, and of frames
    speeds: str = "0.9 1 1.1"
    errors: str = "skip"


class SpeechBlock(nn.Module):
    """x + a small network of each frame, after a convolution over time in each channel.

    Source: Liu et al. 2022, arXiv:2201.03545, fig. 4, along one axis.
    """

    def __init__(self, dim: int, kernel: int, dropout: float) -> None:
        super().__init__()
        self.conv: Any = nn.Conv1d(dim, dim, kernel, padding=kernel // 2, groups=dim)
        self.norm: nn.LayerNorm = nn.LayerNorm(dim)
        self.wide: nn.Linear = nn.Linear(dim, 3 * dim)
        self.narrow: nn.Linear = nn.Linear(3 * dim, dim)
        self.dropout: Any = nn.Dropout(dropout)

    def forward(self, x: gh.Tensor, mask: gh.Tensor) -> gh.Tensor:
        y = self.norm(self.conv((x * mask).transpose(1, 2)).transpose(1, 2))
        return x + self.dropout(self.narrow(self.dropout(silu(self.wide(y)))))


class Recogniser(nn.Module):
    """Log-probabilities of letters for each third frame; in the padding, of a blank alone.

    Shapes: features (N, T, bands), lengths (N,) in frames, T a multiple of 3 -> (N, T / 3, tokens).
    """

    def __init__(self, recipe: SpeechRecipe) -> None:
        super().__init__()
        dim = recipe.dim
        self.augment: speech.SpecAugment = speech.SpecAugment(
            8, recipe.masks, 25, recipe.masks, share=0.15
        )
        self.input: Any = nn.Conv1d(BANDS, dim, 5, stride=STRIDE, padding=1)
        blocks = (SpeechBlock(dim, recipe.kernel, recipe.dropout) for _ in range(recipe.layers))
        self.blocks: nn.ModuleList = nn.ModuleList(blocks)
        self.norm: nn.LayerNorm = nn.LayerNorm(dim)
        self.output: nn.Linear = nn.Linear(dim, len(TOKENS))

    def forward(self, features: gh.Tensor, lengths: gh.Tensor) -> gh.Tensor:
        x = self.input(self.augment(features.transpose(1, 2))).transpose(1, 2)
        mask = (gh.arange(x.shape[1])[None] < ((lengths + 2) // STRIDE)[:, None])[..., None]
        for block in self.blocks:
            x = block(x, mask)
        scores = log_softmax(self.output(self.norm(x)), -1)
        blank = gh.where(gh.arange(len(TOKENS)) == 0, 0.0, NEVER)
        return gh.where(mask, scores, blank)


class SpeechRecognition(App):
    """Texts of recordings."""

    name = "asr"
    summary = "Recognise speech: telephone prompts, or recordings with a file of their texts"
    recipe: SpeechRecipe = SpeechRecipe()

    def data_for(self, settings: dict[str, Any]) -> str:
        language = settings.get("dataset", self.recipe.dataset)
        return self.name if language == self.recipe.dataset else f"{self.name}-{language}"

    def make_model(self, recipe: SpeechRecipe, assets: dict[str, Any]) -> nn.Module:
        return Recogniser(recipe)

    def prepare(self, recipe: SpeechRecipe, folder: Path) -> Training:
        prompts, skipped = read_prompts(folder, recipe.errors, recipe.dataset)
        rest, held_out = split_prompts(prompts)
        parts = (*split_prompts(rest, 8), held_out)
        train, choices, held_out = ([(x, " ".join(said)) for x, said in part] for part in parts)
        speeds = [float(speed) for speed in recipe.speeds.split()]
        copies = [(speech.features.speed(x, RATE, s).numpy() if s != 1 else x, text)
                  for s in speeds for x, text in train]  # fmt: skip
        frames = np.concatenate([log_mels(x) for x, _ in train])
        assets = {"mean": frames.mean(0).tolist(), "std": frames.std(0).tolist(),
                  "skipped": skipped}  # fmt: skip
        data = loader(copies, assets, recipe, True)
        validation = loader(choices, assets, recipe, False)
        model = self.make_model(recipe, assets)
        optimizer = optim.AdamW(model.parameters(), lr=recipe.lr, weight_decay=0.02)
        return Training(
            model, data, letters_loss, optimizer, metrics={"letters": LetterErrorRate()},
            validation=validation, clip_norm=5.0, assets=assets, monitor="val_letters",
            schedule=optim.OneCycleLR(optimizer, recipe.lr, recipe.epochs * len(data)),
            held_out=(held_out, choices, sorted({text for _, text in train})),
        )  # fmt: skip

    def report(self, recipe: SpeechRecipe, training: Training, out: Path) -> dict[str, Any]:
        prompts, choices, texts = training.held_out
        speech.train_ngrams(texts, 3).save_arpa(out / LANGUAGE)
        scored = [(self.scores(x, training.assets, training.model), y) for x, y in choices]
        ways = {"greedy": None, "beam": make_decoder(out, tune_weights(out, scored))}
        meters = {key: (CharErrorRate(), WordErrorRate()) for key in ways}
        lines = []
        for x, text in prompts:
            scores = self.scores(x, training.assets, training.model)
            lines.append(f"  {text}")
            for key, decoder in ways.items():
                lines.append(f"{key[0]} {(guess := read_scores(scores, decoder))}")
                for meter in meters[key]:
                    meter.update(guess, text)
        (out / "transcripts.txt").write_text("\n".join(lines) + "\n")
        x, text = min(prompts, key=lambda prompt: abs(len(prompt[1]) - 35))
        numbers = [TOKENS.index(letter) for letter in text]
        segments = speech.align_text(
            self.scores(x, training.assets, training.model), numbers, TOKENS, boundary=" "
        )
        save_alignment(log_mels(x), segments, STRIDE, HOP / RATE, out / "alignment.png")
        rates = {f"{key} {name}": meter.value() for key, pair in meters.items()
                 for name, meter in zip(("letters", "words"), pair)}  # fmt: skip
        return {**rates, "prompts": len(prompts), "skipped": len(training.assets["skipped"])}

    def scores(self, waveform: np.ndarray, assets: dict[str, Any], model: Any) -> np.ndarray:
        """The log-probabilities (frames, tokens) of a recording at 8 kHz."""
        waveform = np.pad(waveform, (0, max(HOP * 4 - len(waveform), 0)))
        features, lengths, _ = padded([(normalised(log_mels(waveform), assets), [0])])
        with no_grad():
            scores = model(gh.asarray(features), gh.asarray(lengths)).numpy()[0]
        return scores[: (int(lengths[0]) + 2) // STRIDE]

    def transcribe(self, path: Path, run: tuple[Any, ...], out: Path, greedy: bool = False) -> str:
        """The text of a file of sound, by (recipe, assets, model) of the run in the folder `out`.

        Raises: CheckpointError for a file that cannot be read, or a run that has no language model.
        """
        _, assets, model = run
        decoder = None if greedy else make_decoder(out, read_weights(out))
        waveform, rate = speech.read_sound(path)
        waveform = waveform if rate == RATE else speech.features.resample(waveform, rate, RATE)
        return read_scores(self.scores(np.asarray(waveform), assets, model), decoder)


def letters_loss(scores: gh.Tensor, target: gh.Tensor) -> gh.Tensor:
    """CTC's loss by letter; padding is read as blanks, which cost nothing."""
    n, frames, _ = scores.shape
    lengths = gh.full((n,), frames, dtype=gh.int64)
    sizes = (target > 0).sum(axis=1)
    return ctc_loss(scores.transpose(0, 1), target, lengths, sizes, zero_infinity=True)


def padded(samples: list[Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(features, their lengths, targets) of samples (features, numbers), padded to few sizes."""
    longest = max(len(x) for x, _ in samples)
    size = next((size for size in SIZES if size >= longest), -(-longest // STRIDE) * STRIDE)
    letters = max(size // 4, *(len(y) for _, y in samples))
    features = np.zeros((len(samples), size, BANDS), np.float32)
    targets = np.zeros((len(samples), letters), np.int64)
    for row, target, (x, y) in zip(features, targets, samples):
        row[: len(x)], target[: len(y)] = x, y
    return features, np.array([len(x) for x, _ in samples], np.int64), targets


def loader(prompts: Any, assets: dict[str, Any], recipe: Any, shuffle: bool) -> DataLoader:
    """Batches of (waveform, text) of like lengths."""
    samples = [(normalised(log_mels(x), assets), [TOKENS.index(letter) for letter in text])
               for x, text in prompts]  # fmt: skip
    sizes = [next((n for n, size in enumerate(SIZES) if size >= len(x)), 99) for x, _ in samples]
    batches = BucketBatchSampler(
        sizes, recipe.batch_size, window=len(samples), shuffle=shuffle, seed=recipe.seed
    )
    return DataLoader(samples, batch_sampler=batches, collate_fn=tensors)


def tensors(samples: list[Any]) -> tuple[gh.Tensor, ...]:
    """A batch, padded."""
    return tuple(map(gh.asarray, padded(samples)))
