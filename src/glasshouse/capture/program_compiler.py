"""The default compiler: a captured graph becomes a Program that later calls run directly.

The first call runs the graph on lazy tensors and keeps the Program and where its inputs come from:
the tensors that the graph is given or owns, their gradients, keys of random numbers, numbers. Later
calls hand the arrays over and give the results to the same places. A graph whose results are
differentiated outside gets a second Program for that."""

import gc
import sys
from contextlib import contextmanager
from functools import partial
from threading import get_ident
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from glasshouse.autograd.tape import Leaf, Walk, freed_error, recording, sequence
from glasshouse.base.errors import GradError, OptionError
from glasshouse.base.interrupts import held
from glasshouse.capture.captured_step import CapturedStep, in_use
from glasshouse.capture.front import VARYING
from glasshouse.capture.lines import LineRecorder
from glasshouse.capture.split import GraphHalf, split
from glasshouse.compile.program import compiled, compiled_graph, run_timed, settle, warn_once
from glasshouse.compile.source_map import counts_of
from glasshouse.compile.toolchain import CompileError
from glasshouse.dispatch import backend as backends
from glasshouse.dispatch import zeros
from glasshouse.dispatch.bind import box, state, timers, watchers
from glasshouse.dispatch.scope import phase
from glasshouse.dispatch.watch import Tally
from glasshouse.graph.record import Lazy, computed, describe, is_unshared, pack
from glasshouse.ir.graph_module import GraphModule, Interpreter
from glasshouse.nn.module import Module
from glasshouse.tensor import Tensor, random

# Where a payload comes from, as (kind, number): a handle's data or gradient, a key, a number of the
# forward Program's outputs, a cotangent; or the payload itself.
DATA, GRAD, KEY, OUT, COTANGENT, CONSTANT = range(6)
MAX_PLANS = 64  # sets of sizes and numbers of one graph


class NotCompilable(Exception):
    """A graph that is run as it is, since a Program would not do the same."""


def compile_to_program(graph_module: GraphModule, example_inputs) -> "CompiledGraph":
    """The callable that runs a captured graph as a compiled Program."""
    return CompiledGraph(graph_module)


class CompiledGraph:
    """A captured graph with its Programs: for each set of shapes of tensors, by the numbers that
    became part of a Program; None for what is run as it is. With a `budget` their memory stays
    within it."""

    def __init__(self, module: GraphModule, budget=None):
        self.module, self.budget = module, budget
        self.plans: dict[tuple, list[CapturedProgram | None]] = {}
        self.count = 0  # of all plans
        self.sized = any(node.meta.get("sizes") for node in module.graph.find("placeholder"))

    def __call__(self, *inputs):
        key = ()
        if self.sized:
            key = tuple(x.spec.shape for x in inputs if isinstance(x, Tensor))
        plans = self.plans.get(key, ())
        with held:  # a run overwrites memory: what has it has to know
            for plan in plans:
                if plan is not None and plan.fits(inputs):
                    return plan.run(inputs)
            if None not in plans and self.count < MAX_PLANS and backends.current().name == "lazy":
                return self.first(key, inputs)
        return self.module.run(self.module, *inputs)

    def first(self, key: tuple, inputs):
        """Run the graph on lazy tensors, and keep the Program."""
        backend = backends.current()
        # What the trace of the first call recorded is done again here: nobody needs its values.
        backend.recorder.forget()
        plan = kept = CapturedProgram(self.module, backend, self.budget)
        try:
            plan.record(inputs)
        except NotCompilable:
            kept = None
        self.plans.setdefault(key, []).append(kept)
        self.count += 1
        outs, plan.outs = plan.outs, None
        return outs


