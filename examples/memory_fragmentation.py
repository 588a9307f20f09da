"""Which blocks should a caching memory manager split? Flashlight's case study, to be repeated.

Splitting a large cached block for a small request saves memory now and may leave a gap that no
later large request fits. This plugs a manager of its own into Glasshouse, trains a small network on
batches of changing size, and shows memory and fragmentation for several split limits.

    python examples/memory_fragmentation.py [--steps 40] [--plot fragmentation.png]

Source:  Kahn et al. 2022, Flashlight, arXiv:2201.12465, section 5.2.2
"""

import argparse

import numpy as np

import glasshouse as gh
from glasshouse import nn

MB = 1 << 20


class Observed(gh.memory.CachingManager):
    """A caching manager that notes its fragmentation at every allocation."""

    name = "observed"

    def __init__(self, split_limit: int):
        super().__init__(split_limit=split_limit, reuse_limit=1e9)
        self.internal: list[float] = []
        self.external: list[float] = []

    def take(self, nbytes):
        taken = super().take(nbytes)
        self.counts.largest_free_bytes = self.largest_free()
        self.internal.append(self.counts.internal_fragmentation)
        self.external.append(self.counts.external_fragmentation)
        return taken


def network() -> nn.Module:
    """A small convolutional network for images of 32 x 32."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(1024, 1024),
        nn.ReLU(),
        nn.Linear(1024, 10),
    )


def train(manager: Observed, batches: list[int]) -> None:
    """A training step for each batch size.

    Reading the loss before `backward` splits each step into two Programs: the activations in
    between are then allocated one by one, beside the Programs' arenas.
    """
    rng = np.random.default_rng(0)
    gh.random.seed(0)
    with gh.memory.use(manager):
        model = network()
        optimizer = gh.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        for batch in batches:
            images = gh.asarray(rng.standard_normal((batch, 3, 32, 32), dtype=np.float32))
            loss = nn.functional.cross_entropy(model(images), gh.asarray(np.arange(batch) % 10))
            loss.item()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def replay(manager: Observed, batches: list[int]) -> None:
    """The same steps without computing: activations kept for the backward pass, and gradients."""
    values, sizes = gh.zeros((1, 3, 32, 32)), []
    for layer in network():
        values = layer(values)
        sizes.append(values.spec.nbytes)
    for batch in batches:
        kept = [manager.alloc(batch * size, gh.memory.Tag(phase="forward")) for size in sizes]
        gradient = None
        while kept:
            # Bound to one name: the gradient before is freed when this one is there.
            gradient = manager.alloc(kept.pop().nbytes, gh.memory.Tag(phase="backward"))
        del gradient


def draw(managers: dict[int, Observed], path: str) -> None:
    """External fragmentation over the allocations, a line for each split limit."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.add_subplot()
    for limit, manager in managers.items():
        axes.plot(manager.external, linewidth=0.9, label=f"split up to {limit / MB:g} MiB")
    axes.set_xlabel("allocation")
    axes.set_ylabel("external fragmentation")
    axes.legend()
    figure.savefig(path, dpi=120)
    print(f"saved {path}")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--plot")
    options = parser.parse_args(arguments)
    batches = [int(n) for n in np.random.default_rng(0).choice([8, 16, 32, 48, 64], options.steps)]
    names = ("split limit", "reserved MiB", "internal", "external", "mapped", "splits")
    print("".join(f"{name:>13}" for name in names))
    managers = {}
    for limit in (0, 6 * MB, 12 * MB, 16 * MB, 256 * MB):
        manager = managers[limit] = Observed(limit)
        with gh.base.flags.flags.override(compile="always"):
            train(manager, batches)
        if not manager.external:
            print(f"{gh.backends.current().name} allocates elsewhere: its sizes are replayed")
            replay(manager, batches)
        stats = manager.stats()
        print(
            f"{limit / MB:>9g} MiB{stats.peak_reserved_bytes / MB:>13.1f}"
            f"{np.mean(manager.internal):>13.1%}{np.mean(manager.external):>13.1%}"
            f"{stats.native_allocations:>13}{stats.splits:>13}"
        )
    if options.plot:
        draw(managers, options.plot)


if __name__ == "__main__":
    main()
