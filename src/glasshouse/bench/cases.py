"""The models of `glasshouse bench`: how to build each, its batch and its loss."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import glasshouse as gh
from glasshouse import nn
from glasshouse.nn import functional
from glasshouse.speech.models import AsrTransformer, ConformerCTC
from glasshouse.text.models import BertLike, LlamaConfig, LlamaForCausalLM
from glasshouse.vision import models as vision
from glasshouse.vision.models.detr import set_loss


class WordTagger(nn.Module):
    """Scores of tags of each word, by an LSTM over the sentence.

    Shapes: words (N, L) -> (N, L, tags).
    """

    def __init__(
        self, vocab: int = 10000, width: int = 512, layers: int = 2, tags: int = 50
    ) -> None:
        super().__init__()
        self.embedding: nn.Embedding = nn.Embedding(vocab, width)
        self.lstm: nn.LSTM = nn.LSTM(width, width, layers, batch_first=True)
        self.scores: nn.Linear = nn.Linear(width, tags)

    def forward(self, words: gh.Tensor) -> gh.Tensor:
        return self.scores(self.lstm(self.embedding(words))[0])


def llama(**options: Any) -> nn.Module:
    return LlamaForCausalLM(LlamaConfig(**options))


def class_loss(scores: Any, targets: Any) -> Any:
    """Cross-entropy, the classes on the last axis."""
    return functional.cross_entropy(scores.reshape((-1, scores.shape[-1])), targets.reshape(-1))


def pixel_loss(scores: Any, targets: Any) -> Any:
    """Cross-entropy of each pixel, the classes on the second axis."""
    return functional.cross_entropy(scores, targets)


def speech_loss(scores: Any, *targets: Any) -> Any:
    """Connectionist temporal classification of labels, numbers of frames and of labels."""
    log_probs = functional.log_softmax(scores.float(), dim=-1).transpose(0, 1)
    return functional.ctc_loss(log_probs, *targets)


def box_loss(outputs: Any, labels: Any, boxes: Any) -> Any:
    """DETR's loss in each layer, for queries that are matched already."""
    matches = [{"labels": labels, "boxes": boxes}] * (1 + len(outputs.get("auxiliary", ())))
    return sum(set_loss(outputs, matches).values())


def images(batch: int, size: int, classes: int) -> Any:
    return lambda rng: (
        rng.standard_normal((batch, 3, size, size), dtype=np.float32),
        rng.integers(0, classes, batch),
    )


def pictures(batch: int, size: int, classes: int) -> Any:
    """Makes images and the class of each pixel."""
    return lambda rng: (
        rng.standard_normal((batch, 3, size, size), dtype=np.float32),
        rng.integers(0, classes, (batch, size, size)),
    )