class BoundProgram:
    """A Program with where its inputs come from: of a recording, or of a half of it."""

    def __init__(
        self, recorded, known: dict[int, tuple], constants, runner, half: GraphHalf | None = None
    ):
        places = [
            known.get(id(leaf)) or ((CONSTANT, leaf) if id(leaf) in constants else None)
            for leaf in recorded.leaves
        ]
        sources = range(len(places)) if half is None else half.sources
        self.fetches: list[Any] = [places[at] if at >= 0 else (OUT, ~at) for at in sources]
        if None in self.fetches:
            raise NotCompilable
        self.scalars = [
            (runner.links.get(node), node.scalar, node.spec.dtype.kind)
            for node in recorded.nodes
            if node.scalar is not None
        ]
        self.tally = Tally(
            [
                count
                for count in counts_of(recorded)
                if half is None or half.is_first == (count[2] == "forward")
            ]
        )
        self.specs = [recorded.nodes[at].spec for at in recorded.outputs]
        self.events = [-1] * len(recorded.nodes)
        if half is not None:
            self.specs = [node.spec for node in half.graph.outputs]
        try:
            self.program = compiled(recorded) if half is None else compiled_graph(half.graph)
            self.program.lines = runner.lines.of(recorded)
        except CompileError as error:
            warn_once(error)
            raise NotCompilable from None

    def packed(self, inputs) -> list[bytes]:
        """The numbers of a call as the kernels read them."""
        return [known if at is None else pack(inputs[at], kind) for at, known, kind in self.scalars]

    def run(self, payloads: list[Lazy], scalars, donated=(), first: bool = False) -> list:
        """The results as arrays. The calls of a first run were counted as they were recorded."""
        arrays = []
        for x in payloads:
            if not x.value.flags.c_contiguous:
                x.value = np.ascontiguousarray(x.value)
            arrays.append(x.value)
        if not first:
            self.tally.runs[get_ident()] += 1
        if not timers:
            return self.program.run(arrays, scalars, donated)
        run = partial(self.program.run, arrays, scalars, donated)
        return run_timed(self.program, self.events, run)


