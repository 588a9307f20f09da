"""A lowerer of one's own: RMS norm as a kernel written by hand, in one file.

Glasshouse composes an RMS norm of a dozen primitives, which its compiler fuses. This file teaches
it another way: `RmsNormKernels` finds the pattern in a graph, claims its nodes, and gives a kernel
in C for all of them. A language model with three such norms is then trained with and without it.

    python examples/rms_norm_lowerer.py [--steps 20]
    glasshouse show examples/rms_norm_lowerer.py

Source:  Zhang & Sennrich 2019, arXiv:1910.07467
"""

import argparse
from math import prod

import numpy as np

import glasshouse as gh
from glasshouse import nn
from glasshouse.base import Spec, float32
from glasshouse.targets import CKernel, Claim, EmittedStep, Lowerer, StepDescription

KERNEL = """\
float *x = a[0], *weight = a[1], *y = a[2], *rms = a[3];
const float count = {count}, eps = {eps};
#pragma omp parallel for schedule(static)
for (int64_t row = 0; row < {rows}; row++) {{
  const float *from = x + row * {width};
  float *to = y + row * {width};
  double total = 0;
  #pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < {width}; i++) total += (double)from[i] * from[i];
  rms[row] = __builtin_sqrtf((float)total / count + eps);
  const float inverse = 1 / rms[row];
  #pragma omp simd
  for (int64_t i = 0; i < {width}; i++) to[i] = from[i] * inverse * weight[i];
}}
"""


class RmsNormKernels(Lowerer):
    """x / √(sum(x²) / count + eps) · weight over the last axis of float32, in one pass."""

    ops = ("sqrt",)  # asked about each square root: a pattern has one
    label = "rms norm"

    def claims(self, graph, node):
        """The pattern around a square root; None where this is another one."""
        inside = operands_of_root(node)
        after = users_of_root(graph, node)
        if inside is None or after is None or node.dtype is not float32:
            return None
        (x, count, eps), before = inside
        normalised, weight, nodes = after
        if normalised.inputs[0] is not x or weight.shape != x.shape[-1:]:
            return None
        own = sorted([*before, node, *nodes], key=lambda n: n.number)
        # What the gradient needs of a row is its root; the rest is computed again from that.
        return Claim(own, reads=(x, weight), results=[node, own[-1]], plan=(count, eps))

    def plan(self, lowering, claim):
        """One step, that reads x and the weight and stores the roots and the result."""
        root, last = claim.results
        x, weight = (lowering.row_major(node) for node in claim.reads)
        y, roots = (lowering.buffer(node.spec, node=node) for node in (last, root))
        count, eps = claim.plan
        views = [x, weight, y.view(), roots.view()]
        how = {"computes": claim.nodes}
        lowering.add_step(self, last, [x, weight], [y, roots], (views, count, eps), **how)
        lowering.hand_out(last, [y])
        lowering.hand_out(root, [roots])
        return True

    def emit(self, step):
        """The kernel, with its sizes filled in."""
        views, *numbers = step.plan
        args, texts = [(view.base, view.offset) for view in views], []
        for node in numbers:
            if node.attrs["value"] is None:  # a number that may change from run to run
                texts.append(f"(float)*(double *)a[{len(args)}]")
                args.append(("scalar", node.attrs["number"]))
            else:
                texts.append(repr(float(node.attrs["value"])))
        *outer, width = step.node.shape
        count, eps = texts
        text = KERNEL.format(count=count, eps=eps, rows=prod(outer), width=width)
        return EmittedStep(args, CKernel(text))

    def describe(self, step):
        """As `glasshouse show --stage steps` prints it."""
        return StepDescription(f"{self.label} over {step.node.shape}", step.computes)

    def estimate(self, products, numbers, machine):
        """The time of moving its bytes: computing is hidden behind that."""
        return machine.kernel_ns(machine.moving_s(numbers[0]))