def objects(batch: int, size: int, classes: int, queries: int) -> Any:
    """Makes images, and labels and boxes of the queries, of which a tenth have an object."""

    def make(rng):
        labels = rng.integers(0, classes, (batch, queries))
        labels[:, queries // 10 + 1 :] = classes
        boxes = rng.uniform(0.2, 0.5, (batch, queries, 4)).astype(np.float32)
        return rng.standard_normal((batch, 3, size, size), dtype=np.float32), labels, boxes

    return make


def tokens(batch: int, length: int, vocab: int) -> Any:
    return lambda rng: rng.integers(0, vocab, (2, batch, length))


def tagged_words(batch: int, length: int, vocab: int, tags: int) -> Any:
    return lambda rng: (rng.integers(0, vocab, (batch, length)),
                        rng.integers(0, tags, (batch, length)))  # fmt: skip


def recordings(
    batch: int, length: int, features: int, labels: int, spoken: int, model: Any = AsrTransformer
) -> Any:
    """Makes features of speech, label sequences, and the numbers of frames and labels."""

    def make(rng):
        frames = np.full(batch, model.frames(length))
        targets = rng.integers(1, labels, (batch, spoken))
        speech = rng.standard_normal((batch, length, features), dtype=np.float32)
        return speech, targets, frames, spoken - np.arange(batch) * (spoken // 10)

    return make


@dataclass(frozen=True)
class Case:
    """A model of the benchmark: how to build it and its batch, and both small for a smoke test."""

    make: Callable[..., Any]
    options: dict[Any, Any]
    batch: Callable[..., Any]
    small_options: dict[Any, Any]
    small_batch: Callable[..., Any]
    convolutions: bool = True
    loss: Callable[..., Any] = class_loss

    def sizes(self, smoke: bool) -> tuple[dict[Any, Any], tuple[Any, ...]]:
        options = {**self.options, **(self.small_options if smoke else {})}
        batch = self.small_batch if smoke else self.batch
        return options, tuple(batch(np.random.default_rng(0)))


CASES = {
    "alexnet": Case(
        vision.alexnet,
        {"dropout": 0.0},
        images(32, 224, 1000),
        {"width": 4, "num_classes": 10},
        images(2, 64, 10),
    ),
    "vgg16": Case(
        vision.vgg16,
        {"dropout": 0.0},
        images(8, 224, 1000),
        {"width": 4, "hidden": 16, "num_classes": 10},
        images(2, 32, 10),
    ),
    "resnet50": Case(
        vision.resnet50,
        {},
        images(16, 224, 1000),
        {"width": 4, "layers": (1, 2, 1, 1), "num_classes": 10},
        images(4, 48, 10),
    ),
    "bert": Case(
        BertLike,
        {},
        tokens(4, 128, 50265),
        {"vocab": 50, "layers": 2, "dim": 16, "heads": 2, "ff": 32},
        tokens(2, 12, 50),
        convolutions=False,
    ),
    "asr": Case(
        AsrTransformer,
        {},
        recordings(2, 600, 80, 30, 40),
        {"features": 8, "layers": 2, "dim": 16, "heads": 2, "ff": 32},
        recordings(2, 90, 8, 30, 10),
        convolutions=False,
        loss=speech_loss,
    ),
    "vit_b_16": Case(
        vision.vit_b_16,
        {},
        images(8, 224, 1000),
        {
            "image_size": 32,
            "patch_size": 8,
            "num_layers": 2,
            "num_heads": 2,
            "hidden_dim": 16,
            "mlp_dim": 32,
            "num_classes": 10,
        },
        images(2, 32, 10),
        convolutions=False,
    ),
    "detr": Case(
        vision.DETR,
        {"num_classes": 91, "dropout": 0.0},
        objects(2, 320, 91, 100),
        {"num_classes": 3, "backbone": "resnet18", "dim": 16, "heads": 2, "hidden": 32,
         "layers": 2, "queries": 12},
        objects(2, 64, 3, 12),
        loss=box_loss,
    ),
    "unet": Case(
        vision.UNet,
        {"num_classes": 21},
        pictures(2, 256, 21),
        {"num_classes": 4, "width": 4, "depth": 2},
        pictures(2, 24, 4),
        loss=pixel_loss,
    ),
    "conformer": Case(
        ConformerCTC,
        {"labels": 30, "dropout": 0.0},
        recordings(4, 600, 80, 30, 40, ConformerCTC),
        {"features": 8, "layers": 2, "dim": 16, "heads": 2, "kernel_size": 5, "pos_context": 32},
        recordings(2, 90, 8, 30, 10, ConformerCTC),
        convolutions=False,
        loss=speech_loss,
    ),
    "llama": Case(
        llama,
        {"vocab_size": 32000, "hidden_size": 768, "intermediate_size": 2048,
         "num_hidden_layers": 12, "num_attention_heads": 12, "tie_word_embeddings": True},
        tokens(4, 256, 32000),
        {"vocab_size": 50, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
         "num_attention_heads": 2, "num_key_value_heads": 1},
        tokens(2, 12, 50),
        convolutions=False,
    ),
    "lstm": Case(
        WordTagger,
        {},
        tagged_words(32, 64, 10000, 50),
        {"vocab": 100, "width": 16, "tags": 5},
        tagged_words(2, 8, 100, 5),
        convolutions=False,
    ),
}  # fmt: skip
