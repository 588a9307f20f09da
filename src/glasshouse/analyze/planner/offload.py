"""Offloading in plans: blocks whose saved values wait in the host's memory between their passes.

A block's values leave while the next block runs forward, and come back while that one runs
backward: the cost is the time by which the link takes longer. Only for machines with separate
memory; nothing of it is chosen where the host's memory is the device's."""

from itertools import accumulate

from glasshouse.analyze.machine import MachineProfile
from glasshouse.analyze.planner.chain import Course, Stage
from glasshouse.analyze.step_costs import StepAnalysis
from glasshouse.compile.planning.plan_memory import aligned_bytes


class HostLink:
    """Cost of offloading blocks of an analysed step over a machine's link to the host."""

    block_bytes: dict[str | None, int]

    def __init__(
        self, analysis: StepAnalysis, paths: list[str], root: str, machine: MachineProfile
    ) -> None:
        self.analysis = analysis
        self.machine = machine
        self.course: Course = Course(analysis, paths, root)
        self.block_bytes, _ = self.course.held_bytes()
        self.pass_ns: dict[tuple[str | None, bool], float] = {}  # by block; whether forward
        for kernel in analysis.kernels:
            key = self.course.owner_of(kernel.module), kernel.phase == "forward"
            self.pass_ns[key] = self.pass_ns.get(key, 0.0) + kernel.ns

    def next_block(self, path: str) -> str | None:
        """The block that runs next; the last one has none."""
        at = self.course.order.index(path) + 1
        return self.course.order[at] if at < len(self.course.order) else None

    def extra_ns(self, path: str) -> float:
        """Return by how many ns the moves outlast the compute of the next block, both ways."""
        moving_ns = 1e9 * self.block_bytes.get(path, 0) / self.machine.host_bytes_per_s
        next_path = self.next_block(path)
        passes = [self.pass_ns.get((next_path, is_forward), 0.0) for is_forward in (True, False)]
        return sum(max(0.0, moving_ns - ns) for ns in passes)

    def stage(self, path: str, plain: Stage) -> Stage | None:
        """Stage of an offloaded block, which holds nothing; None where no block follows it."""
        if self.next_block(path) is None or not self.block_bytes.get(path):
            return None
        used_bytes = plain.used_bytes + plain.held_bytes
        return Stage(0, used_bytes, plain.ns + self.extra_ns(path))

    def peak_bytes(self, offloaded: set[str]) -> int:
        """Most bytes in use in a step in which these blocks are offloaded: their held bytes are
        away from the end of the next block's forward until its backward."""
        course = self.course
        change = [0] * (len(course.used_bytes) + 1)
        for buffer, (first, last) in course.spans.items():
            path = course.owners[first]
            following = self.next_block(path) if path in offloaded else None
            if following is not None and first < course.turn <= last:
                later = course.passes[following]
                if later.last + 1 < later.back <= last:
                    change[max(first, later.last) + 1] += aligned_bytes(buffer)
                    change[later.back] -= aligned_bytes(buffer)
        totals = [
            used_bytes - away
            for used_bytes, away in zip(course.used_bytes, accumulate(change), strict=False)
        ]
        return self.analysis.peak_bytes - max(course.used_bytes, default=0) + max(totals, default=0)
