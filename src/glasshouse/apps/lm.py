"""`glasshouse train lm`: a decoder that learns a text, and writes on.

The data are the texts of a folder. One of them is held out: its bits per character are the result.
Tokens are pieces of words, learned from the other texts."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import glasshouse as gh
from glasshouse import nn, optim
from glasshouse.apps.app import App, AppRecipe, Training
from glasshouse.autograd import no_grad
from glasshouse.base.errors import CheckpointError
from glasshouse.data import DataLoader, TensorDataset
from glasshouse.nn.functional import cross_entropy
from glasshouse.text import Tokenizer, models

IGNORED = -100  # as a target: a token that was read for its context alone
PROMPTS = ("It is a truth", "She could not", '"My dear')


@dataclass(frozen=True)
class GenerationRecipe(AppRecipe):
    """Options of a run."""

    epochs: int = 4
    lr: float = 2e-3
    batch_size: int = 32
    held_out: str = "persuasion"  # name of a file, without .txt
    vocab: int = 2048
    dim: int = 256
    layers: int = 6
    length: int = 256  # of the texts that are read at once, in tokens


class TextGeneration(App):
    """A decoder over the tokens of texts."""

    name = "lm"
    summary = "Learn to write from the texts of a folder, such as six novels of Jane Austen"
    recipe: GenerationRecipe = GenerationRecipe()

    def make_model(self, recipe: GenerationRecipe, assets: dict[str, Any]) -> nn.Module:
        heads = max(recipe.dim // 64, 1)
        config = models.LlamaConfig(
            vocab_size=assets["vocabulary"], hidden_size=recipe.dim, tie_word_embeddings=True,
            intermediate_size=8 * recipe.dim // 3 // 16 * 16, num_hidden_layers=recipe.layers,
            num_attention_heads=heads, max_position_embeddings=4 * recipe.length,
        )  # fmt: skip
        return models.LlamaForCausalLM(config)

    def prepare(self, recipe: GenerationRecipe, folder: Path) -> Training:
        texts, held_out = read_texts(folder, recipe.held_out)
        tokenizer = Tokenizer.train(texts, recipe.vocab)
        assets = {"tokenizer": tokenizer.backend.to_str(), "vocabulary": len(tokenizer)}
        model = self.make_model(recipe, assets)
        optimizer = optim.AdamW(model.parameters(), recipe.lr, (0.9, 0.98), weight_decay=0.1)
        ids = [np.array(tokenizer.backend.encode(text).ids) for text in texts]
        windows = TensorDataset(*windows_of(np.concatenate(ids), recipe.length, recipe.length))
        data = DataLoader(windows, recipe.batch_size, True, drop_last=True, seed=recipe.seed)
        ids = np.array(tokenizer.backend.encode(held_out).ids)
        validation = TensorDataset(*windows_of(ids, recipe.length, recipe.length // 2))
        return Training(
            model, data, token_loss, optimizer,
            validation=DataLoader(validation, recipe.batch_size),
            schedule=optim.OneCycleLR(optimizer, recipe.lr, recipe.epochs * len(data)),
            clip_norm=1.0, autocast="bfloat16", assets=assets, held_out=held_out,
        )  # fmt: skip

    def report(self, recipe: GenerationRecipe, training: Training, out: Path) -> dict[str, Any]:
        nats, tokens, text = 0.0, 0, training.held_out
        with no_grad():
            for inputs, targets in training.validation:
                count = int((targets != IGNORED).sum())
                nats += token_loss(training.model(inputs), targets).item() * count
                tokens += count
        run = recipe, training.assets, training.model
        samples = [prompt + self.write(prompt, run) for prompt in PROMPTS]
        (out / "samples.txt").write_text("\n\n".join(samples) + "\n", encoding="utf-8")
        bits = nats / math.log(2) / len(text)
        return {"bits_per_character": bits, "characters": len(text), "tokens": tokens}

    def write(
        self, prompt: str, run: tuple[Any, ...], count: int = 200, temperature: float = 0.8,
        seed: int = 0,
    ) -> str:  # fmt: skip
        """The continuation of a prompt: `count` tokens, drawn one by one. `run` is a recipe, the
        assets and the model, as `load_app` gives them."""
        recipe, assets, model = run
        tokenizer = Tokenizer.from_text(assets["tokenizer"])
        ids = tokenizer.backend.encode(prompt or "\n").ids[-recipe.length :]
        return tokenizer.decode([model.generate(ids, count, temperature=temperature, seed=seed)])[0]


def token_loss(scores: gh.Tensor, targets: gh.Tensor) -> gh.Tensor:
    """The mean over the tokens that count."""
    flat = scores.reshape((-1, scores.shape[-1]))
    return cross_entropy(flat, targets.reshape(-1), ignore_index=IGNORED)


def windows_of(ids: np.ndarray, length: int, step: int) -> tuple[np.ndarray, np.ndarray]:
    """(tokens, the tokens after them) of windows (N, length), `step` tokens apart. Targets that an
    earlier window has, or that lie past the end, are ignored."""
    starts = range(0, max(len(ids) - 1, 1), step)
    inputs = np.zeros((len(starts), length), np.int64)
    targets = np.full((len(starts), length), IGNORED)
    for row, start in enumerate(starts):
        part = ids[start : start + length + 1]
        inputs[row, : len(part) - 1] = part[:-1]
        fresh = length - step if row else 0  # the first that no earlier window has as a target
        targets[row, fresh : len(part) - 1] = part[fresh + 1 :]
    return inputs, targets


def read_texts(folder: Path, held_out: str) -> tuple[list[str], str]:
    """(texts to learn, the text that is held out) of the files NAME.txt of a folder.

    Raises: CheckpointError where there are fewer than two, no such file, or one without text.
    """
    paths = sorted(folder.glob("*.txt"))
    fix = "Run glasshouse data lm, or pass --data FOLDER and --held-out NAME."
    if len(paths) < 2 or folder / f"{held_out}.txt" not in paths:
        expected = f"{held_out}.txt and other texts in {folder}"
        names = ", ".join(path.name for path in paths) or "none"
        raise CheckpointError("train lm", expected, names, fix)
    texts = {path.stem: path.read_text(encoding="utf-8", errors="replace") for path in paths}
    empty = next((path for path in paths if len(texts[path.stem].split()) < 2), None)
    if empty is not None:
        raise CheckpointError("train lm", f"words in {empty}", "none", "Remove the file.")
    text = texts.pop(held_out)
    return list(texts.values()), text
