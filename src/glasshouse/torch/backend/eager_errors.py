"""Errors of graphs that write to what they are given.

A compiled graph writes to its inputs when all is computed. Eager has written by then what comes
before the operation that raises; so where a compiled graph raises, PyTorch does its calls once
more."""

import warnings

import torch

from glasshouse.base.errors import Explained, raised_at
from glasshouse.base.flags import flags
from glasshouse.compile.building.toolchain import CompileError
from glasshouse.torch.patches.guards import TracingContext

FOUND = "glasshouse_found_writing"  # the attribute of a context of TorchDynamo's
OURS = Explained, CompileError  # told of the compiler, not of values


class RaisesAsEager:
    """A compiled graph that writes to its inputs. Where it raises, they are as they were: PyTorch
    writes what it writes, and raises where it does. If PyTorch raises nothing, the error is a
    fault of ours: the first call warns, and with `strict` each raises it."""

    def __init__(self, compiled, calls: torch.fx.GraphModule, strict: bool = False):
        self.compiled, self.calls, self.strict = compiled, calls, strict
        self.warned = False

    def __call__(self, *args):
        fault = None
        try:
            try:
                return self.compiled(*args)
            except OURS:
                raise
            except Exception as error:
                fault = error
            results = self.calls.forward(*args)
            self.on_fault(fault)
            return results
        finally:
            fault = None  # its traceback has this frame

    def on_fault(self, error: Exception) -> None:
        """Warn, once, that the graph raised what PyTorch does not; raise it if strict is set."""
        if self.strict or flags.strict:
            raise error
        if self.warned:
            return
        self.warned = True
        warnings.warn(
            f"torch.compile: expected the results that PyTorch computes; got {error!r} at "
            f"{raised_at(error)} in the compiled graph, so PyTorch computes such calls. Report it "
            "with the traceback that options={'strict': True} shows.",
            stacklevel=3,
        )


def calls_of(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The same calls, without what is known of their results, which takes memory."""
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    for node in graph.nodes:
        node.meta.clear()
    return torch.fx.GraphModule(module, graph)


def writes_inputs() -> bool:
    """Whether the graph that was just compiled, or found on disk, writes to its inputs."""
    context = TracingContext.try_get()
    if context is None:
        return False
    metadata = context.fw_metadata
    traced = metadata is not None and any(x.mutates_data for x in metadata.input_info)
    return traced or getattr(context, FOUND, False)


def tell_written() -> None:
    """Note that the graph that was found on disk writes to its inputs: PyTorch notes nothing of
    what it does not trace."""
    context = TracingContext.try_get()
    if context is not None:
        setattr(context, FOUND, True)
