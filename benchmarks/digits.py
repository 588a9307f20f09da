"""Seconds for one epoch of `glasshouse train digits`: lazy and numpy backend, and plain torch.

The twin has the same layers, batches, optimizer and loss, and as many threads as NumPy's BLAS.
"""

import os

from harness import measure, parse_arguments, save, show, summarize

import glasshouse as gh
from glasshouse.cli.train_digits import TrainingRecipe, TrainingRun, make_network


class TorchTwin:
    """The same network and optimizer in torch, reading the same batches."""

    def __init__(self, torch, run: TrainingRun):
        layers = torch.nn
        self.torch, self.run = torch, run
        self.model = layers.Sequential(
            layers.Conv2d(1, 16, 3, padding=1),
            layers.BatchNorm2d(16),
            layers.ReLU(),
            layers.Conv2d(16, 32, 3, padding=1),
            layers.BatchNorm2d(32),
            layers.ReLU(),
            layers.MaxPool2d(2),
            layers.Conv2d(32, 32, 3, padding=1),
            layers.BatchNorm2d(32),
            layers.ReLU(),
            layers.MaxPool2d(2),
            layers.Flatten(),
            layers.Dropout(0.3),
            layers.Linear(32 * 2 * 2, 10),
        )
        sizes = [sum(p.numel() for p in self.model.parameters())]
        assert sizes == [sum(p.size for p in make_network().parameters())]
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=run.recipe.lr)

    def epoch(self) -> None:
        """One pass over the training images."""
        self.model.train()
        for images, labels in self.run.batches:
            images, labels = map(self.torch.tensor, (images.numpy(), labels.numpy()))
            loss = self.torch.nn.functional.cross_entropy(self.model(images), labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


def epoch_on(name: str):
    """One epoch on a backend, after one that compiles."""
    with gh.backends.use(name):
        run = TrainingRun(TrainingRecipe())
        run.train(lambda loss: None)

    def epoch():
        with gh.backends.use(name):
            run.train(lambda loss: None)

    return epoch


def main() -> None:
    options = parse_arguments(__doc__)
    cases = {f"glasshouse, {name}": epoch_on(name) for name in ("lazy", "numpy")}
    try:
        import torch
    except ImportError:
        print("torch is not installed: no twin to compare with")
    else:
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", torch.get_num_threads())))
        cases["torch"] = TorchTwin(torch, TrainingRun(TrainingRecipe())).epoch
    results = summarize(measure(cases, repeats=1 if options.smoke else 7))
    images = len(TrainingRun(TrainingRecipe()).batches.dataset)
    rows = [
        [name, f"{entry['median_s']:.3f}", f"{images / entry['median_s']:,.0f}"]
        for name, entry in results.items()
    ]
    show(
        "one training epoch on the digits",
        ["", "seconds", "images/s"],
        rows,
        f"medians of {results['glasshouse, numpy']['runs']} runs",
    )
    print(save("digits", results, options))


if __name__ == "__main__":
    main()
