"""Where the graph of a pass comes from: PyTorch made it, or it is remade of its cache's bytes."""

from collections.abc import Callable

import torch

from glasshouse.compile.building.disk_cache import digest
from glasshouse.torch.patches.modes import without_modes


class GraphSource:
    """A graph of torch.fx. Once it has bytes, its nodes are there only while somebody needs them:
    to lower it for other sizes, or to compute it operator by operator."""

    def __init__(self, module: torch.fx.GraphModule | None = None):
        self.made = module
        self.data, self.digest = b"", ""  # of the graph as PyTorch's cache keeps it
        self.unpack: Callable[[bytes], torch.fx.GraphModule] | None = None

    def keep(self, data: bytes, unpack: Callable[[bytes], torch.fx.GraphModule]) -> None:
        """These bytes are the graph."""
        self.data, self.digest, self.unpack = data, digest(data), unpack

    @property
    def module(self) -> torch.fx.GraphModule:
        """The graph with its nodes."""
        if self.made is None:
            assert self.unpack is not None
            with without_modes():
                self.made = self.unpack(self.data)
        return self.made

    def forget_nodes(self) -> None:
        """Let go of the nodes, if they can be made again."""
        if self.data:
            self.made = None
