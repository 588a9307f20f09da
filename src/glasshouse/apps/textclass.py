"""`glasshouse train textclass`: a linear classifier of texts, over words and pairs of words.

Every word and pair has a score for each class; a text's scores are their sum, weighted by how
often it has them and how rare they are in all texts. So the words that decided can be named."""

import re
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import glasshouse as gh
from glasshouse import nn, optim
from glasshouse.apps.app import App, AppRecipe, Training
from glasshouse.apps.pictures import save_confusion
from glasshouse.base.errors import CheckpointError, OptionError
from glasshouse.data import DataLoader, TensorDataset
from glasshouse.metrics import Accuracy, ConfusionMatrix
from glasshouse.nn.functional import relu

NEWS = {"r8": "reuters-r8", "r52": "reuters-r52", "news": "20newsgroups"}
REVIEWS = "movieReviewSnippets_GroundTruth.txt"
WORD = re.compile(r"\w+|[!?']")


@dataclass(frozen=True)
class TextRecipe(AppRecipe):
    """Options of a run."""

    epochs: int = 10
    lr: float = 0.5
    decay: float = 2e-5
    dataset: str = "r8"
    rows: int = 1 << 18  # of the table; row 0 is for padding
    length: int = 768  # most words and pairs of a text


class LinearBag(nn.Module):
    """A score for each class: the weighted sum of the rows that a text's ids name.

    Shapes: ids (N, L), weights (N, L) -> (N, classes)
    """

    def __init__(self, rows: int, classes: int) -> None:
        super().__init__()
        self.table: nn.EmbeddingBag = nn.EmbeddingBag(rows, classes, mode="sum", padding_idx=0)
        self.bias: nn.Parameter = nn.Parameter(gh.zeros(classes))
        nn.init.zeros_(self.table.weight)

    def forward(self, ids: gh.Tensor, weights: gh.Tensor) -> gh.Tensor:
        return self.table(ids, per_sample_weights=weights) + self.bias


