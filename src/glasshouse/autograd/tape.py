"""The tape: one entry per recorded primitive call, and the walk that pulls cotangents back.

An entry keeps payload snapshots, not tensors, and only those that its rules read. Values being
functional, writing to a tensor rebinds its handle and never harms an entry. A `TapeMode` is a tape
of its own for one gh.grad or gh.vjp: a mode whose values wrap the values below."""

import heapq
import itertools
import weakref
from collections.abc import Callable, Iterator
from contextlib import ContextDecorator, contextmanager
from time import perf_counter_ns
from typing import Any

from glasshouse.base import GradError, Spec, having
from glasshouse.base.flags import flags
from glasshouse.dispatch import Level, Primitive, Value, box, hooks, state, tell, timers, zeros
from glasshouse.dispatch.call import Call, call_of
from glasshouse.dispatch.hooks import Tape

__all__ = ["enable_grad", "is_grad_enabled", "no_grad", "saved_tensors_hooks", "set_grad_enabled"]

sequence: "itertools.count[int]" = itertools.count()
# Keys in place of a slot: hooks called when `.grad` has been added to; at the end of the pass.
AFTERWARDS, AT_END = None, -1


class Leaf:
    """The end of the tape at a tensor that collects its gradient in `.grad`."""

    __slots__ = ("tensor", "seq", "grad_hooks", "__weakref__")
    freed = False
    seq: int
    grad_hooks: Any

    def __init__(self, tensor: Any) -> None:
        self.tensor: weakref.ref[Any] = weakref.ref(tensor)
        self.seq = next(sequence)
        self.grad_hooks = None

    def accumulate(self, cotangent: Any) -> None:
        tensor = self.tensor()
        if tensor is not None:
            if tensor.mode is not None:
                cotangent = tensor.mode.constant(cotangent)
            tensor.grad = cotangent if tensor.grad is None else tensor.grad + cotangent
            for hook in self.hooks_at(AFTERWARDS):
                hook(tensor)

    def hooks_at(self, slot: Any) -> list[Any]:
        """The leaf's hooks for a slot, or for a key in place of one."""
        return [hook for hook_slot, hook in (self.grad_hooks or {}).values() if hook_slot == slot]


class TapeEntry:
    """One step back: `parents` are the places (entry, slot) of its operands on the tape, None for
    those not tracked. `scope` is the module that ran; `seq` counts all entries."""

    __slots__ = ("parents", "mode", "seq", "freed", "grad_hooks", "scope", "__weakref__")
    parents: tuple[Any, ...]
    mode: Any
    seq: int
    freed: bool
    grad_hooks: Any
    scope: Any


