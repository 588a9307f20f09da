"""Costs of a training step on each of many ranks, before any of them is started."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from glasshouse.analyze.meta import meta
from glasshouse.analyze.step import step
from glasshouse.analyze.step_costs import StepAnalysis
from glasshouse.base.processes import threads_of_ranks
from glasshouse.compile.building.toolchain import threads_used
from glasshouse.compile.lowering.target import target_for
from glasshouse.distributed.transports.simulated import simulated
from glasshouse.tensor import random


def step_costs(
    build: Callable[..., Any],
    size: int,
    *args: Any,
    ranks: Iterable[int] | None = None,
    transport: str = "local",
    **options: Any,
) -> list[StepAnalysis]:
    """Analyse a step on each rank of a world of `size`, or on some `ranks` of it: peak memory,
    bytes sent, FLOPs, time. Neither the other ranks nor the model's memory need exist. Ranks
    compute with as many threads as under `glasshouse launch`; over "mpi", with all of this
    process.

    build       a rank's work before training: build(*args) makes the model and its optimizer,
                with `mesh`, `replicate`, `zero`, `distribute` or `pipeline` as in a real run, and
                returns (model, loss, optimizer, inputs) as `gh.analyze.step` takes them; the
                inputs are this rank's
    transport   the one whose bytes are counted: "local", "mpi" or "shared_files"
    options     those of `gh.analyze.step`: steps, autocast, machine

    Raises: OptionError for a rank out of range, and as `gh.analyze.step`
    Example:
        >>> import glasshouse as gh
        >>> def build():
        ...     mesh = gh.distributed.mesh({"data": 4})
        ...     model = gh.distributed.replicate(gh.nn.Linear(1000, 1000), mesh)
        ...     optimizer = gh.optim.SGD(model.parameters(), lr=0.1)
        ...     batch = [((8, 1000), "float32")] * 2
        ...     return model, gh.nn.functional.mse_loss, optimizer, batch
        >>> [own.sent_bytes for own in step_costs(build, 4, ranks=[0])]
        [{('all_reduce', 'data'): 6006000}]
    """
    generator, costs = random.default_generator(), []
    seed = generator.state()
    for rank in range(size) if ranks is None else ranks:
        try:
            with threads_of_a_rank(size, transport), simulated(size, rank, transport), meta():
                costs.append(step(*build(*args), **options))
        finally:
            generator.set_state(seed)
    return costs


@contextmanager
def threads_of_a_rank(size: int, transport: str) -> Iterator[None]:
    """Inside, kernels are planned for the threads of each of so many ranks: oneDNN's scratch memory
    depends on them."""
    variables = {} if transport == "mpi" else threads_of_ranks(size)
    if not variables:
        yield
        return
    threads = int(variables["OMP_NUM_THREADS"])
    with threads_used(threads), target_for(threads):
        yield