class TextClassification(App):
    """Classes of texts."""

    name = "textclass"
    summary = "Classify texts: news by subject (r8, r52, news), film reviews by opinion (reviews)"
    recipe: TextRecipe = TextRecipe()

    def make_model(self, recipe: TextRecipe, assets: dict[str, Any]) -> nn.Module:
        return LinearBag(recipe.rows, len(assets["classes"]))

    def prepare(self, recipe: TextRecipe, folder: Path) -> Training:
        train, test = read_dataset(folder, recipe.dataset)
        classes = sorted({label for label, _ in train})
        features = Features(recipe.rows, recipe.length)
        features.count_texts(text for _, text in train)
        assets = {"classes": classes, "rarity": features.rarity()}
        model = self.make_model(recipe, assets)
        optimizer = optim.SGD(model.parameters(), recipe.lr, 0.9, weight_decay=recipe.decay)
        sets = [as_dataset(samples, features, classes) for samples in (train, test)]
        data = DataLoader(sets[0], recipe.batch_size, True, drop_last=True, seed=recipe.seed)
        return Training(
            model, data, squared_hinge, optimizer,
            metrics={"accuracy": Accuracy()},
            validation=DataLoader(sets[1], 256),
            schedule=optim.LinearLR(optimizer, 1.0, 0.02, recipe.epochs * len(data)),
            assets=assets, held_out=test, monitor="loss",
        )  # fmt: skip

    def report(self, recipe: TextRecipe, training: Training, out: Path) -> dict[str, Any]:
        classes = training.assets["classes"]
        counts = ConfusionMatrix(len(classes))
        for ids, weights, labels in training.validation:
            counts.update(training.model(ids, weights), labels)
        matrix = counts.value()
        save_confusion(matrix, classes, out / "confusion.png")
        lines = []
        for label, text in training.held_out[:: max(len(training.held_out) // 20, 1)]:
            guess, words = explain(text, recipe, training.assets, training.model)
            lines.append(f"{label}, read as {guess}: {', '.join(words)}\n    {text[:200]}\n")
        (out / "words.txt").write_text("\n".join(lines))
        total = int(matrix.sum())
        return {"accuracy": float(np.trace(matrix)) / total, "texts": total}


def squared_hinge(scores: gh.Tensor, labels: gh.Tensor) -> gh.Tensor:
    """Σ max(0, 1 - s y)² over the classes, y being 1 for a text's class and -1 for the others; the
    mean over texts.

    Source: Tang 2013, arXiv:1306.0239.
    """
    signs = gh.where(labels[:, None] == gh.arange(scores.shape[1]), 1.0, -1.0)
    return (relu(1 - scores * signs) ** 2).sum(axis=1).mean()


class Features:
    """Ids and weights of a text's words and pairs, hashed to rows of a table."""

    def __init__(self, rows: int, length: int, rarity: dict[str, Any] | None = None) -> None:
        self.rows = rows
        self.length = length
        self.texts: int = 0
        self.counts: Counter[int] = Counter()
        self.rarities: dict[Any, Any] = (
            {} if rarity is None else dict(zip(rarity["ids"], rarity["values"]))
        )

    def terms(self, text: str) -> list[str]:
        """Words, and pairs of neighbours."""
        words = WORD.findall(text.lower())
        return words + [f"{first} {second}" for first, second in zip(words, words[1:])]

    def row(self, term: str) -> int:
        """The row of a term; terms may share one."""
        return 1 + zlib.crc32(term.encode()) % (self.rows - 1)

    def count_texts(self, texts: Any) -> None:
        """Count in how many texts each row occurs."""
        for text in texts:
            self.texts += 1
            self.counts.update({self.row(term) for term in self.terms(text)})
        self.rarities = {id: float(np.log(self.texts / n) + 1) for id, n in self.counts.items()}

    def rarity(self) -> dict[str, list[Any]]:
        """The weight of each row, as lists."""
        values = [round(value, 4) for value in self.rarities.values()]
        return {"ids": list(self.rarities), "values": values}

    def encode(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """(ids, weights) of a text: (1 + log count) times rarity, of length 1; zeros to the end.

        Source: Salton & Buckley 1988, Term-weighting approaches in automatic text retrieval.
        """
        counts = Counter(map(self.row, self.terms(text)))
        rows = [row for row in counts if row in self.rarities][: self.length]
        ids, weights = np.zeros(self.length, np.int32), np.zeros(self.length, np.float32)
        ids[: len(rows)] = rows
        weights[: len(rows)] = [(1 + np.log(counts[x])) * self.rarities[x] for x in rows]
        return ids, weights / max(float(np.linalg.norm(weights)), 1e-6)


def as_dataset(samples: Any, features: Features, classes: list[str]) -> TensorDataset:
    """(ids, weights, class) of each text."""
    pairs = [features.encode(text) for _, text in samples]
    numbers = {name: number for number, name in enumerate(classes)}
    labels = [numbers[label] for label, _ in samples]
    return TensorDataset(*map(np.stack, zip(*pairs)), np.array(labels, np.int64))


def explain(text: str, recipe: Any, assets: dict[str, Any], model: Any) -> tuple[str, list[str]]:
    """(the class that a text is read as, the terms that added most to its score)."""
    features = Features(recipe.rows, recipe.length, assets["rarity"])
    ids, weights = features.encode(text)
    best = int(model(gh.asarray(ids[None]), gh.asarray(weights[None])).argmax(axis=1).item())
    scores = dict(zip(ids.tolist(), (model.table.weight.numpy()[ids, best] * weights).tolist()))
    terms = set(features.terms(text))
    ranked = sorted(terms, key=lambda term: -scores.get(features.row(term), 0.0))
    return assets["classes"][best], ranked[:6]


def read_dataset(folder: Path, dataset: str) -> tuple[list[Any], list[Any]]:
    """(training, test) samples (label, text) of one of the data sets in a folder, or of its files
    train.tab and test.tab.

    Raises: OptionError for an unknown data set, CheckpointError for missing or damaged files.
    """
    if dataset == "reviews":
        rows = read_rows(folder / REVIEWS, 3)
        samples = [("good" if float(row[1]) > 0 else "bad", row[2]) for row in rows]
        held_out = samples[4::5]
        return [x for number, x in enumerate(samples) if number % 5 != 4], held_out
    if dataset not in NEWS and not (folder / f"{dataset}-train.tab").exists():
        expected = f"one of {', '.join((*NEWS, 'reviews'))}, or NAME-train.tab in {folder}"
        raise OptionError("train textclass", expected, repr(dataset), "Change --dataset.")
    stem = NEWS.get(dataset, dataset)
    train, test = ([(row[0], row[1]) for row in read_rows(folder / f"{stem}-{part}.tab", 2)[3:]]
                   for part in ("train", "test"))  # fmt: skip
    classes = {label for label, _ in train}
    unknown = next((label for label, _ in test if label not in classes), None)
    if unknown is not None:
        expected = f"classes of {stem}-train.tab in {stem}-test.tab"
        raise CheckpointError("train textclass", expected, repr(unknown), "Mend the file.")
    return train, test


def read_rows(path: Path, fields: int) -> list[list[str]]:
    """Lines of fields between tabs; those without a text are left out.

    Raises: CheckpointError for a file that does not exist, or has no such line.
    """
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        fix = "Run glasshouse data textclass, or pass --data FOLDER."
        raise CheckpointError("train textclass", f"the file {path}", error, fix) from None
    rows = [line.split("\t", fields - 1) for line in lines]
    rows = [row for row in rows if len(row) == fields]
    if len(rows) < 8:
        expected = f"lines of {fields} fields between tabs in {path}"
        raise CheckpointError("train textclass", expected, f"{len(rows)} of them", "Mend it.")
    return rows
