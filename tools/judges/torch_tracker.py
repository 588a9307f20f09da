"""The peak of PyTorch's own training steps, as `torch.distributed._tools.MemTracker` counts it."""

import contextlib
import gc
from unittest import mock

import torch
from torch.distributed._tools.mem_tracker import MemTracker
from torch.utils._pytree import tree_leaves

import glasshouse as gh
from glasshouse.capture.guards.class_reads import STANDS_FOR
from glasshouse.torch.front.compilers import Segment
from glasshouse.torch.lowering.variant import CompiledVariant, GraphVariant
from glasshouse.torch.tensors import access as tensor_access


class WithoutHooks(contextlib.nullcontext):
    """In the place of MemTracker's ModTracker: all is one forward pass of no module. Its hooks keep
    the gradients of a module's inputs until the last one is there, which eager alone does not."""

    parents: set = set()
    is_bw = False

    def register_user_hooks(self, *hooks) -> None:
        """Nobody calls them."""

    clear_user_hooks = register_user_hooks


def measured_peaks(step, optimizer, inputs: list, with_hooks: bool = False) -> list[int]:
    """Bytes at the peak of the first of an EagerStep's steps, and of both."""
    tracker, peaks = MemTracker(), []
    if not with_hooks:
        tracker._mod_tracker = WithoutHooks()
    tracker.track_external(step.model, optimizer, inputs)
    gc.collect()
    gc.disable()
    try:
        with tracker:
            for _ in range(2):
                step.run(optimizer, inputs)
                (peak,) = tracker.get_tracker_snapshot("peak").values()
                peaks.append(peak["Total"])
                tracker.reset_mod_stats()
    finally:
        gc.enable()
    return peaks


FIRST = 4  # calls in which a step is captured and compiled
MARK = 1_000_003  # bytes of the first mark: an odd number that no tensor has


class MemoryLog:
    """Memory that PyTorch's allocator and our memory manager hand out and take back, in one order.
    Inside, torch.profiler writes the allocator's events; each of the manager's leaves a mark among
    them, an allocation of a size of its own."""

    def __init__(self):
        self.manager, self.allocated = gh.memory.current(), []
        self.profile = torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
        )

    def __enter__(self):
        self.before = self.manager.stats().allocated_bytes
        self.profile.__enter__()
        self.subscription = self.manager.subscribe(self.mark)
        return self

    def mark(self, event) -> None:
        """Note what the manager has handed out by now."""
        self.allocated.append(event.allocated_bytes)
        torch.empty(MARK + 2 * len(self.allocated) - 2, dtype=torch.uint8)

    @contextlib.contextmanager
    def without_marks(self):
        """Inside, no mark is left: Python of others in a backward pass breaks a graph there."""
        self.subscription.remove()
        yield
        self.subscription = self.manager.subscribe(self.mark)

    def __exit__(self, *exc_info):
        self.manager.catch_up()
        self.subscription.remove()
        self.profile.__exit__(*exc_info)

    def peaks(self, first_bytes: int) -> list[int]:
        """The most bytes in use in each region called "step", of `first_bytes` at first, without
        what TorchDynamo takes for itself when it compiles."""
        events = flattened(self.profile.profiler.kineto_results.experimental_event_tree())
        regions = [(e.start_time_ns, e.end_time_ns) for e in events if e.name == "step"]
        now, ours, peaks, skipped = first_bytes, 0, [0] * len(regions), set()
        memory = [e for e in events if e.tag == torch._C._profiler._EventType.Allocation]
        for event in sorted(memory, key=lambda e: e.start_time_ns):
            nbytes, address = event.extra_fields.alloc_size, event.extra_fields.ptr
            if nbytes > 0 and is_of_compiling(event):
                skipped.add(address)
            if address in skipped:
                skipped -= {address} if nbytes < 0 else set()
                continue
            number = (abs(nbytes) - MARK) // 2
            if 0 <= number < len(self.allocated) and abs(nbytes) % 2:
                ours = self.allocated[number] - self.before
            else:
                now += nbytes
            for i, (begin, end) in enumerate(regions):
                if begin <= event.start_time_ns <= end:
                    peaks[i] = max(peaks[i], now + ours)
        return peaks


