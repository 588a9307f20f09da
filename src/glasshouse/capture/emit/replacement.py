"""The replacement: Python code that repeats the trace of the first call for a later one.

It reads the inputs, runs the compiled graph, makes new values and repeats the writes. Then it
returns, or has Python run the step that broke the graph and calls resume functions. Its code has
the user's file and line, so that tracebacks show them."""

import re
import types
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from glasshouse.base.errors import OptionError
from glasshouse.base.interrupts import hold, release
from glasshouse.capture.bytecode.native import native
from glasshouse.capture.bytecode.tracebacks import line_table
from glasshouse.capture.emit.continuation import ContinuationEmitter
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import ValueSource
from glasshouse.ir.node import IRNode

if TYPE_CHECKING:
    from glasshouse.capture.sessions.dispatching import Resumer
    from glasshouse.capture.trace.tracer import CaptureTracer


ENTERING = ("__enter__", "__exit__")


class ReplacementEmitter(ContinuationEmitter):
    """Writes the body of a replacement."""

    def __init__(self, tracer: "CaptureTracer", resumer: "Resumer") -> None:
        super().__init__(tracer)
        self.resumer: Resumer = resumer
        # Signals do not come between the writes of the graph and of Python.
        self.holds: bool = bool(tracer.effects.written) and any(map(is_work, tracer.graph.nodes))
        self.holders: list[ValueSource] = []  # containers that are replaced
        self.used_after: set[str] = set()  # names in the statements after the graph

    def function(
        self,
        body: tuple[list[str], list[str]],
        line: int,
        fn: types.FunctionType,
        slots: int,
        graph: Any,
        uncaptured: Callable[..., Any] | None = None,
    ) -> types.FunctionType:
        """The replacement of `fn` by these statements; `uncaptured` runs it, given its slots."""
        root = fn.__code__
        self.used_after = set(re.findall(r"\w+", "\n".join([*self.makes, *body[0], *body[1]])))
        run = self.run_graph(graph) if graph is not None else []
        if uncaptured is not None and len(run) == 1:
            run = self.or_plainly(run, graph, uncaptured, slots)
        work, rest = [*run, *self.makes, *body[0]], body[1]
        if self.holds:
            work = [
                f"{self.pool(hold)}()",
                "try:",
                *(f"    {x}" for x in work),
                "except BaseException:",
                f"    {self.pool(release)}()",
                "    raise",
            ]
        lines = [*self.reads, *work, *rest]
        parameters = [f"s{i}" for i in range(slots)] + list(map(self.source, self.fetched))
        head = f"def replacement({', '.join(parameters)}):"
        text = "\n".join([head, *(f"    {line}" for line in lines)])
        self.names["graph"] = getattr(graph, "run", graph)
        self.names["__name__"] = fn.__globals__.get("__name__")
        self.text = text
        exec(compile(text, root.co_filename, "exec"), self.names)
        replacement: Any = self.names.pop("replacement")
        code = on_one_line(replacement.__code__, line or root.co_firstlineno)
        replacement.__code__ = code.replace(co_name=root.co_name, co_qualname=root.co_qualname)
        return replacement

    def or_plainly(
        self, run: list[str], graph: Any, uncaptured: Callable[..., Any], slots: int
    ) -> list[str]:
        """The statements that run the graph. If it raises, or one of its checks fails, its writes
        are undone, and Python runs the function, which raises at the user's line."""
        tracer = self.tracer
        front, nodes = tracer.front, tracer.graph.nodes
        calls = [x for x in nodes if x.op.startswith("call_") and x.target not in ENTERING]
        wrote = any(front.writes(x.target, x.args) for x in calls)
        keep, before, undo = front.keeper(tracer, wrote), [], []
        changes = wrote or any(x.target in ENTERING for x in nodes)
        # A Program may have overwritten what it replaces.
        lost = changes and keep is None or wrote and hasattr(graph, "run_first")
        others = []
        # Where somebody catches what the graph raises, the front end has seen to it that it may.
        if not tracer.effects.has_caught:
            if changes and tracer.effects.has_checks:
                others = [f"    if not {self.pool(front.is_failed_check)}(error):", "        raise"]
            elif lost:
                return self.leaving(run)
        if tracer.guards.assumptions.places:
            note = partial(tracer.guards.assumptions.failed, front.is_failed_check)
            others.append(f"    {self.pool(note)}(error)")
            before.append(f"{self.pool(tracer.guards.assumptions)}.calls += 1")
        if keep is not None:
            tensors = [self.name(x) for _, x in tracer.operands.inputs if tracer.is_tensor(x)]
            before.append(f"undo = {self.pool(keep)}([{', '.join(tensors)}])")
            undo = ["    undo()"]
        words = "".join(f"s{i}, " for i in range(slots))
        fault = f"None if {self.pool(front.is_failed_check)}(error) else error"
        if any(x.meta.get("handled") for x in calls):  # Python may have raised it, and caught it
            fault = "None"
        plainly = f"{self.pool(native().tail_call)}({self.pool(uncaptured)}, ({words}), {fault})"
        return [
            *before,
            "try:",
            *(f"    {x}" for x in run),
            f"except {self.pool(OptionError)}:",  # a budget that cannot be met
            "    raise",
            "except Exception as error:",
            *others,
            *undo,
            f"    return {plainly}",
        ]

    def leaving(self, run: list[str]) -> list[str]:
        """The statements that run a graph whose errors leave the function."""
        leave = self.tracer.front.leaver(self.tracer)
        if leave is None:
            return run
        lines = ["try:", *(f"    {x}" for x in run), "except BaseException:"]
        return [*lines, f"    {self.pool(leave)}()", "    raise"]

    def run_graph(self, graph: Any) -> list[str]:
        """The statements that run the graph. One with `run_first` takes lists, and may overwrite
        values that are replaced afterwards, if neither a name here nor anybody else has them."""
        names = [self.name(var) for _, var in self.tracer.operands.inputs]
        if not hasattr(graph, "run_first"):
            return [f"o = graph({', '.join(names)})"]
        holders = list(map(self.source, self.holders))
        nodes = (node for node, _ in self.tracer.operands.inputs)
        replaced = {x for x, node in zip(names, nodes, strict=True) if "replaced" in node.meta}
        dropped = {*replaced, *holders} - self.used_after
        dropped = sorted(x for x in dropped if names.count(x) < 2)
        if not dropped:
            return [f"o = graph([{', '.join(names)}])"]
        return [
            f"i, h = [{', '.join(names)}], [{', '.join(holders)}]",
            f"del {', '.join(dropped)}",
            "o = graph(i, h)",
        ]

    def mark_replaced(self) -> None:
        """Mark the graph's tensors that are replaced after the run, or whose containers are.
        `meta["replaced"]` has the numbers of those containers among the `holders`."""
        places = {}
        for owner in self.tracer.effects.written:
            for kind, *parts in owner.log or ():
                anywhere = kind == "item" and self.tracer.varies(parts[0])
                if kind in ("item", "attr") and not anywhere:
                    key = parts[0].value if kind == "item" else parts[0]
                    places[id(owner.origin), kind, key_of(key)] = parts[1]
        for node, var in self.tracer.operands.inputs:
            source, containers, new = var.origin, [], var
            while isinstance(source, ValueSource) and source.kind in ("get", "item"):
                base, kind = source.base, "item"
                if base.kind == "dict":
                    base, kind = base.base, "attr"
                new = places.get((id(base), kind, key_of(source.key)), var)
                if new is not var or kind == "attr":
                    break
                containers.append(base)
                source = base
            if new is not var:
                self.holders += [x for x in containers if x not in self.holders]
                node.meta["replaced"] = tuple(map(self.holders.index, containers))

    def is_used_after(self, source: ValueSource) -> bool:
        """Whether statements after the graph use the value read at a source."""
        name = f"s{source.key}" if source.kind == "slot" else self.variables.get(id(source))
        return name in self.used_after


def key_of(key: Any) -> Any:
    """A key to compare: a string or number by value, another object by identity."""
    return key if type(key) in (str, int) else (id(key),)


def is_work(node: IRNode) -> bool:
    """Whether a node computes something, rather than being part of a `with`."""
    is_context = node.target in ("__enter__", "__exit__") or any(
        u.target == "__enter__" for u in node.users
    )
    return node.op.startswith("call_") and not is_context


def on_one_line(code: types.CodeType, line: int) -> types.CodeType:
    """The code, all of it on one line, functions inside too."""
    constants = (on_one_line(x, line) if type(x) is types.CodeType else x for x in code.co_consts)
    table = line_table(len(code.co_code) // 2, 0)
    return code.replace(co_consts=tuple(constants), co_firstlineno=line, co_linetable=table)
