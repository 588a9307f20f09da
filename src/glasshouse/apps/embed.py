"""`glasshouse train embed`: a pretrained encoder, MiniLM, that learns to classify texts by low-rank
adapters beside its frozen weights. `glasshouse search` finds passages by its plain vectors."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import glasshouse as gh
from glasshouse import nn, optim
from glasshouse.apps.app import App, AppRecipe, Training
from glasshouse.apps.pictures import save_confusion
from glasshouse.apps.textclass import read_dataset
from glasshouse.base.errors import CheckpointError
from glasshouse.data import BucketBatchSampler, DataLoader, PadCollate
from glasshouse.metrics import Accuracy, ConfusionMatrix
from glasshouse.nn import lora
from glasshouse.nn.functional import cross_entropy
from glasshouse.text import Tokenizer, embed_sentences, mean_pool, models

SIZES = (32, 64, 128, 256, 512)  # lengths that texts are padded to, each a Program
ADAPTED = ("*.query", "*.value")  # layers with adapters, as in the paper of LoRA
PASSAGE = 800  # characters of a passage that search shows and compares
TEXTS = (".txt", ".md", ".rst", ".html", ".tex", ".py")


@dataclass(frozen=True)
class EmbedRecipe(AppRecipe):
    """Options of a run."""

    epochs: int = 2
    lr: float = 2e-3
    batch_size: int = 32
    dataset: str = "r8"
    rank: int = 8
    length: int = 64  # most tokens of a text


class SentenceClassifier(nn.Module):
    """A linear layer on the mean of an encoder's states, which has length 1.

    Shapes: tokens (N, L), 0 for padding -> scores (N, classes).
    """

    def __init__(self, encoder: models.BertModel, classes: int, rank: int) -> None:
        super().__init__()
        self.encoder = encoder
        lora.attach(self.encoder, ADAPTED, rank)
        self.head: nn.Linear = nn.Linear(encoder.config.hidden_size, classes)

    def forward(self, tokens: gh.Tensor) -> gh.Tensor:
        mask = tokens != 0
        return self.head(mean_pool(self.encoder(tokens, mask)[0], mask)) * 10.0


class TextEmbedding(App):
    """Classes of texts, by a pretrained encoder."""

    name = "embed"
    summary = "Classify texts with a pretrained encoder and low-rank adapters"
    recipe: EmbedRecipe = EmbedRecipe()

    def make_model(self, recipe: EmbedRecipe, assets: dict[str, Any]) -> nn.Module:
        encoder = models.BertModel(models.BertConfig.from_dict(assets["config"]))
        return SentenceClassifier(encoder, len(assets["classes"]), recipe.rank)

    def prepare(self, recipe: EmbedRecipe, folder: Path) -> Training:
        encoder, tokenizer = read_encoder(folder)
        train, test = read_dataset(folder, recipe.dataset)
        classes = sorted({label for label, _ in train})
        config = models.pretrained.read_config(folder)
        assets = {"classes": classes, "config": config, "tokenizer": tokenizer.backend.to_str()}
        model = SentenceClassifier(encoder, len(classes), recipe.rank)
        parameters = [p for p in model.parameters() if p.requires_grad]
        optimizer = optim.AdamW(parameters, lr=recipe.lr)
        data, validation = (
            loader(part, tokenizer, classes, recipe, part is train) for part in (train, test)
        )
        return Training(
            model, data, cross_entropy, optimizer,
            metrics={"accuracy": Accuracy()},
            validation=validation, clip_norm=1.0, autocast="bfloat16",
            schedule=optim.OneCycleLR(optimizer, recipe.lr, recipe.epochs * len(data)),
            assets=assets, held_out=test, monitor="loss",
        )  # fmt: skip

    def report(self, recipe: EmbedRecipe, training: Training, out: Path) -> dict[str, Any]:
        classes = training.assets["classes"]
        counts = ConfusionMatrix(len(classes))
        for tokens, labels in training.validation:
            counts.update(training.model(tokens), labels)
        matrix = counts.value()
        save_confusion(matrix, classes, out / "confusion.png")
        gh.save(lora.state_dict(training.model), out / "adapters.safetensors")
        total = int(matrix.sum())
        return {"accuracy": float(np.trace(matrix)) / total, "texts": total}

    def search(
        self, folder: Path, query: str, data: Path, count: int = 5
    ) -> list[tuple[float, str, str]]:
        """(similarity, place, text) of the passages below a folder that are nearest to a query.

        Raises: CheckpointError for a folder without texts, or `data` without an encoder.
        """
        parts = list(passages(folder))
        encoder, tokenizer = read_encoder(data)
        vectors = embed_sentences(encoder, tokenizer, [query, *(text for _, text in parts)])
        likeness = vectors[1:] @ vectors[0]
        best = np.argsort(-likeness, kind="stable")[:count]
        return [(float(likeness[i]), *parts[i]) for i in best.tolist()]


def read_encoder(folder: Path) -> tuple[models.BertModel, Tokenizer]:
    """The pretrained encoder and its tokenizer."""
    return models.from_pretrained(folder, "BertModel"), Tokenizer.from_file(folder)


def loader(
    samples: Sequence[Any], tokenizer: Tokenizer, classes: list[str], recipe: Any, shuffle: bool
) -> DataLoader:
    """Batches (tokens, classes) of texts of like lengths, padded to a few sizes."""
    numbers = {name: number for number, name in enumerate(classes)}
    rows = []
    for label, text in samples:
        tokens = tokenizer.encode([text], max_length=recipe.length).tokens[0]
        size = next((size for size in SIZES if size >= len(tokens)), len(tokens))
        rows.append((np.pad(tokens, (0, size - len(tokens))), numbers[label]))
    lengths = [len(tokens) for tokens, _ in rows]
    batches = BucketBatchSampler(
        lengths, recipe.batch_size, shuffle=shuffle, drop_last=shuffle, seed=recipe.seed
    )
    return DataLoader(rows, batch_sampler=batches, collate_fn=PadCollate())


def passages(folder: Path) -> Iterator[tuple[str, str]]:
    """(place, text) of each passage of the texts below a folder: paragraphs, the short ones joined.

    Raises: CheckpointError where there is none.
    """
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in TEXTS)
    is_empty = True
    for path in paths:
        if not path.is_file():
            continue
        line, passage, start = 1, "", 1
        for part in path.read_text(encoding="utf-8", errors="replace").split("\n\n"):
            if passage and len(passage) + len(part) > PASSAGE:
                yield f"{path.relative_to(folder)}:{start}", passage
                passage = ""
            start = start if passage else line
            passage = f"{passage}\n\n{part}".strip()[: 4 * PASSAGE]
            line += part.count("\n") + 2
            is_empty = False
        if passage:
            yield f"{path.relative_to(folder)}:{start}", passage
    if is_empty:
        expected, fix = f"texts ({', '.join(TEXTS)}) in {folder}", "Name another folder."
        raise CheckpointError("search", expected, "none", fix)