class CapturedProgram:
    """The Program of a graph (and one for its gradients), and where everything goes."""

    def __init__(self, module: GraphModule, backend, budget=None):
        self.module, self.backend, self.budget = module, backend, budget
        self.owned = owned_tensors(module)
        self.fixed: dict[int, Any] = {}  # inputs that are numbers and became part of the Program
        self.forward: BoundProgram | None = None
        self.backward: BackwardProgram | None = None
        self.outs: Any = None
        self.is_first = True  # of later runs
        self.most_bytes: int | None = None  # in use before a run, for it to be within a budget

    def handles(self, inputs) -> list[Tensor]:
        """All tensors that the graph may read or write."""
        return [*self.owned, *(x for x in inputs if isinstance(x, Tensor))]

    def fits(self, inputs) -> bool:
        """Whether the numbers in the Program are the same now, and a budget will be met."""
        same = all(inputs[i] == number for i, number in self.fixed.items())
        return same and (self.most_bytes is None or in_use() <= self.most_bytes)

    # -- the first run ---------------------------------------------------------------------------

    def record(self, inputs) -> None:
        """Run on lazy tensors; `outs` gets the outputs."""
        handles, known = self.handles(inputs), {}
        told_apart(handles, self.backend)
        before = [(h.payload, h.__dict__.get("grad"), h.node, h.slot) for h in handles]
        for i, (data, grad, _, _) in enumerate(before):
            known.setdefault(id(data), (DATA, i))
            if grad is not None:
                known.setdefault(id(grad.payload), (GRAD, i))
        runner, began = RecordingInterpreter(self.module, self.backend.recorder), next(sequence)
        outs = self.outs = runner.observed(inputs)
        self.keys = [generator for generator, _ in runner.draws]
        known |= {id(key.payload): (KEY, i) for i, (_, key) in enumerate(runner.draws)}
        constants = {id(x): x for x in runner.imported}
        self.fixed = {i: inputs[i] for i in runner.fixed}
        changed = [i for i, h in enumerate(handles) if h.payload is not before[i][0]]
        graded = [i for i, h in enumerate(handles) if h.__dict__.get("grad") is not before[i][1]]
        wanted = [x.payload for x in outs if isinstance(x, Tensor)]
        wanted += [handles[i].payload for i in changed]
        wanted += [handles[i].grad.payload for i in graded if handles[i].grad is not None]
        results = distinct([*outs, *(handles[i] for i in changed)])
        tracked = [x for x in results if is_open(x, began)]
        recorder = self.backend.recorder
        mark = len(recorder.pending)
        if tracked:
            self.backward = BackwardProgram(self, tracked, [b[2:] for b in before], began)
            with unwatched(), runner.lines:
                self.backward.walk(constants)
        pending, recorder.pending, recorder.held_bytes = recorder.pending, [], 0
        if self.budget is not None:
            early = {id(x) for x in pending[:mark]}
            if self.backward is not None:
                wanted += self.backward.wanted()
            recorded = describe(pending, [x for x in wanted if x.value is None])
            del pending
            if recorded is not None:
                old = {i: before[i][1] for i in graded if before[i][1] is not None}
                with undone_if_refused(handles, before, self.keys):
                    step = self.step_of(recorded, early, known, changed, old)
                    self.run_planned(step, recorded, known, constants, runner)
            elif self.backward is not None:
                self.backward.place([], [], known)
        else:
            later = pending[mark:]
            del pending[mark:]
            recorded = describe(pending, [x for x in wanted if x.value is None])
            del pending
            if recorded is not None:
                self.forward = BoundProgram(recorded, known, constants, runner)
                self.run_first(recorded, known)
            if self.backward is not None:
                recorded = describe(later, self.backward.wanted())
                self.backward.compile(recorded, known, constants, runner)
        self.place(outs, handles, changed, graded, known)
        if self.backward is not None:
            self.backward.attach(outs, handles, before, self.nodes, runner.draws, inputs)
        self.nodes = []

    nodes: list[Lazy] = []

    def run_first(self, recorded, known, half: GraphHalf | None = None, count=None) -> None:
        """Run the Program of a recording, or of its first half, for the first `count` outputs."""
        leaves, donated, owns = recorded.leaves, recorded.donated, self.forward.program.owns
        if half is not None:  # its inputs are read again in the backward pass
            leaves, donated = [leaves[at] for at in half.sources], ()
        values = self.forward.run(leaves, recorded.scalars, donated, first=True)
        made = list(map(computed, values, self.forward.specs, owns))
        self.nodes = [recorded.nodes[at] for at in recorded.outputs[:count]]
        self.nodes += made[len(self.nodes) :]
        settle(recorded, values[:count], owns)
        known |= {id(x): (OUT, k) for k, x in enumerate(self.nodes)}

    def step_of(self, recorded, early: set[int], known, changed, old) -> CapturedStep:
        """What a budget is planned for. `early` has what was recorded before the gradients of the
        results, `old` the gradients that a run replaces."""
        if self.backward is not None:
            order = [id(x) in early for x in recorded.nodes]
            at = order.count(True)
            if not all(order[:at]):
                raise NotCompilable
            count = sum(place < at for place in recorded.outputs)
            return CapturedStep(recorded, count, given=[s.nbytes for s in self.backward.specs])
        places = [known.get(id(leaf), (None, None)) for leaf in recorded.leaves]
        donated = [
            n
            for n, (kind, i) in enumerate(places)
            if kind == DATA and i in changed and recorded.leaves[n].owned
        ]
        freed = [x.nbytes for i, x in old.items() if (GRAD, i) not in places and x.payload.owned]
        return CapturedStep(recorded, None, donated, freed)

    def run_planned(self, step: CapturedStep, recorded, known, constants, runner) -> None:
        """Make the Program, or those of both passes, such that they stay within the budget; run the
        first."""
        blocks, most_bytes = self.budget.plan(step, recorded)
        with step.applied(blocks):
            if step.count is None:
                self.forward = BoundProgram(recorded, known, constants, runner)
                self.run_first(recorded, known)
                return
            self.most_bytes = most_bytes  # an optimizer may make its state outside of the graph
            first, second = split(step.rewritten(), step.count)
            self.forward = BoundProgram(recorded, known, constants, runner, first)
            own = {**known, **self.backward.known}
            self.backward.part = BoundProgram(recorded, own, constants, runner, second)
            self.run_first(recorded, known, first, step.count)
            self.backward.place(recorded.nodes, recorded.outputs[step.count :], known)

    def place(self, outs, handles, changed, graded, known) -> None:
        """Note where each result goes in later runs."""
        index = {id(h): i for i, h in enumerate(handles)}
        gradients = {id(handles[i].grad): i for i in graded if handles[i].grad is not None}

        def source(tensor) -> tuple:
            return known.get(id(tensor.payload), (CONSTANT, tensor.payload))

        self.results: list[tuple] = []
        for out in outs:
            if not isinstance(out, Tensor):
                self.results.append((None, None, out))
            elif id(out) in index:
                self.results.append((None, index[id(out)], None))
            elif id(out) in gradients:
                self.results.append((None, None, GradientOutput(gradients[id(out)])))
            else:
                self.results.append((source(out), is_spent(out.node), out.spec))
        self.updates = [(i, source(handles[i]), handles[i].spec) for i in changed]
        self.grads = [
            (i, None if g is None else source(g), None if g is None else g.spec)
            for i, g in ((i, handles[i].grad) for i in graded)
        ]
        moved = set(changed)
        fetches = self.forward.fetches if self.forward is not None else []
        self.donors = [(n, i) for n, (k, i) in enumerate(fetches) if k == DATA and i in moved]
        # Gradients that a run replaces and does not read: their memory serves the run.
        places = [*fetches, *(r[0] for r in self.results), *(u[1] for u in self.updates)]
        places += [place for _, place, _ in self.grads]
        read = {place[1] for place in places if place is not None and place[0] == GRAD}
        self.replaced = [i for i, *_ in self.grads if i not in read and self.backward is None]

    # -- later runs ------------------------------------------------------------------------------

    def run(self, inputs) -> tuple:
        """Run the Program; the outputs."""
        if self.budget is not None and self.is_first:
            gc.collect()  # capturing left cycles that hold what the first run replaced
        self.is_first = False
        handles = self.handles(inputs)
        if self.updates and len(set(map(id, handles))) < len(handles):
            return self.module.run(self.module, *inputs)  # one tensor given twice, and written to
        for h in handles:
            data = h.payload
            if type(data) is not Lazy or data.value is None:
                ready(h, self.backend)
        data = [h.payload for h in handles]
        keys = [generator.key() for generator in self.keys]
        sources = RunPayloads(data, handles, keys, self.backend)
        if self.forward is not None:
            donated = () if self.backward is not None else self.donated(data)
            payloads = [sources.get(place) for place in self.forward.fetches]
            scalars = self.forward.packed(inputs)
            for i in self.replaced:
                handles[i].grad = None
            values = self.forward.run(payloads, scalars, donated)
            owns = self.forward.program.owns
            specs = self.forward.specs
            sources.outs = [computed(v, s, o) for v, s, o in zip(values, specs, owns, strict=True)]
        get, backend = sources.get, self.backend
        before = [(d, None, h.node, h.slot) for d, h in zip(data, handles, strict=True)]
        news = [(i, get(place), spec) for i, place, spec in self.updates]
        graded = [(i, None if p is None else box(get(p), s, backend)) for i, p, s in self.grads]
        made = [self.result(r, handles, get) for r in self.results]
        for i, payload, spec in news:
            h = handles[i]
            h.payload, h.spec, h.backend = payload, spec, backend
        for i, grad in graded:
            handles[i].grad = grad
        outs = tuple(handles[x].grad if type(x) is GradientOutput else x for x in made)
        if self.backward is not None:
            draws = list(zip(self.keys, keys, strict=True))
            self.backward.attach(outs, handles, before, sources.outs, draws, inputs)
        return outs

    def result(self, entry: tuple, handles, get):
        """One output."""
        place, what, spec = entry
        if place is None:
            return spec if what is None else handles[what]
        tensor = box(get(place), spec, self.backend)
        if what:
            tensor.node = SpentNode(spec)
        return tensor

    def donated(self, data: list[Lazy]) -> list[int]:
        """The inputs whose memory this run may overwrite: nobody else will read them."""
        found = []
        for number, i in self.donors:
            payload = data[i]
            # In the handle, in `data`, in `payload`, in the argument.
            if payload.owned and sys.getrefcount(payload) <= 4 and is_unshared(payload):
                found.append(number)
        return found


