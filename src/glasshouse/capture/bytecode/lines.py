"""The user's line of each recorded call, noted while a graph first runs."""

from typing import Any
from weakref import WeakKeyDictionary

from glasshouse.dispatch.bind import state
from glasshouse.dispatch.call import Call
from glasshouse.dispatch.watch import Watcher, also_told
from glasshouse.graph.node import Node
from glasshouse.graph.record import Recording


class LineRecorder(Watcher):
    """Notes "file:line" of each call: the line of the running node, and in a backward pass the line
    of the forward call that is differentiated. A context: it notes the calls inside."""

    wants_begin = False

    def __init__(self) -> None:
        self.now = ""
        # A reference to a recorded node would make it an output.
        self.line_of_node: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        self.forward: dict[int, str] = {}  # by number on the tape

    def op(self, call: "Call", result: Any, begin_ns: int) -> None:
        line = self.forward.get(state.seq, self.now)
        for tensor in result if type(result) is tuple else (result,):
            self.line_of_node[tensor.payload] = line
            if type(result) is tuple:  # each of several results picks from the call's node
                self.line_of_node |= dict.fromkeys(tensor.payload.inputs, line)
            if tensor.tape_entry is not None:
                self.forward.setdefault(tensor.tape_entry.seq, line)

    def of(self, recorded: "Recording") -> dict[int, str]:
        """The lines of a recording by the position of the call."""
        lines = enumerate(map(self.line_of_node.get, recorded.nodes))
        return {place: line for place, line in lines if line}

    def line_of(self, node: "Node") -> str:
        """The line of a recorded node; empty if unknown."""
        return self.line_of_node.get(node, "")

    def __enter__(self) -> "LineRecorder":
        self.watching: Any = also_told(self)
        self.watching.__enter__()
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self.watching.__exit__(*exc_info)