class CallEntry(TapeEntry):
    """One recorded call: the places of its operands, and the values that its rules will read."""

    __slots__ = ("call", "saved", "saved_out", "backend")
    call: Call
    saved: tuple[Any, ...]  # payloads of operands, or None
    saved_out: tuple[Any, ...]  # payloads of results, or None
    backend: Any
    parents: tuple[Any, ...]

    @property
    def out_specs(self) -> tuple[Any, ...]:
        """Specs of the results."""
        return self.call.outs

    def pull(
        self, cotangents: list[Value], create_graph: bool, useful: Any = None
    ) -> list[tuple[tuple[Any, ...], Value]]:
        """[(parent, cotangent)] of tracked operands (in `useful`, if given), given one a result."""
        call = self.call
        primitive, specs, outs = call.primitive, call.specs, call.outs
        if primitive.pullback is not None:
            return self.pull_together(cotangents, create_graph, useful)
        g = [zeros(spec) if c is None else c for c, spec in zip(cotangents, outs, strict=True)]
        y, operands = self.revived(create_graph)
        if primitive.num_outputs == 1:
            (g,), (y,) = g, y
        pulled = []
        for i, parent in enumerate(self.parents):
            if parent is None or (useful is not None and parent[0] not in useful):
                continue
            rule = primitive.vjp_rule(i)
            cotangent = rule and rule.fn(g, y, *operands, **call.attrs)
            if cotangent is not None:
                if flags.verify:
                    check_cotangent(primitive, i, cotangent, specs[i])
                pulled.append((parent, cotangent))
        return pulled

    def pull_together(self, cotangents: Any, create_graph: bool, useful: Any) -> Any:
        """The same, where the card has one rule for all operands."""
        is_needed = [p is not None and (useful is None or p[0] in useful) for p in self.parents]
        y, operands = self.revived(create_graph)
        rule, attrs = self.call.primitive.pullback, self.call.attrs
        pulled_back = rule(tuple(is_needed), cotangents, y, *operands, **attrs)
        pairs = zip(self.parents, pulled_back, strict=True)
        return [(parent, cotangent) for parent, cotangent in pairs if cotangent is not None]

    def revived(self, create_graph: bool) -> tuple[list[Any], list[Any]]:
        """(results, operands) as values again; the specs of those that were not kept."""
        results = enumerate(zip(self.saved_out, self.call.outs, strict=True))
        y = [self.revive(data, spec, (self, i), create_graph) for i, (data, spec) in results]
        triples = zip(self.saved, self.call.specs, self.parents, strict=True)
        return y, [self.revive(data, spec, parent, create_graph) for data, spec, parent in triples]

    def revive(self, data: Any, spec: Spec, place: Any, create_graph: bool) -> Any:
        """A saved payload as a value again; its spec alone if it was not kept."""
        if data is None:
            return spec
        if type(data) is Packed:
            data = data.payload(self.backend)
        if self.mode is not None and not create_graph:
            return data
        value = box(data, spec, self.backend)
        value.mode = self.mode
        if create_graph and place is not None and spec.dtype.is_inexact:
            value.tape_entry, value.slot = place
        return value

    def release(self) -> None:
        """Forget the saved values; a later backward pass through this entry is an error."""
        self.freed = True
        self.saved = self.saved_out = self.parents = ()


def check_cotangent(primitive: Primitive, i: int, cotangent: Value, spec: Spec) -> None:
    if cotangent.spec != spec:
        raise AssertionError(
            f"{primitive.name}: expected the cotangent of operand {i} to be "
            f"{spec}; got {cotangent.spec}. Mend the card's vjp."
        )


def record(call: Call, args: Any, result: Any, mode: Any = None) -> None:
    """Put a call on the tape and mark its inexact results as coming from it."""
    outputs = result if call.primitive.num_outputs > 1 else (result,)
    if not any(out.spec.dtype.is_inexact for out in outputs):
        return
    keep_out, keep = call.kept(tuple([arg.tape_entry is not None for arg in args]))
    entry = CallEntry()
    entry.call = call
    entry.parents = tuple(
        [None if arg.tape_entry is None else (arg.tape_entry, arg.slot) for arg in args]
    )
    entry.saved = tuple([arg.payload if k else None for arg, k in zip(args, keep, strict=True)])
    entry.saved_out = tuple([out.payload if keep_out else None for out in outputs])
    entry.backend = outputs[0].backend
    if state.saved_hooks is not None and mode is None:
        entry.saved = packed(args, entry.saved)
        entry.saved_out = packed(outputs, entry.saved_out)
    attach(entry, outputs, mode)


hooks.tape = Tape(record, CallEntry, sequence)


class Packed:
    """A packed saved tensor, and the function that unpacks it."""

    __slots__ = ("packed", "unpack")

    def __init__(self, packed: Any, unpack: Any) -> None:
        self.packed: Any = packed
        self.unpack: Any = unpack

    def payload(self, backend: Any) -> Any:
        tensor = self.unpack(self.packed)
        if tensor.backend is backend:
            return tensor.payload
        return backend.from_numpy(tensor.backend.to_numpy(tensor.payload))