class GradientOutput(int):
    """The number of the tensor whose gradient an output is."""


class RunPayloads:
    """The payloads of one run by place."""

    __slots__ = ("payloads", "handles", "keys", "outs", "backend", "cotangents")

    def __init__(self, data, handles, keys, backend):
        self.payloads, self.handles, self.keys, self.backend = data, handles, keys, backend
        self.outs: list[Lazy] = []
        self.cotangents: list[Lazy] = []

    def get(self, place: tuple) -> Lazy:
        kind, at = place
        if kind == DATA:
            return self.payloads[at]
        if kind == OUT:
            return self.outs[at]
        if kind == GRAD:
            ready(self.handles[at].grad, self.backend)
            return self.handles[at].grad.payload
        if kind == KEY:
            return self.keys[at].payload
        return self.cotangents[at] if kind == COTANGENT else at


@contextmanager
def undone_if_refused(handles: list[Tensor], before, generators):
    """Context: where a budget cannot be met, tensors and generators are as before the call."""
    try:
        yield
    except OptionError:
        for h, (data, grad, node, slot) in zip(handles, before, strict=True):
            h.payload, h.spec, h.grad, h.node, h.slot = data, data.spec, grad, node, slot
        for generator in generators:
            generator.draws -= 1
        raise


@contextmanager
def unwatched():
    """Inside, nobody is told of calls: they are recorded for later."""
    told = watchers[:], timers[:]
    watchers.clear(), timers.clear()
    try:
        yield
    finally:
        watchers[:], timers[:] = told


