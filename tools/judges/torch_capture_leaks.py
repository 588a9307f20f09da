"""Whether captured calls of PyTorch programs leave anything behind.

    python tools/judges/torch_capture_leaks.py [--calls 60000] [--models 200]

Prints, for calls of a module, whole training steps, calls with a graph break, and models that are
made, trained and freed: how many objects that the collector knows are left, and the memory. Of
models only tensors and modules count: PyTorch keeps the source of each torch.fx graph for ever.
The status is 1 where more than one object in a hundred calls is left."""

import argparse
import gc
import resource
import sys

import torch
from torch import nn

import glasshouse as gh

MOST = 0.01  # objects a call


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3))


def forward(net, x):
    return net(x)


def step(net, optimizer, x):
    optimizer.zero_grad()
    loss = net(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss


def broken(net, x):
    y = net(x)
    if y.sum() > 1e9:
        return y
    return y * 2


def sgd(net):
    return torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)


def calls_of(kind: str):
    """A function without arguments that makes one call."""
    x, net = torch.randn(5, 4), model()
    if kind == "step":
        captured, optimizer = gh.optimize("eager")(step), sgd(net)
        return lambda: captured(net, optimizer, x)
    captured = gh.optimize("eager")(forward if kind == "forward" else broken)
    return lambda: captured(net, x)


def models():
    """A function that makes a model, trains it captured, and lets go of it."""
    captured, x = gh.optimize("eager")(step), torch.randn(5, 4)

    def one() -> None:
        net = model()
        optimizer = sgd(net)
        for _ in range(4):
            captured(net, optimizer, x)

    return one


def megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def count(kinds: tuple) -> int:
    """The objects of these kinds that the collector knows."""
    gc.collect()
    return sum(issubclass(type(x), kinds) for x in gc.get_objects())


def measure(name: str, call, times: int, kinds: tuple = (object,)) -> bool:
    """Print what so many calls leave; whether that is too much."""
    for _ in range(100 if times > 1000 else 10):
        call()
    objects, memory = count(kinds), megabytes()
    for _ in range(times):
        call()
    more = count(kinds) - objects
    print(f"{name:10} {times:6} calls: {more:+5} objects, {megabytes() - memory:+.1f} MB at most")
    return more > MOST * times


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=60_000)
    parser.add_argument("--models", type=int, default=200)
    options = parser.parse_args()
    grew = [measure(kind, calls_of(kind), options.calls) for kind in ("forward", "step", "broken")]
    grew.append(measure("models", models(), options.models, (torch.Tensor, nn.Module)))
    return int(any(grew))


if __name__ == "__main__":
    sys.exit(main())
