"""scikit-learn's handwritten digits, with a fixed split."""

import numpy as np

from glasshouse.base.errors import optional
from glasshouse.data.dataset import TensorDataset
from glasshouse.data.order import random_order
from glasshouse.ops.checks import check_integer, check_option

TEST_SAMPLES = 360


def digits(split: str = "train", seed: int = 0) -> TensorDataset:
    """1,797 real handwritten digits as (image, label) samples: 1,437 to train on, 360 to test on.
    The split keeps the share of each digit, and depends on `seed` only. Pixels are scaled to 0 … 1.

    Shapes: images (N, 1, 8, 8), labels (N,).
    Dtypes: float32 and int64.
    Raises: OptionError for an unknown split, BackendError if scikit-learn is not installed.
    Source: Alpaydin & Kaynak 1998, UCI optical recognition of handwritten digits (its test part),
        as shipped with scikit-learn.
    """
    check_option("digits", "split", split, ("train", "test"))
    seed = check_integer("digits", "seed", seed)
    images, labels = load_images()
    is_test = np.zeros(len(labels), dtype=bool)
    is_test[pick_test_samples(labels, TEST_SAMPLES, seed)] = True
    chosen = is_test if split == "test" else ~is_test
    return TensorDataset(images[chosen], labels[chosen])


def load_images() -> tuple[np.ndarray, ...]:
    """(images, labels): all 1,797 of them, scaled."""
    library = optional("digits", "scikit-learn for its images", "sklearn.datasets", "vision")
    images, labels = library.load_digits(return_X_y=True)
    return (images / 16.0).astype(np.float32).reshape(-1, 1, 8, 8), labels.astype(np.int64)


def pick_test_samples(labels: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Indices of `count` samples with each class in its share (largest remainders round up)."""
    classes, sizes = np.unique(labels, return_counts=True)
    share = sizes * count / len(labels)
    quota = np.floor(share).astype(int)
    quota[np.argsort(quota - share, kind="stable")[: count - quota.sum()]] += 1
    picked = []
    for label, amount in zip(classes, quota, strict=True):
        members = np.flatnonzero(labels == label)
        picked.append(members[random_order(len(members), seed, int(label))[:amount]])
    return np.sort(np.concatenate(picked))