class ScopedInterpreter(Interpreter):
    """Runs a graph with each call in the module that it belongs to."""

    def run(self, *args):
        outer = state.scope
        try:
            return super().run(*args)
        finally:
            state.scope = outer

    def run_node(self, node):
        if "scope" in node.meta:
            state.scope = node.meta["scope"]
        return super().run_node(node)


def eager(graph_module, example_inputs):
    """The compiler that runs the graph as it is."""

    def run(*inputs):
        return ScopedInterpreter(graph_module).run(*inputs) if watchers else forward(*inputs)

    forward = graph_module.forward
    return run


class RecordingInterpreter(ScopedInterpreter):
    """Runs a graph and notes which recorded scalars it was given as numbers, and the lines."""

    def __init__(self, module: GraphModule, recorder):
        super().__init__(module)
        self.recorder = recorder
        # The number of the input for a recorded scalar; a reference here would make it an output.
        self.links: WeakKeyDictionary[Lazy, int] = WeakKeyDictionary()
        self.fixed: set[int] = set()
        self.draws: list = []
        self.imported: list[Lazy] = []
        self.lines = LineRecorder()
        self.order = {n: i for i, n in enumerate(module.graph.find("placeholder"))}

    def observed(self, inputs) -> tuple:
        """The outputs; draws of random keys and arrays from outside are noted."""
        self.recorder.imported = self.imported
        random.observers.append(self.draws)
        try:
            with self.lines:
                return self.run(*inputs)
        finally:
            self.recorder.imported = None
            random.observers[:] = [x for x in random.observers if x is not self.draws]
            self.env = {}

    def run_node(self, node):
        self.lines.now = node.meta.get("user", "")
        numbers = [x for x in node.all_input_nodes if x.meta.get("number")]
        if not numbers or node.op == "output":
            return super().run_node(node)
        recorder, mark = self.recorder, len(self.recorder.pending)
        recorder.varying = True
        try:
            result = super().run_node(node)
        finally:
            recorder.varying = False
        scalars = [x for x in recorder.pending[mark:] if x.scalar is not None]
        if len(numbers) == len(scalars) == 1 and node.target in VARYING:
            self.links[scalars[0]] = self.order[numbers[0]]
        else:
            self.fixed |= {self.order[x] for x in numbers}
        return result


