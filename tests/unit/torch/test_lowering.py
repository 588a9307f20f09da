"""Graphs of PyTorch's as recordings: what is a result, and what is left of the graph."""

import pytest

torch = pytest.importorskip("torch")


def lowered(function, *inputs):
    from torch.fx.experimental.proxy_tensor import make_fx

    from glasshouse.torch.lowering.interpreter import GraphLowering

    module = make_fx(function, tracing_mode="fake")(*inputs)
    return GraphLowering(module, inputs, "forward").run()


def test_sparse_results_are_refused():
    from glasshouse.base import BackendError

    with pytest.raises(BackendError, match="got torch.sparse_coo"):
        lowered(lambda x: x.to_sparse(), torch.eye(3, dtype=torch.int64))


def test_values_in_between_are_no_results():
    graph = lowered(lambda x: ((x.sin() + 1) * 2).exp().sum(), torch.ones(3, 3))
    assert len(graph.recording.outputs) == 1
    assert graph.recording.outputs == [len(graph.recording.nodes) - 1]
