"""Traces for HolisticTraceAnalysis (HTA): kernels as those of a device, and what launched them.

HTA knows PyTorch's traces of GPUs, by their names. So whole µs (it rounds others apart), `aten::`
before primitives, `cudaLaunchKernel` and `ncclKernel` for whatever hands over and whatever
reduces. What did run is told by the records alone: steps of a device, with the streams and times
that it gave; where no device took part, the kernels on the CPU as stream 7 of device 0 (8 and more
of further threads), which is labelled so, each launched by the last call that it computes (a
recorded call waits as a launched one does), or by its Program's run. Counters are the cards'."""

from collections.abc import Iterator

from glasshouse.profile import record as recorded
from glasshouse.profile.at_once import with_kernels
from glasshouse.profile.chrome import DEVICES, EXECUTION, OVERLAPS, Exporter, KernelSlice, Slice
from glasshouse.profile.transfers import Transfer

STREAM = 7  # of the kernels on the CPU: PyTorch's number of the default stream
COUNTERS = OVERLAPS + 900
LAUNCHES = {"gpu_memcpy": "cudaMemcpyAsync", "collective": "cudaLaunchKernelExC"}
REGION = "gpu_user_annotation"
DEVICE = ("kernel", "gpu_memcpy", REGION)


class HtaExporter(Exporter):
    def name_of_call(self, name: str) -> str:
        """PyTorch's own names have their namespace already."""
        return name if "::" in name else f"aten::{name}"

    def __init__(self, trace, shapes: bool):
        super().__init__(with_kernels(trace), shapes)
        trace = self.trace
        self.has_device = bool((trace.steps.device >= 0).any())

    def time(self, ns: int) -> int:
        return int(ns) // 1000

    def kernels(self) -> Iterator[KernelSlice]:
        for k in super().kernels():
            if "stream" in k.slice.args:
                yield k

    def shown(self, kernel: KernelSlice, info) -> KernelSlice:
        """With its stream, and a copy or collective by the name that HTA knows."""
        steps, (s, events, row) = self.trace.steps, kernel
        program = self.trace.programs[int(steps.program[row])]
        of_host = info.group and not isinstance(program, Transfer)  # it starts, or waits
        if steps.device[row] < 0 and (self.has_device or of_host):
            return kernel
        device, stream = 0, STREAM + int(steps.thread[row])
        if self.has_device:
            device, stream = int(steps.device[row]), int(steps.stream[row])
        args = s.args | {"stream": stream, "correlation": row + 1, "device": device}
        name, category = s.name, s.category
        if info.group:
            name, args["ranks"] = f"ncclKernel_{name}", list(info.group)
        elif info.transfer or not info.sources:
            name, category = f"Memcpy {info.transfer or 'DtoD'} ({name})", "gpu_memcpy"
            args["bytes"] = info.written_bytes
            args["memory bandwidth (GB/s)"] = info.written_bytes / max(1, s.end - s.begin)
        return KernelSlice(s._replace(name=name, category=category, args=args), events, row)

    def run_slices(self) -> Iterator[Slice]:
        for s in super().run_slices():
            args = s.args | {"External id": 0}
            yield s._replace(
                track=s.track - EXECUTION + 1, name=f"aten::{s.name}", category="cpu_op", args=args
            )

    def beside_kernels(self, kernels: list[KernelSlice]) -> Iterator[Slice]:
        """What the streams saw of steps and annotations; launches are made later, in whole µs."""
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

    def slice_record(self, s: Slice) -> dict:
        record = super().slice_record(s)
        if s.category in DEVICE:
            moved = OVERLAPS <= s.track < DEVICES
            record |= {"pid": s.args["device"], "tid": s.track if moved else s.args["stream"]}
        if s.category == REGION:
            record["args"] = {}  # what has a stream counts as a kernel
        return record

    def names(self, tracks: set[int]) -> Iterator[dict]:
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

    def kernel_arrows(self, kernels: list[KernelSlice], beside: list[Slice]) -> Iterator[dict]:
        """Arrows from calls, and the launches that HTA pairs with kernels, each with counters."""
        yield from super().kernel_arrows(kernels, [])
        for k in kernels:
            begin, end, caller = self.launch_of(k)
            info = self.trace.info(k.slice.args["program"], k.slice.args["step"])
            common = {"ph": "X", "pid": self.pid, "ts": begin, "dur": end - begin}
            host = common | {"tid": int(self.trace.steps.thread[k.row]) + 1}
            if info.group:
                yield host | {
                    "cat": "cpu_op",
                    "name": "record_param_comms",
                    "args": self.collective_args(info, k.row),
                }
            kind = "collective" if info.group else k.slice.category
            args = {"correlation": k.row + 1, "cbid": 211, "External id": caller}
            yield host | {
                "cat": "cuda_runtime",
                "args": args,
                "name": LAUNCHES.get(kind, "cudaLaunchKernel"),
            }
            if k.slice.category == "kernel":
                yield common | {
                    "cat": "cuda_profiler_range",
                    "name": k.slice.name,
                    "tid": COUNTERS,
                    "args": counters(info, k.slice),
                }

    def launch_of(self, k: KernelSlice) -> tuple[int, int, int]:
        """(from, to, External id of the caller) in whole µs: as the device told; else in the last
        call that the kernel computes and that takes a µs or longer; else in its Program's run."""
        trace, row = self.trace, k.row
        run = trace.runs[trace.steps.run[row]]
        first, last = (self.time(t - trace.begin_ns) for t in (run.begin_ns, run.end_ns))
        if self.has_device:
            begin, end = (
                self.time(int(t[row]) - trace.begin_ns)
                for t in (trace.steps.launch, trace.steps.launched)
            )
            return min(begin, last - 1), max(end, min(begin, last - 1) + 1), 0
        for event in reversed(k.events):
            host = self.place[event]
            begin = self.time(host.begin)
            if self.time(host.end) > begin:
                return begin, begin + 1, event + 1
        begin = max(first, min(self.time(k.slice.begin), last - 1))
        return begin, begin + 1, 0

    def collective_args(self, info, row: int) -> dict:
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


def region(ran: list[Slice], host: Slice) -> Iterator[Slice]:
    """A region of the host as a stream saw it: from its first kernel to its last."""
    if ran:
        args = {name: ran[0].args[name] for name in ("stream", "device")}
        begin, end = min(s.begin for s in ran), max(s.end for s in ran)
        yield Slice(ran[0].track, begin, end, host.name, REGION, args)


def counters(info, s: Slice) -> dict:
    ns = max(1, s.end - s.begin)
    return {
        "flops": info.flops,
        "moved_bytes": info.bytes,
        "flops_per_s": info.flops * 10**9 // ns,
        "bytes_per_s": info.bytes * 10**9 // ns,
    }
