"""Traces for HolisticTraceAnalysis (HTA): kernels as a device's, and their launches.

HTA knows PyTorch's traces of GPUs, by their names. So whole µs (it rounds others apart), `aten::`
before primitives, `cudaLaunchKernel` for every launch and `ncclKernel` for every reduction. The
records alone show the steps that ran: steps of a device, with its streams and times; without a
device, the kernels on the CPU as stream 7 of device 0 (8 and more for further threads), which is
labelled so. Each is launched by the last call that it computes (a recorded call waits as a launched
one does), or by its Program's run. Counters are the cards'."""

from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np

from glasshouse.profile import record as recorded
from glasshouse.profile.at_once import with_kernels
from glasshouse.profile.traces.chrome import (
    DEVICES,
    EXECUTION,
    OVERLAPS,
    Exporter,
    KernelSlice,
    Slice,
)
from glasshouse.profile.transfers import Transfer

STREAM = 7  # of the kernels on the CPU: PyTorch's number of the default stream
COUNTERS = OVERLAPS + 900
US = 1_000  # ns
LAUNCHES = {"gpu_memcpy": "cudaMemcpyAsync", "collective": "cudaLaunchKernelExC"}
REGION = "gpu_user_annotation"
BANDWIDTH = "memory bandwidth (GB/s)"
NUMBERS = ("stream", "correlation", "device", BANDWIDTH)  # that equal kernels do not share
DEVICE = ("kernel", "gpu_memcpy", REGION)