class BackwardProgram:
    """The gradients of a graph's results with respect to the tensors it read, as a Program."""

    def __init__(self, plan: CapturedProgram, tracked: list[Tensor], nodes, began: int):
        self.plan, self.tracked, self.nodes, self.began = plan, tracked, nodes, began
        self.specs = [x.spec for x in tracked]
        self.part: BoundProgram | None = None

    def walk(self, constants: dict) -> None:
        """Record the gradients for cotangents that are given later."""
        backend = self.plan.backend
        self.places = {
            (n, s): i for i, (n, s) in reversed(list(enumerate(self.nodes))) if n is not None
        }
        targets = {node for node, _ in self.places}
        arrived: dict = {}
        cotangents = [backend.from_numpy(np.zeros(s.shape, s.dtype.np)) for s in self.specs]
        constants |= {id(x): x for x in cotangents}
        self.known = {id(x): (COTANGENT, j) for j, x in enumerate(cotangents)}
        self.cotangents = cotangents
        ends = [reached(x.node, targets) for x in self.tracked]
        self.reached = [{i for (n, _), i in self.places.items() if n in end} for end in ends]
        walk = Walk(False, False)

        def arrive(node, slots) -> bool:
            if node in targets:
                arrived[node] = slots
                return False
            if isinstance(node, Leaf) or node.seq < self.began:
                raise NotCompilable
            return True

        with without_hooks(targets), recording(None, False), phase("backward"):
            for tensor, payload in zip(self.tracked, cotangents, strict=True):
                seed = box(payload, tensor.spec, backend)
                walk.seed((tensor.node, tensor.slot), seed)
            walk.run(arrive)
        self.found = {
            i: arrived[n][s] for (n, s), i in self.places.items() if s in arrived.get(n, ())
        }

    def wanted(self) -> list[Lazy]:
        """The gradients that are still to be computed."""
        return [g.payload for g in self.found.values() if g.payload.value is None]

    def compile(self, recorded, known, constants, runner) -> None:
        """Make the Program of what was recorded."""
        if recorded is None:
            return self.place([], [], known)
        self.part = BoundProgram(recorded, {**known, **self.known}, constants, runner)
        return self.place(recorded.nodes, recorded.outputs, known)

    def place(self, nodes, outputs, known) -> None:
        """Note where each gradient comes from; the Program makes these outputs."""
        known = {**known, **self.known} | {id(nodes[at]): (-1, k) for k, at in enumerate(outputs)}
        self.grads = [
            (i, known.get(id(g.payload), (CONSTANT, g.payload)), g.spec)
            for i, g in self.found.items()
        ]
        del self.found, self.cotangents, self.nodes, self.places  # the first call's tape

    def attach(self, outs, handles, before, nodes, draws, inputs) -> None:
        """Put one node on the tape behind the results of a run."""
        if self.tracked:
            where = {id(x): ("out", k) for k, x in enumerate(outs)}
            where |= {id(h): ("handle", i) for i, h in enumerate(handles)}
            self.slots = [where[id(x)] for x in self.tracked]
            self.tracked = []
        data, keys = [b[0] for b in before], [key for _, key in draws]
        sources = RunPayloads(data, handles, keys, self.plan.backend)
        sources.outs = list(nodes)
        scalars = self.part.packed(inputs) if self.part is not None else []
        node = ProgramNode(self, sources, scalars, [b[2:] for b in before])
        for slot, (kind, at) in enumerate(self.slots):
            tensor = (outs if kind == "out" else handles)[at]
            tensor.node, tensor.slot = node, slot


@contextmanager
def without_hooks(nodes):
    """Inside, hooks of these nodes do not run: they will, when gradients really arrive there."""
    before = [(node, node.grad_hooks) for node in nodes]
    for node in nodes:
        node.grad_hooks = None
    try:
        yield
    finally:
        for node, kept in before:
            node.grad_hooks = kept


def reached(start, targets) -> set:
    """Which of the targets a node on the tape leads to."""
    return {node for node in on_tape([start], targets) if node in targets}


def on_tape(starts, ends=()):
    """The nodes of a tape from some on, each once, not looking behind leaves and `ends`."""
    seen, stack = set(), list(starts)
    while stack:
        node = stack.pop()
        if node is not None and node not in seen:
            seen.add(node)
            yield node
            if node not in ends:
                stack.extend(p[0] for p in getattr(node, "parents", ()) if p is not None)


