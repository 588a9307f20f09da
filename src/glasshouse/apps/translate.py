"""`glasshouse train translate`: an encoder and a decoder that translate, word piece by word piece.

The data are Debian's descriptions of packages, English and Italian, or aligned lines in four files.
Packages of one source are all in one part, and held-out paragraphs that differ from others in names
alone are left out."""

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import glasshouse as gh
from glasshouse import nn, optim
from glasshouse.apps.app import App, AppRecipe, Training
from glasshouse.apps.descriptions import described_packages
from glasshouse.apps.pictures import new_figure
from glasshouse.autograd import no_grad
from glasshouse.base.errors import CheckpointError
from glasshouse.data import BucketBatchSampler, DataLoader, PadCollate
from glasshouse.data.formats import read_lines
from glasshouse.metrics import BLEU
from glasshouse.nn.functional import cross_entropy
from glasshouse.nn.generation.rows import padded
from glasshouse.text import Tokenizer, models

PAD, START, END = 0, 1, 2  # of the tokenizer: <pad>, <s>, </s>
SIZES = (16, 32, 48, 64, 96, 128, 192, 256)  # lengths that texts are padded to, each a Program
NAME = re.compile(r"\S*[A-Z\d\-_./]\S*")  # words that tell one use of a template from another
SMOOTHING = 0.1  # Vaswani et al. 2017, arXiv:1706.03762, sec. 5.4
TRAINING, HELD_OUT = "train", "test"


@dataclass(frozen=True)
class TranslationRecipe(AppRecipe):
    """Options of a run."""

    epochs: int = 3
    lr: float = 2e-3
    batch_size: int = 64
    length: int = 32  # most tokens of a text
    vocab: int = 4000
    dim: int = 256
    layers: int = 2
    dropout: float = 0.1
    reported: int = 500  # held-out texts that BLEU is computed of


class Translator(nn.Module):
    """Marian's network, which sees no padding.

    Shapes: tokens (N, S) and the decoder's (N, L) -> scores (N, L, vocabulary).
    """

    def __init__(self, config: models.MarianConfig) -> None:
        super().__init__()
        self.net: models.MarianMTModel = models.MarianMTModel(config)

    def forward(self, tokens: gh.Tensor, decoder_tokens: gh.Tensor) -> gh.Tensor:
        return self.net(tokens, decoder_tokens, tokens != PAD)

    def translate(self, tokens: gh.Tensor, length: int) -> np.ndarray:
        """The likeliest next tokens after START, until each text has ended; then PAD."""
        rows = self.net.generate(tokens, length - 1, attention_mask=tokens != PAD)
        rows = [[START, *(token for token in row if token != END)] for row in rows]
        return padded(rows, max(map(len, rows)))[0]

    def attention(self, tokens: gh.Tensor, decoder_tokens: gh.Tensor) -> np.ndarray:
        """How much each token of the result attends to each of the text, in the last layer: the
        mean of its heads (L, S)."""
        attention, calls = self.net.attentions()[-1], []
        handle = attention.register_forward_pre_hook(lambda _, args: calls.append(args))
        with no_grad():
            self(tokens, decoder_tokens)
            handle.remove()
            memory = self.net.encode(tokens, tokens != PAD)
            x, visible = calls[0][:2]
            return attention.weights(x, visible, memory).numpy()[0].mean(axis=0)