def packed(tensors: Any, payloads: Any) -> tuple[Any, ...]:
    """Saved operands or results of an entry, packed by the hooks in force; leaves, the parameters,
    stay as they are."""
    pack, unpack = state.saved_hooks
    return tuple(
        [
            data
            if data is None or isinstance(x.tape_entry, Leaf)
            else Packed(pack(box(x.payload, x.spec, x.backend), x.tape_entry), unpack)
            for x, data in zip(tensors, payloads, strict=True)
        ]
    )


@contextmanager
def saved_tensors_hooks(pack: Any, unpack: Any) -> Iterator[None]:
    """Context: each tensor saved for backward passes goes through `pack(tensor)`, and the result
    through `unpack` when it is read. `unpack` returns a tensor of equal value.

    Example:
        >>> import glasshouse as gh
        >>> x = gh.tensor([3.0], requires_grad=True)
        >>> with saved_tensors_hooks(lambda t: t.numpy(), gh.asarray):
        ...     y = (x * 2) ** 2
        >>> y.backward()
        >>> x.grad.tolist()
        [24.0]
    """
    with having(state, saved_hooks=(lambda tensor, entry: pack(tensor), unpack)):
        yield


class Walk:
    """One backward pass: visits entries from the newest to the oldest, summing cotangents."""

    def __init__(
        self, retain_graph: bool | None, create_graph: bool, useful: set[Any] | None = None
    ) -> None:
        self.retain_graph: bool = create_graph if retain_graph is None else retain_graph
        self.create_graph = create_graph
        self.useful = useful  # entries that lead to a target, or None for all
        self.heap: list[Any] = []
        self.pending: dict[Any, Any] = {}

    def seed(self, place: tuple[Any, int], cotangent: Value) -> None:
        """Add `cotangent` to the sum at `place` = (entry, slot)."""
        entry, slot = place
        if self.useful is not None and entry not in self.useful:
            return
        slots = self.pending.get(entry)
        if slots is None:
            slots = self.pending[entry] = {}
            heapq.heappush(self.heap, (-entry.seq, id(entry), entry))
        slots[slot] = slots[slot] + cotangent if slot in slots else cotangent

    def run(self, arrive: Callable[..., Any], seeds: Any = ()) -> None:
        """Visit every entry; `arrive(entry, slots)` sees the sums, and says whether to continue."""
        for place, cotangent in seeds:
            self.seed(place, cotangent)
        while self.heap:
            *_, entry = heapq.heappop(self.heap)
            slots = self.pending.pop(entry)
            if entry.freed:
                raise freed_error()
            if entry.grad_hooks:
                run_hooks(entry, slots)
            if arrive(entry, slots) and not isinstance(entry, Leaf):
                state.scope, state.seq = getattr(entry, "scope", None), entry.seq
                begin_ns = perf_counter_ns() if timers else 0
                for place, cotangent in self.pull(entry, slots):
                    self.seed(place, cotangent)
                if begin_ns:
                    tell("pull", entry, begin_ns)
                if not self.retain_graph:
                    entry.release()

    def pull(self, entry: Any, slots: Any) -> list[tuple[tuple[Any, ...], Value]]:
        """[(parent, cotangent)]: replayed, or by the card's rules."""
        useful = self.useful if type(entry) is CallEntry else None
        is_partial = useful is not None and any(p and p[0] not in useful for p in entry.parents)
        pulled = None if is_partial else hooks.pull(entry, slots, self.create_graph)
        if pulled is not None:
            return pulled
        cotangents = [slots.get(i) for i in range(len(entry.out_specs))]
        if is_partial:
            return entry.pull(cotangents, self.create_graph, useful)
        return entry.pull(cotangents, self.create_graph)


def run_hooks(entry: Any, slots: Any) -> None:
    for slot, hook in list(entry.grad_hooks.values()):
        if slot in slots:
            replaced = hook(slots[slot])
            if replaced is not None:
                slots[slot] = replaced


@contextmanager
def without_hooks(nodes: Any) -> Iterator[None]:
    """Inside, hooks of these nodes do not run."""
    before = [(node, node.grad_hooks) for node in nodes]
    for node in nodes:
        node.grad_hooks = None
    try:
        yield
    finally:
        for node, hooks in before:
            node.grad_hooks = hooks