class HtaExporter(Exporter):
    def name_of_call(self, name: str) -> str:
        """Name a call for HTA; PyTorch's names have their namespace already."""
        return name if "::" in name else f"aten::{name}"

    def __init__(self, trace: Any, shapes: bool) -> None:
        super().__init__(with_kernels(trace), shapes)
        self.recording = trace
        trace = self.trace
        self.has_device: bool = bool((trace.steps.device >= 0).any())

    def time(self, ns: int) -> int:
        return int(ns) // US

    def duration(self, begin: int, end: int) -> int:
        return self.time(end) - self.time(begin)

    def kernels(self) -> Iterator[KernelSlice]:
        for k in super().kernels():
            if "stream" in k.slice.args:
                yield k

    def shown(self, kernel: KernelSlice, info: Any) -> KernelSlice:
        """Add the stream, and name a copy or collective as HTA does."""
        steps, (s, events, row) = self.trace.steps, kernel
        program = self.trace.programs[int(steps.program[row])]
        of_host = info.group and not isinstance(program, Transfer)  # it starts, or waits
        if steps.device[row] < 0 and (self.has_device or of_host):
            return kernel
        device, stream = 0, STREAM + int(steps.thread[row])
        if self.has_device:
            device, stream = int(steps.device[row]), int(steps.stream[row])
        numbers = {"stream": stream, "correlation": row + 1, "device": device}
        name, category, more = s.name, s.category, {}
        if info.group:
            name, more = f"ncclKernel_{name}", {"ranks": list(info.group)}
        elif info.transfer or not info.sources:
            name, category = f"Memcpy {info.transfer or 'DtoD'} ({name})", "gpu_memcpy"
            numbers[BANDWIDTH] = info.written_bytes / max(1, s.end - s.begin)
            more = {"bytes": info.written_bytes}
        args = numbers | s.args | more
        return KernelSlice(s._replace(name=name, category=category, args=args), events, row)

    def run_slices(self) -> Iterator[Slice]:
        for s in chain(super().run_slices(), self.runs_of_calls()):
            args = s.args | {"External id": 0}
            yield s._replace(
                track=s.track - EXECUTION + 1, name=f"aten::{s.name}", category="cpu_op", args=args
            )

    def runs_of_calls(self) -> Iterator[Slice]:
        """The runs of calls that were computed at once."""
        steps, start = self.trace.steps, self.trace.begin_ns
        for row in np.flatnonzero(steps.run < 0).tolist():
            begin, end = int(steps.begin[row]) - start, int(steps.end[row]) - start
            track, name = EXECUTION + int(steps.thread[row]), f"program {steps.program[row]}"
            yield Slice(track, begin, end, name, "program", {"steps": 1})

    def beside_kernels(self, kernels: list[KernelSlice]) -> Iterator[Slice]:
        """Slices beside kernels: launches, and the streams' views of steps and annotations."""
        yield from chain.from_iterable(map(self.launch_slices, kernels))
        streams: dict[int, list[tuple[int, Slice]]] = {}
        for k in kernels:
            handed = int(self.trace.steps.launch[k.row]) - self.trace.begin_ns
            at = handed if self.has_device else k.slice.begin
            streams.setdefault(k.slice.track, []).append((at, k.slice))
        for i, e in enumerate(self.trace.events):
            if e["kind"] in (recorded.STEP, recorded.ANNOTATION):
                host = self.place[i]
                for ran in streams.values():
                    yield from region([s for at, s in ran if host.begin <= at < host.end], host)

    def slice_record(self, s: Slice) -> dict[Any, Any]:
        record = super().slice_record(s)
        if s.category in DEVICE:
            moved = OVERLAPS <= s.track < DEVICES
            record |= {"pid": s.args["device"], "tid": s.track if moved else s.args["stream"]}
        if s.category == REGION:
            record["args"] = {}  # a slice with a stream counts as a kernel
        return record

    def names(self, tracks: set[int]) -> Iterator[dict[Any, Any]]:
        steps = self.trace.steps
        yield from super().names({t for t in tracks if t < EXECUTION or t >= 2 * EXECUTION})
        places = zip(steps.device, steps.stream)
        device_streams = sorted({(int(d), int(s)) for d, s in places if d >= 0})
        threads = sorted({0, *steps.thread.tolist()})
        for device, stream in device_streams or [(0, STREAM + thread) for thread in threads]:
            label = "" if device_streams else " (kernels on the CPU)"
            yield self.meta("process_name", 0, {"name": f"glasshouse device {device}"}, device)
            yield self.meta("process_labels", 0, {"labels": f"GPU {device}"}, device)
            yield self.meta("thread_name", stream, {"name": f"stream {stream}{label}"}, device)

    # -- launches ------------------------------------------------------------------------------

    def kernel_arrows(
        self, kernels: list[KernelSlice], beside: list[Slice]
    ) -> Iterator[dict[Any, Any]]:
        """Arrows from calls, and counters of kernels; HTA pairs launches by their numbers."""
        yield from super().kernel_arrows(kernels, [])
        for k in kernels:
            if k.slice.category == "kernel":
                info = self.trace.info(k.slice.args["program"], k.slice.args["step"])
                begin, end, _ = self.launch_of(k)
                yield {
                    "ph": "X",
                    "cat": "cuda_profiler_range",
                    "name": k.slice.name,
                    "pid": self.pid,
                    "tid": COUNTERS,
                    "ts": self.time(begin),
                    "dur": self.duration(begin, end),
                    "args": counters(info, k.slice),
                }

    def launch_slices(self, k: KernelSlice) -> Iterator[Slice]:
        """The launch of a kernel, and PyTorch's record of a collective."""
        begin, end, caller = self.launch_of(k)
        info = self.trace.info(k.slice.args["program"], k.slice.args["step"])
        track = int(self.trace.steps.thread[k.row]) + 1
        if info.group:
            args = self.collective_args(info, k.row)
            yield Slice(track, begin, end, "record_param_comms", "cpu_op", args)
        args = {"correlation": k.row + 1, "External id": caller, "cbid": 211}
        name = launch_name(info, k.slice.category)
        yield Slice(track, begin, end, name, "cuda_runtime", args)

    def launch_of(self, k: KernelSlice) -> tuple[int, int, int]:
        """(from, to, External id of the caller), a µs or longer as written: the device's times;
        else in the last call that the kernel computes and that takes as long; else in its Program's
        run."""
        trace, row = self.trace, k.row
        first, last = (t - trace.begin_ns for t in self.run_times(row))
        if self.has_device:
            begin, end = (
                int(t[row]) - trace.begin_ns for t in (trace.steps.launch, trace.steps.launched)
            )
            begin = min(begin, last - US)
            return begin, max(end, self.next_us(begin)), 0
        for event in reversed(k.events):
            host = self.place[event]
            if self.duration(host.begin, host.end):
                return host.begin, self.next_us(host.begin), event + 1
        begin = max(first, min(k.slice.begin, last - US))
        return begin, self.next_us(begin), 0

    def next_us(self, ns: int) -> int:
        """The end of the written µs in which a time lies."""
        return US * (self.time(ns) + 1)

    def run_times(self, row: int) -> tuple[int, int]:
        """Begin and end of the run that a row of `trace.steps` is of."""
        steps = self.trace.steps
        if steps.run[row] < 0:
            return int(steps.begin[row]), int(steps.end[row])
        run = self.trace.runs[steps.run[row]]
        return run.begin_ns, run.end_ns

    def collective_args(self, info: Any, row: int) -> dict[Any, Any]:
        out = info.sources[0].call.out if info.sources else None
        return {
            "Collective name": info.name,
            "dtype": out.dtype.name if out else "",
            "In msg nelems": out.size if out else 0,
            "Out msg nelems": out.size if out else 0,
            "Group size": len(info.group),
            "Process Group Ranks": str(list(info.group)),
            "Rank": self.trace.rank,
            "Seq": row,
        }


def launch_name(info: Any, category: str) -> str:
    """The name of the launch of a kernel of this category."""
    return LAUNCHES.get("collective" if info.group else category, "cudaLaunchKernel")


def region(ran: list[Slice], host: Slice) -> Iterator[Slice]:
    """A stream's view of a region of the host: from its first kernel to its last."""
    if ran:
        args = {name: ran[0].args[name] for name in ("stream", "device")}
        begin, end = min(s.begin for s in ran), max(s.end for s in ran)
        yield Slice(ran[0].track, begin, end, host.name, REGION, args)


def counters(info: Any, s: Slice) -> dict[Any, Any]:
    ns = max(1, s.end - s.begin)
    return {
        "flops": info.flops,
        "moved_bytes": info.bytes,
        "flops_per_s": info.flops * 10**9 // ns,
        "bytes_per_s": info.bytes * 10**9 // ns,
    }
