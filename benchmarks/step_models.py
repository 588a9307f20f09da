"""The training steps whose times `analyze.py steps` predicts and measures: small ones, in which
Python takes most of the time, up to such in which kernels do."""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

import glasshouse as gh
from glasshouse import nn
from glasshouse.analyze.calibration import IN_A_ROW
from glasshouse.base import having
from glasshouse.compile.programs.executable import NativeRunner
from glasshouse.nn import functional as F


class Recurrent(nn.Module):
    """A recurrent layer whose last output is classified."""

    def __init__(self, layer: type, features: int, width: int, classes: int):
        super().__init__()
        self.layer = layer(features, width, batch_first=True)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.layer(x)[0][:, -1])


class Encoder(nn.Module):
    """A small transformer that classifies token sequences."""

    def __init__(self, vocab: int, width: int, layers: int, heads: int, classes: int):
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, heads, 2 * width, dropout=0.0, batch_first=True)
        self.embed, self.layers = nn.Embedding(vocab, width), nn.TransformerEncoder(layer, layers)
        self.head = nn.Linear(width, classes)

    def forward(self, tokens):
        return self.head(self.layers(self.embed(tokens)).mean(1))


def perceptron(*widths: int) -> nn.Module:
    """Linear layers with ReLU between them."""
    layers: list[nn.Module] = []
    for a, b in zip(widths, widths[1:], strict=False):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def small_cnn() -> nn.Module:
    """Two convolutions with pooling, for digits."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(32 * 49, 10)),
    )


def lenet() -> nn.Module:
    """LeNet-5 (LeCun et al. 1998), with plain average pooling."""
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten()),
        *(nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10)),
    )


def depthwise_net() -> nn.Module:
    """Depthwise and pointwise convolutions, batch norms, as MobileNet has (Howard et al. 2017)."""

    def block(a: int, b: int, stride: int) -> list[nn.Module]:
        depthwise = nn.Conv2d(a, a, 3, stride=stride, padding=1, groups=a, bias=False)
        pointwise = nn.Conv2d(a, b, 1, bias=False)
        return [depthwise, nn.BatchNorm2d(a), nn.ReLU(), pointwise, nn.BatchNorm2d(b), nn.ReLU()]

    stem = nn.Conv2d(3, 16, 3, stride=2, padding=1)
    blocks = [*block(16, 32, 1), *block(32, 64, 2), *block(64, 64, 1)]
    return nn.Sequential(stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def small_vit() -> nn.Module:
    return gh.vision.models.VisionTransformer(64, 8, 4, 4, 128, 256, num_classes=10)


def numbers(*shape: int) -> Callable:
    """Makes an array of normal numbers."""
    return lambda rng: rng.standard_normal(shape, np.float32)


def integers(most: int, *shape: int) -> Callable:
    """Makes an array of integers below `most`."""
    return lambda rng: rng.integers(0, most, shape)


@dataclass
class StepModel:
    """A model with its loss, inputs and optimizer, and how its steps run."""

    make: Callable
    loss: Callable
    inputs: tuple[Callable, ...]
    optimizer: str
    options: dict = field(default_factory=dict)
    convention: str = "exact"  # or "captured": whole, by gh.optimize


WARM_STEPS = 5  # until all is compiled, and calls are replayed
MOMENTUM = {"momentum": 0.9}
DIGITS = numbers(16, 1, 28, 28), integers(10, 16)
SERIES = numbers(16, 20, 32), integers(10, 16)
TOKENS = integers(200, 8, 32), integers(10, 8)
STEPS = {
    "linear 256": StepModel(
        lambda: nn.Linear(256, 256), F.mse_loss, (numbers(64, 256), numbers(64, 256)), "AdamW"
    ),
    "perceptron": StepModel(
        lambda: perceptron(64, 128, 128, 10),
        F.cross_entropy,
        (numbers(32, 64), integers(10, 32)),
        "SGD",
        MOMENTUM,
    ),
    "deep perceptron": StepModel(
        lambda: perceptron(64, *[64] * 12, 10),
        F.cross_entropy,
        (numbers(64, 64), integers(10, 64)),
        "Adam",
    ),
    "CNN": StepModel(small_cnn, F.cross_entropy, DIGITS, "Adam"),
    "LeNet": StepModel(lenet, F.cross_entropy, DIGITS, "SGD", MOMENTUM),
    "GRU": StepModel(lambda: Recurrent(nn.GRU, 32, 64, 10), F.cross_entropy, SERIES, "Adam"),
    "LSTM": StepModel(lambda: Recurrent(nn.LSTM, 32, 64, 10), F.cross_entropy, SERIES, "AdamW"),
    "encoder": StepModel(lambda: Encoder(200, 64, 2, 4, 10), F.cross_entropy, TOKENS, "AdamW"),
    "ResNet-18": StepModel(
        lambda: gh.vision.models.resnet18(num_classes=10),
        F.cross_entropy,
        (numbers(4, 3, 64, 64), integers(10, 4)),
        "SGD",
        MOMENTUM,
    ),
    "small ViT": StepModel(
        small_vit, F.cross_entropy, (numbers(8, 3, 64, 64), integers(10, 8)), "AdamW"
    ),
    "BERT-like": StepModel(
        lambda: gh.text.models.BertLike(vocab=500, layers=2, dim=128, heads=4, ff=256),
        lambda out, y: F.cross_entropy(out.reshape((-1, 500)), y.reshape(-1)),
        (integers(500, 4, 32), integers(500, 4, 32)),
        "Adam",
    ),
    "CNN, captured": StepModel(small_cnn, F.cross_entropy, DIGITS, "Adam", convention="captured"),
    "encoder, captured": StepModel(
        lambda: Encoder(200, 64, 2, 4, 10), F.cross_entropy, TOKENS, "AdamW", convention="captured"
    ),
    "MobileNet-like": StepModel(
        depthwise_net, F.cross_entropy, (numbers(8, 3, 32, 32), integers(10, 8)), "RMSprop"
    ),
}


class StepRun:
    """A training step that runs, and its processor time."""

    def __init__(self, name: str):
        case = STEPS[name]
        gh.random.seed(0)
        rng = np.random.default_rng(0)
        self.name, self.case, self.model, self.loss = name, case, case.make(), case.loss
        make = getattr(gh.optim, case.optimizer)
        self.optimizer = make(self.model.parameters(), lr=1e-3, **case.options)
        self.inputs = [gh.asarray(make(rng)) for make in case.inputs]
        self.train = gh.optimize(self.step) if case.convention == "captured" else self.step
        self.times: list[int] = []
        self.kernel_times: list[int] = []
        for _ in range(WARM_STEPS):
            self.train()

    def step(self):
        """One training step, as users write it."""
        x, *targets = self.inputs
        self.optimizer.zero_grad()
        loss = self.loss(self.model(x), *targets)
        loss.backward()
        self.optimizer.step()
        return loss

    def measure(self) -> None:
        """The processor time of a step that follows others, as in a loop, and in the next one that
        of its kernels."""
        for _ in range(IN_A_ROW):
            self.train()
        begin_ns = time.thread_time_ns()
        self.train()
        self.times.append(time.thread_time_ns() - begin_ns)
        with timed_runner() as timing:
            self.train()
        self.kernel_times.append(timing.ns)


class Timing:
    """Calls the native runner, and sums up the processor time that it takes."""

    def __init__(self, run: Callable):
        self.run, self.ns = run, 0

    def __call__(self, *args):
        begin_ns = time.thread_time_ns()
        try:
            return self.run(*args)
        finally:
            self.ns += time.thread_time_ns() - begin_ns


@contextlib.contextmanager
def timed_runner() -> Iterator[Timing]:
    """Inside, kernels' processor time is measured; that of one thread, with OMP_NUM_THREADS=1."""
    runner = NativeRunner.get()
    timing = Timing(runner.gh_run)
    with having(runner, gh_run=timing):
        yield timing
