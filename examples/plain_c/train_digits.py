"""The digits, trained on the CPU's target and on this one: numbers are the same but for rounding.

PYTHONPATH=examples python -m plain_c.train_digits [--epochs 2]
"""

import argparse
from collections import Counter

import glasshouse as gh
from glasshouse.cli.train_digits import TrainingRecipe, TrainingRun
from plain_c.target import PLAIN_C


def train(target, epochs: int) -> list[dict]:
    """Train, and return the results of each epoch."""
    with gh.targets.use_target(target):
        run = TrainingRun(TrainingRecipe(epochs=epochs))
        return [run.epoch(lambda loss: None) for _ in range(epochs)]


def kinds_of_steps(target) -> Counter:
    """The kinds of steps that a training step of the digits has on a target."""
    with gh.targets.use_target(target):
        run = TrainingRun(TrainingRecipe())
        images, labels = next(iter(run.batches))
        for _ in range(3):
            run.step(images, labels)
        with gh.profile() as prof:
            run.step(images, labels)[0].item()
    return Counter(row.kind for row in prof.kernels())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    epochs = parser.parse_args().epochs
    for target in (gh.targets.CPU, PLAIN_C):
        print(target.name, dict(kinds_of_steps(target)))
        for entry in train(target, epochs):
            keys = ("epoch", "train_loss", "train_accuracy", "test_loss", "test_accuracy")
            print("  " + ", ".join(f"{key} {entry[key]:.5g}" for key in keys))


if __name__ == "__main__":
    main()