def freed_error() -> Any:
    expected = "a graph that is still there"
    fix = "Pass retain_graph=True to the earlier call, or compute the result again."
    return GradError("backward", expected, "one that an earlier backward freed", fix)


def attach(entry: Any, outputs: Any, mode: Any) -> None:
    """Put an entry on the tape, with its inexact results as coming from it."""
    entry.mode, entry.scope, entry.seq = mode, state.scope, next(sequence)
    entry.freed, entry.grad_hooks = False, None
    for slot, y in enumerate(outputs):
        if y.dtype.is_inexact:
            y.tape_entry, y.slot = entry, slot


@contextmanager
def recording(tape: "TapeMode | None", enabled: bool) -> Iterator[None]:
    """Inside, one tape (None for the base tape) records or not; the others stay as they were."""
    yield from switch_recording([state if tape is None else tape], enabled)


def switch_recording(tapes: list[Any], enabled: bool) -> Iterator[None]:
    """A generator between whose start and end tapes record or not. It also ends when it dies, as
    where an interrupt comes between the end of a `with` and the first line of its __exit__."""
    before = [(tape, tape.records) for tape in tapes]
    try:
        for tape in tapes:
            tape.records = enabled
        yield
    finally:
        for tape, was in before:
            tape.records = was


class grad_mode(ContextDecorator):
    """Context and decorator: inside, tapes record (or do not)."""

    def __init__(self, enabled: bool) -> None:
        self.enabled = enabled
        self.stack: list[Any] = []
        self.outer: list[bool] = []  # whether the base tape recorded around each of the stack

    def __enter__(self) -> None:
        self.outer.append(state.records)
        tapes = [state, *(mode for mode in state.modes if isinstance(mode, TapeMode))]
        self.stack.append(switch_recording(tapes, self.enabled))
        next(self.stack[-1])

    def __exit__(self, *exc_info: object) -> None:
        self.outer.pop()
        next(self.stack.pop(), None)

    def _recreate_cm(self):  # of ContextDecorator: each call has its own
        return grad_mode(self.enabled)


class no_grad(grad_mode):
    """Context and decorator inside which nothing is recorded for backward.

    Example:
        >>> import glasshouse as gh
        >>> x = gh.tensor([1.0], requires_grad=True)
        >>> with gh.no_grad():
        ...     (x * 2).requires_grad
        False
    """

    def __init__(self) -> None:
        super().__init__(False)


class enable_grad(grad_mode):
    """Context and decorator inside which operations are recorded, also within `no_grad`."""

    def __init__(self) -> None:
        super().__init__(True)


class set_grad_enabled(grad_mode):
    """Context inside which recording is on or off, as `enabled` says."""


def is_grad_enabled() -> bool:
    """Whether operations on tracked tensors are recorded now.

    Example:
        >>> is_grad_enabled()
        True
    """
    return state.records


class TapeMode(Level):
    """Records the calls on its own values; other tapes and modes below see them as usual."""

    def __init__(self) -> None:
        self.records = True

    def leaf(self, value: Value) -> Value:
        lifted = self.constant(value)
        lifted.tape_entry = Leaf(lifted)
        return lifted

    def process(
        self,
        primitive: Primitive,
        args: tuple[Value, ...],
        attrs: dict[str, Any],
        below: Callable[..., Any],
    ) -> Any:
        if not any(arg.mode is self for arg in args):
            return below(primitive, args, attrs)
        result = below(primitive, tuple([self.lower(arg) for arg in args]), attrs)
        one = primitive.num_outputs == 1
        lifted = self.constant(result) if one else tuple(map(self.constant, result))
        if (
            self.records
            and primitive.vjp is not None
            and any(arg.tape_entry is not None for arg in args if arg.mode is self)
        ):
            operands = [arg if arg.mode is self else self.constant(arg) for arg in args]
            call = call_of(primitive, [arg.spec for arg in operands], attrs)
            record(call, operands, lifted, mode=self)
        return lifted
