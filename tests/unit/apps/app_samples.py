"""Small generated files in the formats of the applications' data, and their twins in PyTorch."""

import gzip
import importlib.util
from pathlib import Path

import numpy as np

TWINS = Path(__file__).parents[3] / "benchmarks" / "twins"
WORDS = {"ships": "harbour cargo vessel port", "grain": "wheat corn harvest crop"}


def write_digits(folder):
    """60 images of a bar whose place says its class, as rows of numbers."""
    rng = np.random.default_rng(0)
    labels = np.sort(np.arange(60) % 10)
    images = rng.integers(0, 60, (60, 28, 28))
    for image, label in zip(images, labels):
        image[2 * label + 4 : 2 * label + 7] = 255
    rows = [",".join(map(str, [*x.ravel(), y])) for x, y in zip(images, labels)]
    with gzip.open(folder / "mnist_5k.csv.gz", "wt") as file:
        file.write("\n".join(rows) + "\n")
    return {"batch_size": 16, "width": 4, "distort": 0.0, "dropout": 0.0, "lr": 0.01}


def write_news(folder):
    """Texts of two subjects, in the columns of Orange's tables."""
    rng = np.random.default_rng(0)
    for part, count in (("train", 40), ("test", 12)):
        lines = ["Category\tText", "d\tstring", "class\t"]
        for number in range(count):
            label = list(WORDS)[number % 2]
            words = rng.choice([*WORDS[label].split(), "the", "of", "today"], 9)
            lines.append(f"{label}\t{' '.join(words)}")
        (folder / f"reuters-r8-{part}.tab").write_text("\n".join(lines) + "\n")
    return {"batch_size": 8, "rows": 512, "length": 32}


SAMPLES = {"imgclass": write_digits, "textclass": write_news}


def load_twin(name):
    """The module of an application's twin in PyTorch."""
    spec = importlib.util.spec_from_file_location(f"twin_{name}", TWINS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
