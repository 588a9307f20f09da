"""Small models, batches, a training loop, and ways to share a model out, for what compares several
ranks with one process, or with what was predicted."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import glasshouse as gh
from glasshouse import distributed as dist
from glasshouse.distributed import (
    Column,
    ContextParallel,
    Heads,
    Replicate,
    Row,
    Sequence,
    Shard,
    Vocabulary,
)

OPTIMIZERS = {
    "sgd": lambda p: gh.optim.SGD(p, lr=0.1, momentum=0.9),
    "adamw": lambda p: gh.optim.AdamW(p, lr=0.01),
    "lamb": lambda p: gh.optim.LAMB(p, lr=0.01),
    "lars": lambda p: gh.optim.LARS(p, lr=0.1),
    "novograd": lambda p: gh.optim.NovoGrad(p, lr=0.01),
}
BATCH, LENGTH, VOCABULARY = 8, 8, 24
TENSOR = {
    "tokens": Vocabulary(),
    "layers.*.self_attn": Heads(),
    "layers.*.linear1": Column(),
    "layers.*.linear2": Row(),
    "output": Column(),
}
SEQUENCE = {
    "tokens": Vocabulary(),
    "dropout": Sequence(input=Replicate()),
    "layers.*.norm*": Sequence(),
    "layers.*.self_attn": Heads(input=Shard(1), output=Shard(1)),
    "layers.*.linear1": Column(input=Shard(1)),
    "layers.*.linear2": Row(output=Shard(1)),
    "norm": Sequence(),
    "output": Column(input=Shard(1)),
}
CONTEXT = {"positions": ContextParallel(), "layers.*.self_attn": ContextParallel()}


def along_both(plan: dict) -> dict:
    """A plan along "tensor" and CONTEXT along "context"."""
    heads = plan["layers.*.self_attn"]
    return {**plan, **CONTEXT, "layers.*.self_attn": [heads, ContextParallel()]}


DECODER_PLANS = {  # of a GptLike; ranks share out its scores by "tensor" and "sequence"
    "tensor": TENSOR,
    "sequence": SEQUENCE,
    "context": CONTEXT,
    "tensor, context": along_both(TENSOR),
    "sequence, context": along_both(SEQUENCE),
}
STAGES_PER_RANK = {"gpipe": 1, "1f1b": 1, "interleaved": 2}  # by schedule


class Scheme(NamedTuple):
    """The axes of the mesh, the name of the plan, the stage of ZeRO, the schedule of a pipeline."""

    axes: dict[str, int]
    plan: str = ""
    stage: int = 0
    schedule: str = ""

    @property
    def over(self) -> tuple[str, ...]:
        """The axes along which ranks have parts of a batch."""
        return tuple(axis for axis in self.axes if axis in ("data", "context"))

    @property
    def ranks(self) -> int:
        return int(np.prod(list(self.axes.values())))

    def shared_out(self, model, mesh, plan: dict, make_optimizer: Callable, **of_batches) -> tuple:
        """This rank's part of a model, and its optimizer. A pipeline is told of its batches: an
        `example`, and the number of `microbatches`."""
        dist.distribute(model, mesh, plan)
        if self.schedule:
            options = {"schedule": self.schedule, "data": () if self.stage else self.over}
            options["stages_per_rank"] = STAGES_PER_RANK[self.schedule]
            model = dist.pipeline(model, mesh, **options, **of_batches)
        optimizer = make_optimizer(model.parameters())
        if self.stage:
            optimizer = dist.zero(model, optimizer, mesh, self.over, stage=self.stage)
        elif self.over and not self.schedule:
            dist.replicate(model, mesh, self.over)
        return model, optimizer


def build(kind: str):
    """A model of this kind, the same on each rank."""
    gh.random.seed(3)
    if kind == "mlp":
        return gh.nn.Sequential(gh.nn.Linear(6, 16), gh.nn.Tanh(), gh.nn.Linear(16, 4))
    return gh.text.models.GptLike(VOCABULARY, layers=2, dim=16, heads=4, ff=32, max_len=LENGTH)


def batches(kind: str, count: int):
    """The same (input, target) on each rank, for the whole world."""
    rng = np.random.default_rng(5)
    for _ in range(count):
        if kind == "mlp":
            x = rng.standard_normal((BATCH, 6)).astype(np.float32)
            yield x, np.argmax(x[:, :4], 1)
        else:
            text = rng.integers(0, VOCABULARY // 2, (BATCH, LENGTH + 1)).cumsum(1) % VOCABULARY
            yield text[:, :-1], text[:, 1:]


def loss_of(scores, target):
    rows = scores.reshape((-1, scores.shape[-1]))
    return gh.nn.functional.cross_entropy(rows, target.reshape(-1))


def loss_by_class(group):
    """The loss of scores whose classes the ranks of a group share out."""

    def loss(scores, target):
        rows = scores.reshape((-1, scores.shape[-1]))
        return dist.cross_entropy(rows, target.reshape(-1), group=group)

    return loss


def train(model, optimizer, inputs, placements=None, mesh=None, *, clip=None, loss_of=loss_of):
    """The losses of this rank's parts of the batches, and the parameters afterwards."""
    losses = []
    for batch in inputs:
        x, target = (
            gh.asarray(a) if mesh is None else dist.place(a, mesh, placements) for a in batch
        )
        optimizer.zero_grad()
        loss = loss_of(model(x), target)
        loss.backward()
        if clip is not None:
            gh.optim.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        losses.append(loss.item())
    return losses, [dist.gather(p).numpy() for p in model.parameters()]


def alone(kind: str, rule: str, steps: int, **options):
    """Return the results of one process."""
    model = build(kind)
    return train(model, OPTIMIZERS[rule](model.parameters()), batches(kind, steps), **options)


def check_same(result, wanted, rtol: float, atol: float = 1e-5) -> None:
    """The mean of the ranks' losses is the loss of one process, and so are the parameters."""
    losses = np.mean([losses for losses, _ in result], axis=0)
    np.testing.assert_allclose(losses, wanted[0], rtol=rtol)
    for _, parameters in result:
        for got, expected in zip(parameters, wanted[1], strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-3, atol=atol)


BY_ROWS = {"data": Shard(0)}