def operands_of_root(root):
    """(x, count, eps) of √(sum(x²) / count + eps), and the nodes from x to there."""
    chain = follow(root, ("add", "div", "reshape", "sum", "mul"))
    if chain is None or chain[-1].inputs[0] is not chain[-1].inputs[1]:
        return None
    total, mean, _, summed, square = chain
    x, last = square.inputs[0], square.spec.ndim - 1
    numbers = [mean.inputs[1], total.inputs[1]]
    if summed.attrs["axes"] != (last,) or any(n.op != "full" for n in numbers):
        return None
    return (x, *numbers), chain


def follow(node, ops):
    """The nodes with these primitives, each the first operand of the one before."""
    chain = []
    for op in ops:
        node = node.inputs[0]
        if node.op != op or node.host is not None:
            return None
        chain.append(node)
    return chain


def users_of_root(graph, root):
    """x · (1 / root) and the weight that this is multiplied by, with the nodes from the root on."""
    for inverse in graph.users_of(root):
        one = inverse.inputs[0]
        if inverse.op == "div" and one.op == "full" and one.attrs["value"] == 1:
            for spread in (n for n in graph.users_of(inverse) if n.op == "expand"):
                for normalised in (n for n in graph.users_of(spread) if n.op == "mul"):
                    for result in (n for n in graph.users_of(normalised) if n.op == "mul"):
                        weight = weight_of(result.inputs[1])
                        if result.inputs[0] is normalised and weight is not None:
                            return normalised, weight, [inverse, spread, normalised, result]
    return None


def weight_of(node):
    """The vector that is repeated for each row, if that is what the node does."""
    if node.op != "expand":
        return None
    vector = node.inputs[0]
    if vector.op == "reshape":
        vector = vector.inputs[0]
    return vector if vector.shape == node.shape[-1:] else None


class Block(nn.Module):
    """x + a small network of the RMS norm of x."""

    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.inner = nn.Linear(width, 2 * width)
        self.outer = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.outer(nn.functional.gelu(self.inner(self.norm(x))))


def language_model(words: int = 50, width: int = 64) -> nn.Module:
    """Predicts the next word from the last one."""
    blocks = [Block(width) for _ in range(2)]
    head = [nn.RMSNorm(width), nn.Linear(width, words)]
    return nn.Sequential(nn.Embedding(words, width), *blocks, *head)


def loss_of(logits, labels):
    return nn.functional.cross_entropy(logits.reshape((-1, logits.shape[-1])), labels.reshape(-1))


def train(steps: int) -> tuple[list[float], list[np.ndarray]]:
    """The losses of a training, and the gradients of its last step."""
    gh.random.seed(0)
    model = language_model()
    optimizer = gh.optim.AdamW(model.parameters(), lr=1e-3)
    words = np.random.default_rng(0).integers(0, 50, (8, 33))
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model(gh.asarray(words[:, :-1])), gh.asarray(words[:, 1:]))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [p.grad.numpy() for p in model.parameters()]


def predicted() -> str:
    """Analyse a step with the lowerer, before anything runs."""
    model = language_model()
    optimizer = gh.optim.AdamW(model.parameters(), lr=1e-3)
    inputs = [Spec((8, 32), gh.int64)] * 2
    costs = gh.analyze.step(model, loss_of, optimizer, inputs)
    rows = [row for row in costs.kernels if row.kind == RmsNormKernels.label]
    microseconds = sum(row.ns for row in rows) / 1e3
    return f"analysis: {len(rows)} rms norm kernels, {microseconds:.0f} µs predicted"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    steps = parser.parse_args().steps
    plain_losses, plain_gradients = train(steps)
    with gh.targets.use_lowerer(RmsNormKernels()):
        losses, gradients = train(steps)
        with gh.profile() as prof:
            train(2)
        print(predicted())
    own = [row for row in prof.kernels() if row.kind == RmsNormKernels.label]
    print(f"profile: {len(own)} rms norm kernels, {sum(r.time_ns for r in own) / 1e3:.0f} µs")
    pairs = list(zip(gradients, plain_gradients, strict=True))
    error = max(float(np.abs(g - p).max() / np.abs(p).max()) for g, p in pairs)
    print(f"last loss: {losses[-1]:.6f}, without the lowerer {plain_losses[-1]:.6f}")
    print(f"largest difference of a gradient, of its largest element: {error:.1e}")


if __name__ == "__main__":
    main()