def flattened(events) -> list:
    """The events of a tree."""
    return [x for event in events for x in (event, *flattened(event.children))]


def is_of_compiling(event) -> bool:
    """Whether TorchDynamo compiled when something was allocated."""
    while event is not None and "dynamo_timed" not in event.name:
        event = event.parent
    return event is not None


def own_bytes(*parts) -> int:
    """Bytes of the storages of tensors, each once."""
    tensors = [x for x in tree_leaves(parts) if isinstance(x, torch.Tensor)]
    return sum({x.untyped_storage()._cdata: x.untyped_storage().nbytes() for x in tensors}.values())


def compiled_peaks(step, optimizer, inputs: list, steps: int = 2) -> list[int]:
    """Bytes at the peak of each of an EagerStep's steps, its model compiled by our backend.

    Python makes the tensors of results, in place of C, which takes small ones from where nobody
    counts."""
    compiled, manager = torch.compile(step.model, backend="glasshouse"), gh.memory.current()

    def forward(*args, **named):
        result = compiled(*args, **named)
        manager.catch_up()  # it tells what died when it is asked again
        return result

    allocate = CompiledVariant.allocate

    def allocated(*arguments):  # before a segment, of which all results may be small
        manager.catch_up()
        return allocate(*arguments)

    step.forward = forward
    hook = optimizer.register_step_pre_hook(lambda *_: manager.catch_up())
    held = [*step.model.parameters(), *step.model.buffers()]
    first_bytes = own_bytes(held, [x.grad for x in held], list(optimizer.state.values()), inputs)
    gc.collect()
    gc.disable()
    try:
        with (
            mock.patch.object(tensor_access, "native", lambda: None),
            mock.patch.object(CompiledVariant, "allocate", allocated),
            MemoryLog() as log,
        ):
            for _ in range(steps):
                with torch.profiler.record_function("step"):
                    step.run(optimizer, inputs)
    finally:
        gc.enable()
        hook.remove()
    return log.peaks(first_bytes)


def captured_peaks(step, optimizer, inputs: list, steps: int = 2) -> list[int]:
    """Bytes at the peak of each of an EagerStep's steps, captured whole by gh.optimize.

    They are those after the ones in which it is captured and compiled. Optimizers tell
    torch.profiler of no regions of theirs, which would break the graph."""
    manager = gh.memory.current()

    def caught_up(function):
        """The function; before and after it the manager tells what died."""

        def call(*args):
            manager.catch_up()
            result = function(*args)
            manager.catch_up()
            return result

        setattr(call, STANDS_FOR, function)
        return call

    captured = gh.optimize(type(step).run)
    held = [*step.model.parameters(), *step.model.buffers()]
    first_bytes = own_bytes(held, [x.grad for x in held], list(optimizer.state.values()), inputs)
    gc.collect()
    gc.disable()
    try:
        with (
            mock.patch.object(tensor_access, "native", lambda: None),
            mock.patch.object(torch.autograd.profiler, "record_function", contextlib.nullcontext),
            MemoryLog() as log,
        ):
            with log.without_marks():
                for _ in range(FIRST):
                    captured(step, optimizer, inputs)
            with (
                mock.patch.object(Segment, "__call__", caught_up(Segment.__call__)),
                mock.patch.object(torch.Tensor, "backward", caught_up(torch.Tensor.backward)),
                mock.patch.object(GraphVariant, "results", caught_up(GraphVariant.results)),
            ):
                for _ in range(steps):
                    with torch.profiler.record_function("step"):
                        captured(step, optimizer, inputs)
    finally:
        gc.enable()
    return log.peaks(first_bytes)
