"""The state of PyTorch's front end for one trace: a TorchTrace is the tracer's `front_state`."""

from dataclasses import dataclass, field
from types import CodeType
from typing import Any

import torch

from glasshouse.capture.values.var import Var
from glasshouse.dispatch.bind import state
from glasshouse.ir.node import IRNode
from glasshouse.torch.ahead.no_contents import ContentlessMode
from glasshouse.torch.front.state import state_now
from glasshouse.torch.scopes.state_modes import StateModes


@dataclass
class ContextModes:
    """PyTorch's modes after the `with` statements that were entered before the trace."""

    at_start: dict[Any, Any] = field(default_factory=state_now)
    frames: list[Any] = field(
        default_factory=list
    )  # of the `__enter__` and `__exit__` that set modes
    entered: int = 0  # `with` statements of the trace that are open
    outside_frame: Any = None  # the last exit of such a `with`
    outside: StateModes | None = None  # the modes after it


@dataclass
class TraceGradients:
    """The gradients that a trace read, and those that it set."""

    first: dict[int, torch.Tensor | None] = field(default_factory=dict)  # by a tensor's identity
    were_set: set[int] = field(default_factory=set)  # identities of tensors
    sources: set[int] = field(default_factory=set)


@dataclass
class InputWrites:
    """The inputs that a graph writes to, by identity; None where they are not known."""

    any: bool = False
    tensors: dict[int, torch.Tensor] | None = field(default_factory=dict)
    undone: dict[int, torch.Tensor] = field(default_factory=dict)  # where a check fails

    @property
    def bytes(self) -> int | None:
        """The bytes of the written inputs; None where they are not known."""
        return None if self.tensors is None else sum(x.nbytes for x in self.tensors.values())


@dataclass
class InputMemory:
    """The memory of the graph's inputs."""

    places: set[Any] = field(default_factory=set)
    lifted: int = 0  # the number of lifted values whose memory is noted


class TorchTrace:
    """The state of PyTorch's front end for one trace."""

    plain_codes: "set[CodeType]"

    def __init__(self) -> None:
        self.place_before: tuple[Any, str] = state.scope, state.phase
        self.modes: ContextModes = ContextModes()
        self.gradients: TraceGradients = TraceGradients()
        self.writes: InputWrites = InputWrites()
        self.input_memory: InputMemory = InputMemory()
        self.tensor_checks: dict[int, Any] = {}  # by the identity of their sources
        self.read_tensors: dict[IRNode, Var] = {}  # by the node of the number that was read
        self.plain_codes = {ContentlessMode.dispatch.__code__}  # of Python without effects
        self.computed_bytes = 0  # since dead values were dropped
