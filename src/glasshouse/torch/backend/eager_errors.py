"""Errors of graphs that write to their inputs.

A compiled graph writes to its inputs at its end. Eager writes as it runs, so before an operation
raises, the earlier writes are done. Where a compiled graph raises, PyTorch runs its calls again."""

import warnings
from typing import Any

import torch

from glasshouse.base.errors import Explained, raised_at
from glasshouse.base.flags import flags
from glasshouse.compile.building.toolchain import CompileError
from glasshouse.torch.patches.guards import TracingContext

FOUND = "glasshouse_found_writing"  # the attribute of a context of TorchDynamo's
OURS = Explained, CompileError  # errors of the compiler, not of values


class RaisesAsEager:
    """A compiled graph that writes to its inputs. Where it raises, the inputs are unchanged, and
    PyTorch runs the calls: it makes eager's writes and raises eager's error. If PyTorch raises
    nothing, the error is our fault: the first call warns, and with `strict` each call raises."""

    def __init__(self, compiled: Any, calls: torch.fx.GraphModule, strict: bool = False) -> None:
        self.compiled = compiled
        self.calls = calls
        self.strict = strict
        self.warned: bool = False

    def __call__(self, *args: Any) -> list[torch.Tensor]:
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
        """Warn, once, of an error that PyTorch did not raise; raise it if strict is set."""
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
    """A copy of a graph's calls without `meta`, which takes memory."""
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
    """Note that a graph from the disk writes to its inputs: PyTorch notes that only of graphs that
    it traces."""
    context = TracingContext.try_get()
    if context is not None:
        setattr(context, FOUND, True)