class SpentNode:
    """The tape's node of a result whose backward was part of the graph."""

    def __init__(self, spec):
        self.out_specs, self.seq, self.freed = [spec], next(sequence), True
        self.grad_hooks = self.scope = None
        self.parents: tuple = ()

    def pull(self, cotangents, create_graph: bool):
        raise freed_error()

    def release(self) -> None:
        """Nothing is kept."""


class ProgramNode:
    """The tape's node of a captured graph: pulls back by running a Program."""

    freed = False
    grad_hooks = scope = None

    def __init__(self, backward: BackwardProgram, sources: RunPayloads, scalars, places):
        self.backward, self.sources, self.scalars = backward, sources, scalars
        self.places = [places[i] for i, _, _ in backward.grads]
        self.parents = tuple(self.places)
        self.out_specs, self.seq = backward.specs, next(sequence)

    def pull(self, cotangents, create_graph: bool):
        """[(parent, cotangent)] for what the graph read."""
        if create_graph:
            what = "gradients of a captured function without create_graph"
            fix = "Call the function under gh.disable() for higher derivatives."
            raise GradError("backward", what, "create_graph=True", fix)
        backend, part, sources = self.backward.plan.backend, self.backward.part, self.sources
        pairs = zip(cotangents, self.out_specs, strict=True)
        given = [zeros(spec) if c is None else c for c, spec in pairs]
        for tensor in given:
            ready(tensor, backend)
        sources.cotangents = [tensor.payload for tensor in given]
        values: list = []
        if part is not None:
            found = part.run([sources.get(p) for p in part.fetches], self.scalars)
            owns = part.program.owns
            values = [computed(v, s, o) for v, s, o in zip(found, part.specs, owns, strict=True)]
        reached = zip(self.backward.reached, cotangents, strict=True)
        fed = set().union(*(places for places, c in reached if c is not None))
        return [
            (place, box(values[at] if kind == -1 else sources.get((kind, at)), spec, backend))
            for place, (i, (kind, at), spec) in zip(self.places, self.backward.grads, strict=True)
            if i in fed
        ]

    def release(self) -> None:
        self.freed = True
        self.sources = self.places = self.parents = ()


def is_open(x, began: int) -> bool:
    """Whether a result's tape starts in the graph and waits for a backward pass."""
    node = x.node if isinstance(x, Tensor) else None
    leads = node is not None and not isinstance(node, Leaf) and node.seq > began
    return leads and not is_spent(node)


def is_spent(start) -> bool:
    """Whether a tape leads to what a backward pass has freed."""
    return any(not isinstance(node, Leaf) and node.freed for node in on_tape([start]))


def owned_tensors(module: GraphModule) -> list[Tensor]:
    """The tensors that a graph's module has, each once."""
    found: dict[int, Tensor] = {}
    for value in module.__dict__.values():
        if isinstance(value, Tensor):
            found.setdefault(id(value), value)
    inner = [m for m in module.__dict__.values() if isinstance(m, Module)]
    for part in (module, *inner):
        for x in (*part.parameters(), *part.buffers()):
            found.setdefault(id(x), x)
    return list(found.values())


def distinct(values) -> list:
    return list({id(x): x for x in values}.values())


def told_apart(handles: list[Tensor], backend) -> None:
    """Have tensors and their gradients computed, each with a payload of its own."""
    seen: dict[int, Lazy] = {}
    tensors = distinct(t for h in handles for t in (h, h.__dict__.get("grad")) if t is not None)
    backend.evaluate(tuple(t.payload for t in tensors if t.backend is backend))
    for tensor in tensors:
        ready(tensor, backend)
        payload = tensor.payload
        if id(payload) in seen:
            payload.owned = False
            payload = tensor.payload = computed(payload.value, payload.spec, False)
        seen[id(payload)] = payload


def ready(tensor: Tensor, backend) -> None:
    """Have a tensor on the backend, computed."""
    if tensor.backend is not backend:
        tensor.payload, tensor.backend = backend.from_numpy(tensor.numpy()), backend
    if tensor.payload.value is None:
        backend.evaluate((tensor.payload,))