class Translation(App):
    """Texts of another language."""

    name = "translate"
    summary = "Translate English into Italian: descriptions of packages, or aligned lines"
    recipe: TranslationRecipe = TranslationRecipe()

    def make_model(self, recipe: TranslationRecipe, assets: dict[str, Any]) -> nn.Module:
        sides: dict[str, Any] = {}
        for side in ("encoder", "decoder"):
            sides |= {f"{side}_layers": recipe.layers, f"{side}_ffn_dim": 4 * recipe.dim}
            sides[f"{side}_attention_heads"] = max(recipe.dim // 64, 1)
        config = models.MarianConfig(
            vocab_size=assets["vocabulary"], d_model=recipe.dim, dropout=recipe.dropout,
            max_position_embeddings=SIZES[-1], scale_embedding=True, init_std=recipe.dim**-0.5,
            pad_token_id=PAD, eos_token_id=END, decoder_start_token_id=START, **sides,
        )  # fmt: skip
        return Translator(config)

    def prepare(self, recipe: TranslationRecipe, folder: Path) -> Training:
        BLEU()  # fails now, not after the training
        train, held_out = read_pairs(folder)
        tokenizer = Tokenizer.train((x for pair in train for x in pair), recipe.vocab, end=True)
        assets = {"tokenizer": tokenizer.backend.to_str(), "vocabulary": len(tokenizer)}
        model = self.make_model(recipe, assets)
        optimizer = optim.AdamW(model.parameters(), lr=recipe.lr, betas=(0.9, 0.98))
        data, train = loader(train, tokenizer, recipe, True)
        validation, held_out = loader(held_out, tokenizer, recipe, False)
        steps = recipe.epochs * len(data)
        return Training(
            model, data, translation_loss, optimizer, validation=validation, clip_norm=1.0,
            schedule=optim.OneCycleLR(optimizer, recipe.lr, steps), autocast="bfloat16",
            assets=assets, held_out=held_out[: recipe.reported],
        )  # fmt: skip

    def report(self, recipe: TranslationRecipe, training: Training, out: Path) -> dict[str, Any]:
        texts, targets = map(list, zip(*training.held_out))
        results = self.translate(texts, recipe, training.assets, training.model)
        bleu = BLEU()
        bleu.update(results, targets)
        rows = zip(texts, results, targets)
        lines = ["\n".join((f"  {text}", result, f"= {t}\n")) for text, result, t in rows]
        (out / "translations.txt").write_text("\n".join(lines), encoding="utf-8")
        short = min(texts, key=lambda text: abs(len(text) - 60))
        save_attention(short, recipe, training.assets, training.model, out / "attention.png")
        return {"BLEU": bleu.value(), "texts": len(texts)}

    def translate(
        self, texts: Sequence[str], recipe: Any, assets: dict[str, Any], model: Any
    ) -> list[str]:
        """The translations of texts; longer ones than the recipe's length are cut."""
        tokenizer = Tokenizer.from_text(assets["tokenizer"])
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        results: dict[int, str] = {}
        for start in range(0, len(order), recipe.batch_size):
            rows = order[start : start + recipe.batch_size]
            some = [texts[i] for i in rows]
            batch = tokenizer.encode(some, max_length=recipe.length, multiple=16)
            tokens = model.translate(gh.asarray(batch.tokens), recipe.length)
            results |= dict(zip(rows, tokenizer.decode(tokens)))
        return [results[i].strip() for i in range(len(texts))]


def translation_loss(scores: gh.Tensor, target: gh.Tensor) -> gh.Tensor:
    """The mean over all tokens but padding, with a tenth of the weight on all others."""
    flat = scores.reshape((-1, scores.shape[-1]))
    return cross_entropy(flat, target.reshape(-1), ignore_index=PAD, label_smoothing=SMOOTHING)


def save_attention(text: str, recipe: Any, assets: Any, model: Any, path: Path) -> None:
    """A picture: a row for each token of the translation, a column for each of the text."""
    figure, tokenizer = new_figure(9, 7), Tokenizer.from_text(assets["tokenizer"])
    if figure is None:
        return
    tokens = gh.asarray(tokenizer.encode([text], max_length=recipe.length).tokens)
    y = model.translate(tokens, recipe.length)[:, : recipe.length]
    y = y[:, : int((y != PAD).sum())]
    axes = figure.subplots()
    axes.imshow(model.attention(tokens, gh.asarray(y)), cmap="Blues", vmin=0, vmax=1)
    columns, rows = (
        [tokenizer.decode([[i]], False)[0] for i in x] for x in (tokens.numpy()[0], y[0])
    )
    axes.set_xticks(range(len(columns)), columns, rotation=90, size=8)
    axes.set_yticks(range(len(rows)), [*rows[1:], "</s>"], size=8)
    figure.savefig(path, dpi=110)


def loader(pairs: Any, tokenizer: Tokenizer, recipe: Any, shuffle: bool) -> tuple[Any, list[Any]]:
    """(batches of a text, the decoder's tokens and the target, of like lengths, padded to a few
    sizes; the pairs that they are made of: those of at most `length` tokens)."""
    samples, fitting = [], []
    sides = zip(*pairs)
    texts, results = ([row.ids for row in tokenizer.backend.encode_batch(list(s))] for s in sides)
    for pair, text, result in zip(pairs, texts, results):
        longest = max(len(text), len(result))
        if longest <= recipe.length:
            size = next(size for size in SIZES if size >= longest)
            rows = np.zeros((3, size), np.int64)
            for row, ids in zip(rows, (text, [START, *result[:-1]], result)):
                row[: len(ids)] = ids
            samples.append(tuple(rows))
            fitting.append(pair)
    if not samples:
        expected = f"pairs of texts of at most {recipe.length} tokens"
        raise CheckpointError("train translate", expected, "none", "Raise --length.")
    lengths = [len(sample[0]) for sample in samples]
    size = min(recipe.batch_size, len(samples))
    batches = BucketBatchSampler(lengths, size, shuffle=shuffle, drop_last=True, seed=recipe.seed)
    return DataLoader(samples, batch_sampler=batches, collate_fn=PadCollate()), fitting


def read_pairs(folder: Path) -> tuple[list[Any], list[Any]]:
    """(training, held-out) pairs of texts: of Debian's lists in a folder, or of its files train.en,
    train.it, test.en and test.it.

    Raises: CheckpointError for missing files, or of unequal numbers of lines.
    """
    if (folder / f"{TRAINING}.en").exists():
        return aligned_lines(folder, TRAINING), aligned_lines(folder, HELD_OUT)
    train: dict[Any, None] = {}
    held_out: dict[Any, None] = {}
    for source, text, result in described_packages(folder):
        part = held_out if zlib.crc32(source.encode()) % 50 == 0 else train
        part[text, result] = None
    templates = {template(text) for text, _ in train}
    pairs = {template(text): (text, result) for text, result in held_out}
    rest = [pair for name, pair in pairs.items() if name not in templates]
    if not train or not rest:
        expected, got = f"pairs of texts to train and to test in {folder}", (len(train), len(rest))
        raise CheckpointError("train translate", expected, got, "Get more lists.")
    return list(train), rest


def template(text: str) -> str:
    """A text without the words that look like names."""
    return NAME.sub("#", text)


def aligned_lines(folder: Path, part: str) -> list[tuple[str, str]]:
    sides = [
        read_lines("train translate", folder / f"{part}.{language}") for language in ("en", "it")
    ]
    if len(sides[0]) != len(sides[1]) or not sides[0]:
        expected, got = f"as many lines in {part}.en and {part}.it", tuple(map(len, sides))
        raise CheckpointError("train translate", f"{expected} of {folder}", got, "Align them.")
    return list(zip(*sides))
