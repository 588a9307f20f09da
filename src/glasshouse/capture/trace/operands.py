"""The values that a graph takes from outside."""

from typing import Any

from glasshouse.capture.values.var import Var
from glasshouse.ir.node import IRNode


class GraphOperands:
    """The inputs of one graph, and the members of its module."""

    def __init__(self) -> None:
        self.inputs: list[tuple[IRNode, Var]] = []  # of each placeholder
        self.lifted: dict[int, tuple[IRNode, Var]] = {}  # inputs and members, by the Var's id
        self.arrays: dict[tuple[int, Any], Var] = {}  # tensors of arrays, by Var's id and function
        self.members: dict[str, object] = {}  # of the graph's module
        self.snapshots: dict[
            int, tuple[Any, ...]
        ] = {}  # (tensor, its state before) by the tensor's id
        self.shared: set[int] = set()  # tensors that an operation returned unchanged
