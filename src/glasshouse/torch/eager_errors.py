"""Errors of graphs that write to what they are given.

A compiled graph writes to its inputs when all is computed. Eager has written by then what comes
before the operation that raises; so where a compiled graph raises, PyTorch does its calls once
more."""

import torch

from glasshouse.base.errors import Explained
from glasshouse.compile.toolchain import CompileError

FOUND = "glasshouse_found_writing"  # the attribute of a context of TorchDynamo's
OURS = Explained, CompileError  # told of the compiler, not of values


class RaisesAsEager:
    """A compiled graph that writes to its inputs. Where it raises, they are as they were: PyTorch
    writes what it writes, and raises where it does."""

    def __init__(self, compiled, calls: torch.fx.GraphModule):
        self.compiled, self.calls = compiled, calls

    def __call__(self, *args):
        try:
            return self.compiled(*args)
        except OURS:
            raise
        except Exception:
            calls = self.calls.forward
        return calls(*args)


def calls_of(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The same calls, without what is known of their results, which takes memory."""
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    for node in graph.nodes:
        node.meta.clear()
    return torch.fx.GraphModule(module, graph)


def writes_inputs() -> bool:
    """Whether the graph that was just compiled, or found on disk, writes to its inputs."""
    context = torch._guards.TracingContext.try_get()
    if context is None:
        return False
    metadata = context.fw_metadata
    traced = metadata is not None and any(x.mutates_data for x in metadata.input_info)
    return traced or getattr(context, FOUND, False)


def tell_written() -> None:
    """Note that the graph that was found on disk writes to its inputs: PyTorch notes nothing of
    what it does not trace."""
    context = torch._guards.TracingContext.try_get()
    if context is not None:
        setattr(context, FOUND, True)
