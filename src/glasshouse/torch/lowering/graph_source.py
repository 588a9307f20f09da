"""The source of a pass's graph: traced by PyTorch, or read from the bytes in its cache."""

from collections.abc import Callable

import torch

from glasshouse.compile.building.disk_cache import digest
from glasshouse.torch.patches.modes import without_modes


class GraphSource:
    """A graph of torch.fx. Once it has bytes, its nodes exist only while they are needed: to lower
    the graph for other sizes, or to compute it operator by operator."""

    def __init__(self, module: torch.fx.GraphModule | None = None) -> None:
        self.graph = module
        # of the graph as PyTorch's cache keeps it
        self.data: bytes = b""
        self.digest: str = ""
        self.unpack: Callable[[bytes], torch.fx.GraphModule] | None = None

    def keep(self, data: bytes, unpack: Callable[[bytes], torch.fx.GraphModule]) -> None:
        """Take the bytes of the graph."""
        self.data, self.digest, self.unpack = data, digest(data), unpack

    @property
    def module(self) -> torch.fx.GraphModule:
        """The graph with its nodes."""
        if self.graph is None:
            assert self.unpack is not None
            with without_modes():
                self.graph = self.unpack(self.data)
        return self.graph

    def forget_nodes(self) -> None:
        """Drop the nodes if bytes can restore them."""
        if self.data:
            self.graph = None
