"""Loss curves of PyTorch's models over 50 steps, captured whole by gh.optimize beside eager.

A row is a small model that others wrote and an optimizer: SGD with momentum, AdamW. A step is
zero_grad, forward, cross entropy, backward, `optimizer.step()`, on four batches in turn. The row
says by how much, relative to the loss, the curves differ at most (1 % is allowed), and beside it by
how much eager's own curve differs if the parameters that it begins with differ in their last bits
(`rounding`, the most of three), then graphs, breaks, and the losses of the first and last step.

    python tools/judges/torch_curves.py [WORD …] [--smoke] [--out FOLDER]

WORDs choose the rows whose names have all of them, such as `bert adamw`; all rows run without any,
each in a process of its own. Those that ran are saved, in the place of earlier ones. Ends with 1
where a row is further from eager than is allowed, has a break, or fails."""

import copy
import os
import sys
import warnings
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tools" / "judges"), str(ROOT / "benchmarks")]

import apart  # noqa: E402
from harness import has_words, parse_arguments, save_rows, show  # noqa: E402
from torch_zoo import models as zoo  # noqa: E402

import glasshouse as gh  # noqa: E402

STEPS, SECONDS = 50, 600.0
ALLOWED = 0.01  # relative
EPSILON, DRAWS = 1e-7, 3  # relative, about the last bit of float32; eager's other curves
BATCHES, ROWS, CLASSES = 4, 8, 10
OPTIMIZERS = {
    "SGD": lambda p, rate: torch.optim.SGD(p, lr=10 * rate, momentum=0.9),
    "AdamW": lambda p, rate: torch.optim.AdamW(p, lr=rate),
}
RATES = dict.fromkeys(
    (
        "torchvision:resnet18",
        "torchvision:mobilenet_v3_small",
        "timm:convnextv2_atto",
        "transformers:bert",
        "transformers:gpt2",
        "transformers:t5",
        "transformers:llama",
        "transformers:mixtral",
        "transformers:vit",
        "transformers:swin",
        "own:convolutional",
        "own:lstm",
    ),
    1e-3,
)
apart.begin_with("torch._functorch.aot_autograd", "glasshouse.torch.backend.entry_point")


class Tagger(nn.Module):
    """An LSTM of two layers that names the next word."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(zoo.WORDS, 32)
        self.lstm = nn.LSTM(32, 64, 2, batch_first=True)
        self.head = nn.Linear(64, zoo.WORDS)

    def forward(self, input_ids):
        return self.head(self.lstm(self.words(input_ids))[0])


def convolutional() -> nn.Module:
    """Three convolutions with batch norm."""
    layers: list[nn.Module] = []
    for width, before in ((16, 3), (32, 16), (64, 32)):
        layers += [nn.Conv2d(before, width, 3, 2, 1), nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, CLASSES))


def build(model: str) -> tuple[nn.Module, dict]:
    """A model, and inputs such as it takes."""
    library, name = model.split(":")
    if library != "own":
        return zoo.build(library, name)
    torch.manual_seed(0)
    if name == "lstm":
        return Tagger(), {"input_ids": torch.randint(3, zoo.WORDS, (zoo.BATCH, zoo.TOKENS))}
    return convolutional(), {"input": torch.randn(zoo.BATCH, 3, 32, 32)}


def batches(inputs: dict, classes: int) -> list[tuple[dict, torch.Tensor]]:
    """Inputs and targets: images, brighter by their class, or words that rise by up to six."""
    generator = torch.Generator().manual_seed(1)
    name, first = next(iter(inputs.items()))
    results = []
    for _ in range(BATCHES):
        if first.is_floating_point():
            y = torch.randint(0, classes, (ROWS,), generator=generator)
            x = torch.randn(ROWS, *first.shape[1:], generator=generator)
            results.append(({name: x + y.view(-1, 1, 1, 1) / classes}, y))
            continue
        steps = torch.randint(1, 7, (ROWS, first.shape[1] + 1), generator=generator)
        words = steps.cumsum(1) % (zoo.WORDS - 3) + 3
        results.append((dict.fromkeys(inputs, words[:, :-1]), words[:, 1:]))
    return results


def logits_of(outputs) -> torch.Tensor:
    """Return a model's scores of each class or word."""
    return outputs if isinstance(outputs, torch.Tensor) else outputs.logits


