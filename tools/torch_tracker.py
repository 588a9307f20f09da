"""The peak of PyTorch's own training steps, as `torch.distributed._tools.MemTracker` counts it."""

import contextlib
import gc

from torch.distributed._tools.mem_tracker import MemTracker


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
