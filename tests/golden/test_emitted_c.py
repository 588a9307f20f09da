"""The C that small graphs become, compared with files; `python tests/golden/test_emitted_c.py`
writes them again, for the change to be read in the diff."""

from pathlib import Path

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.compile.planning.plan import ProgramPlan, describe_c, describe_steps
from glasshouse.compile.programs.code import assemble
from glasshouse.graph import record
from glasshouse.graph.graph import graph_of
from glasshouse.graph.simplify import PASSES
from glasshouse.nn import functional as F
from glasshouse.ops.index import scatter_set

FOLDER = Path(__file__).parent / "c"


def draw(*shape, dtype="float32"):
    return gh.asarray(np.ones(shape, dtype))


def batch_norm_backward():
    x = gh.tensor(np.ones((8, 4, 6, 6), np.float32), requires_grad=True)
    w = gh.tensor(np.ones(4, np.float32), requires_grad=True)
    F.batch_norm(x, None, None, w, None, training=True).backward(draw(8, 4, 6, 6))
    return x.grad, w.grad


def layer_norm_backward():
    x = gh.tensor(np.ones((64, 256), np.float32), requires_grad=True)
    y = F.layer_norm(x, (256,), draw(256), draw(256))
    y.backward(draw(64, 256))
    return y, x.grad


def update():
    p, g, m = draw(1000), draw(1000), draw(1000)
    m = m * 0.9 + g
    return p - m * 0.01, m


GRAPHS = {
    "chain": lambda: (gh.exp(draw(70, 100) * 0.5) + gh.tanh(draw(70, 100)),),
    "broadcast": lambda: (draw(30, 40) * draw(40) + draw(30, 1),),
    "transpose": lambda: (gh.permute_dims(draw(20, 30), (1, 0)) + draw(30, 20),),
    "row_sum": lambda: (draw(300, 200).sum(axis=1),),
    "masked_sum": lambda: (gh.where(draw(64, 100, dtype="bool"), draw(64, 100), 0).sum(axis=1),),
    "column_sum": lambda: (draw(3000, 20).sum(axis=0),),
    "full_sum": lambda: (draw(100_000).sum(),),
    "softmax": lambda: (F.softmax(draw(64, 100), dim=-1),),
    "layer_norm_backward": layer_norm_backward,
    "batch_norm_backward": batch_norm_backward,
    "update": update,
    "dropout": lambda: (F.dropout(draw(100, 10), 0.3, training=True),),
    "embedding": lambda: (F.embedding(gh.asarray(np.arange(5)), draw(10, 16)),),
    "max_pool": lambda: (F.max_pool2d(draw(2, 4, 8, 8), 2),),
    "bfloat16": lambda: (draw(50, 20).to("bfloat16") * 3.5 + 1,),
    "integers": lambda: (draw(50, dtype="int32") // 3 + draw(50, dtype="int32") % 4,),
    "scatter_set": lambda: (scatter_set(draw(4, 5), gh.arange(2), draw(4, 2), axis=1),),
    "concatenate": lambda: (gh.concat([draw(4, 5), draw(4, 7) * 2], axis=1),),
}


def emitted(name: str) -> str:
    """The steps and the C of a graph."""
    with gh.backends.use("lazy") as backend:
        backend.evaluate()
        gh.random.seed(0)
        results = GRAPHS[name]()
        recording = record.recorder.take()
    graph = graph_of(recording)
    for _, rewrite in PASSES:
        graph = rewrite(graph)
    plan = ProgramPlan(graph)
    assemble(plan)
    del results
    steps = "\n".join(f"// {line}" for line in describe_steps(plan).splitlines())
    return f"{steps}\n\n{describe_c(plan.sources, plan.sizes)}"


@pytest.mark.parametrize("name", GRAPHS)
def test_emitted_c(name):
    assert emitted(name) == (FOLDER / f"{name}.c").read_text()


def test_no_file_is_left_over():
    assert {path.stem for path in FOLDER.glob("*.c")} == set(GRAPHS)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name in GRAPHS:
        (FOLDER / f"{name}.c").write_text(emitted(name))