def train(model, optimizer, inputs: dict, target: torch.Tensor) -> torch.Tensor:
    """One training step."""
    optimizer.zero_grad()
    logits = logits_of(model(**inputs))
    loss = F.cross_entropy(logits.flatten(0, -2), target.flatten())
    loss.backward()
    optimizer.step()
    return loss.detach()


def curve(step, model, rule: str, rate: float, data: list, steps: int) -> list[float]:
    """The losses of so many steps of a model, which is changed."""
    optimizer = OPTIMIZERS[rule](model.parameters(), rate)
    return [step(model, optimizer, *data[i % BATCHES]).item() for i in range(steps)]


def with_noise(model, number: int) -> nn.Module:
    """A copy of a model whose parameters differ in about their last bits."""
    generator, model = torch.Generator().manual_seed(number), copy.deepcopy(model)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1 + EPSILON * torch.randn(p.shape, generator=generator))
    return model


def furthest(one: list[float], other: list[float]) -> float:
    """The largest relative difference of two curves."""
    return max(abs(a - b) / abs(b) if a == a else float("inf") for a, b in zip(one, other))


def row_of(model: str, rule: str, steps: int) -> dict:
    """Return the fields of a row."""
    network, inputs = build(model)
    data = batches(inputs, classes=logits_of(network(**inputs)).shape[-1])
    rate = RATES[model]
    eager = curve(train, copy.deepcopy(network), rule, rate, data, steps)
    noisy = [curve(train, with_noise(network, i), rule, rate, data, steps) for i in range(DRAWS)]
    step, ours = gh.optimize(train), copy.deepcopy(network)
    losses = curve(step, ours, rule, rate, data, steps)
    difference = furthest(losses, eager)
    return {
        "agrees": difference <= ALLOWED,
        "difference": difference,
        "rounding": max(furthest(each, eager) for each in noisy),
        "graphs": len([x for x in step.capture.entries if x.graph is not None]),
        "breaks": [f"{where}: {reason}" for where, reason, _ in step.capture.breaks],
        "first": eager[0],
        "last": eager[-1],
        "losses": losses,
    }


def answer(send, model: str, rule: str, steps: int) -> None:
    """Compute one row in a process of its own, and send it back."""
    warnings.simplefilter("ignore")
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    try:
        send(row_of(model, rule, steps))
    except Exception as error:
        send({"agrees": False, "failed": f"{type(error).__name__}: {str(error)[:300]}"})


def run_apart(model: str, rule: str, steps: int) -> dict:
    """A row, computed in a process of its own."""
    result, *_ = apart.messages(answer, (model, rule, steps), SECONDS)
    return {"agrees": False, "failed": str(result)} if isinstance(result, apart.Ended) else result


def every_row() -> dict[str, tuple[str, str]]:
    """Model and optimizer of each row, by name."""
    return {f"{model} {rule}": (model, rule) for model in RATES for rule in OPTIMIZERS}


def cells(name: str, row: dict) -> list[str]:
    """A row of the table."""
    if "failed" in row:
        return [name, *[""] * 6, f"FAILED: {row['failed']}"]
    return [
        name,
        f"{row['difference']:.1e}",
        f"{row['rounding']:.1e}",
        str(row["graphs"]),
        str(len(row["breaks"])),
        f"{row['first']:.3f}",
        f"{row['last']:.3f}",
        "" if row["agrees"] else "APART",
    ]


def main() -> int:
    options = parse_arguments(__doc__, ("WORDs",))
    words = options.parts or (["lstm", "SGD"] if options.smoke else [])
    rows = {}
    for name, (model, rule) in every_row().items():
        if has_words(name, words):
            rows[name] = run_apart(model, rule, 3 if options.smoke else STEPS)
            print(*cells(name, rows[name]), flush=True)
            if not options.smoke:
                of_all = {"steps": STEPS, "allowed": ALLOWED}
                save_rows("torch_curves", rows, every_row(), options, **of_all)
    columns = ["model, optimizer", "apart", "rounding", "graphs", "breaks", "first loss", "last"]
    show("Loss curves beside eager", [*columns, ""], [cells(*item) for item in rows.items()])
    wrong = [name for name, row in rows.items() if not row["agrees"] or row["breaks"]]
    print(f"{len(rows)} rows, {len(wrong)} apart, broken or failed", *wrong, sep="\n")
    return 1 if wrong or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
