"""A stand-in for a device: its streams are threads, and what they do is real.

There is no GPU backend yet. This backend hands the steps of its Programs one by one to a thread, as
one would hand kernels to a stream, copies batches on a second and sums gradients over two processes
on a third; each thread reads the clock when a step begins and ends. So every time in such a trace
was measured, of work on the CPU in the order and with the waits of a device."""

import queue
import threading
from functools import partial
from multiprocessing.shared_memory import SharedMemory
from time import perf_counter_ns

import numpy as np

import glasshouse as gh
from glasshouse.compile.lowering.source_map import StepInfo
from glasshouse.compile.planning.plan import ProgramPlan, rewritten
from glasshouse.compile.programs.code import assemble
from glasshouse.compile.programs.executable import Program
from glasshouse.compile.programs.program import deliver_results
from glasshouse.compile.programs.recording import RecordingBackend
from glasshouse.compile.steps.work import COLLECTIVE, COPY
from glasshouse.dispatch.bind import watchers
from glasshouse.dispatch.call import call_of
from glasshouse.dispatch.watch import DeviceTimes, ProgramRun, tell
from glasshouse.graph.graph import Node, Origin, graph_of

COMPUTE, COPIES, COLLECTIVES = 7, 13, 20  # numbers of the streams


class Stream:
    """A thread that does what it is given, in order."""

    def __init__(self, number: int):
        self.number, self.work = number, queue.SimpleQueue()
        threading.Thread(target=self.run, daemon=True, name=f"stream {number}").start()

    def run(self):
        while True:
            self.work.get()()

    def wait(self) -> None:
        """Until all that was given is done."""
        done = threading.Event()
        self.work.put(done.set)
        done.wait()


class Launches:
    """The times of some steps: when they were handed over, began and ended."""

    def __init__(self, stream: Stream, count: int):
        self.stream = stream
        self.columns = np.zeros((4, count), np.int64)  # launch, launched, begin, end

    def launch(self, i: int, fn) -> None:
        """Hand a step over."""
        times = self.columns

        def timed():
            times[2, i] = perf_counter_ns()
            fn()
            times[3, i] = perf_counter_ns()

        times[0, i] = perf_counter_ns()
        self.stream.work.put(timed)
        times[1, i] = perf_counter_ns()

    def tell(self, program, begin_ns: int, events=()) -> None:
        """Tell the watchers of the run."""
        if watchers:
            streams = np.full(self.columns.shape[1], self.stream.number)
            device = DeviceTimes(0, streams, *self.columns[:3])
            end_ns = int(self.columns[1, -1])
            tell(
                "program", ProgramRun(program, begin_ns, self.columns[3], end_ns, events, 0, device)
            )


class StreamProgram(Program):
    """A Program whose steps a stream runs, one by one."""

    launches: Launches
    stream: Stream

    def execute(self, arrays, outputs, scalars, ends_ns=None, looks=None, begin=0):
        _, places = self.filled(arrays, outputs, scalars)

        def step(i):
            done = self.runner.gh_run(self.steps, i, i + 1, *places, None)
            if i in self.hosts:
                self.run_host(self.hosts[i], arrays, outputs)
            elif done != i + 1:
                raise RuntimeError(f"step {i} of a Program failed")

        self.launches = Launches(self.stream, self.count)
        for i in range(begin, self.count):
            self.launches.launch(i, partial(step, i))
        self.stream.wait()


class Single:
    """A copy or a collective, which is no Program, as a Program of one step."""

    sources, arena_bytes = {}, 0

    def __init__(self, info: StepInfo):
        self.infos = [info]

    def step_infos(self):
        return self.infos


class Backend(RecordingBackend):
    """Records as `lazy` does; what was recorded runs on a stream."""

    name = "stand-in"

    def __init__(self, rank: int = 0, shared: SharedMemory | None = None, barrier=None):
        super().__init__()
        self.rank, self.shared, self.barrier = rank, shared, barrier
        self.programs: dict = {}
        self.streams = {n: Stream(n) for n in (COMPUTE, COPIES, COLLECTIVES)}

    def execute(self, recording) -> None:
        events = [getattr(node, "event", -1) for node in recording.nodes]
        program = self.programs.get(recording.key)
        if program is None:
            program = StreamProgram(assemble(ProgramPlan(rewritten(graph_of(recording)))))
            program.stream, self.programs[recording.key] = self.streams[COMPUTE], program
        begin_ns = perf_counter_ns()
        arrays = [np.ascontiguousarray(leaf.value) for leaf in recording.leaves]
        outputs = program.run(arrays, recording.scalars, ())
        program.launches.tell(program, begin_ns, events)
        deliver_results(recording, outputs, program.owns)

    def copied(self, array: np.ndarray):
        """A batch, copied to the device."""
        copy, launches, begin_ns = np.empty_like(array), self.launches(COPIES), perf_counter_ns()
        launches.launch(0, lambda: np.copyto(copy, array))
        launches.stream.wait()
        n = array.nbytes
        info = StepInfo("batch", COPY, [], Origin(), n, n, 0, transfer="HtoD")
        launches.tell(Single(info), begin_ns)
        return gh.asarray(copy)

    def launches(self, stream: int) -> Launches:
        return Launches(self.streams[stream], 1)

    def all_reduce(self, tensors):
        """Begin to sum tensors over the two processes; a call of the result waits for the sums."""
        gh.eval(*tensors)
        flat = np.concatenate([t.numpy().ravel() for t in tensors])
        slots = np.ndarray((2, flat.size), np.float32, self.shared.buf)
        launches, begin_ns = self.launches(COLLECTIVES), perf_counter_ns()

        def reduce():
            slots[self.rank] = flat
            self.barrier.wait()
            flat[:] = slots.sum(0)
            self.barrier.wait()

        launches.launch(0, reduce)

        def waited():
            launches.stream.wait()
            spec = gh.asarray(flat).spec
            add = Node(call_of(gh.primitives["add"], (spec, spec), {}, spec))
            info = StepInfo(
                "AllReduce_sum_float32",
                COLLECTIVE,
                [add],
                Origin(),
                2 * flat.nbytes,
                flat.nbytes,
                0,
                group=(0, 1),
            )
            launches.tell(Single(info), begin_ns)
            parts = np.split(flat, np.cumsum([t.size for t in tensors])[:-1])
            return [gh.asarray(p.reshape(t.shape)) for p, t in zip(parts, tensors, strict=True)]

        return waited


def train(rank: int, folder: str, shared_name: str, barrier, steps: int) -> None:
    """One of two processes: some data-parallel steps on the stand-in, and their trace."""
    shared = SharedMemory(shared_name)
    with gh.backends.use(Backend(rank, shared, barrier)) as backend:
        gh.random.seed(0)
        model = gh.nn.Sequential(
            gh.nn.Conv2d(3, 32, 3, padding=1),
            gh.nn.ReLU(),
            gh.nn.Conv2d(32, 32, 3, padding=1),
            gh.nn.ReLU(),
            gh.nn.MaxPool2d(2),
            gh.nn.Flatten(),
            gh.nn.Linear(32 * 64, 512),
            gh.nn.ReLU(),
            gh.nn.Linear(512, 10),
        )
        optimizer = gh.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        rng = np.random.default_rng(rank)
        images = rng.standard_normal((32, 3, 16, 16), np.float32)
        labels = gh.asarray(rng.integers(0, 10, 32))

        def step():
            with gh.record_function("batch"):
                x = backend.copied(images)
            with gh.record_function("gradients"):
                optimizer.zero_grad()
                logits = model(x)
                loss = gh.nn.functional.cross_entropy(logits, labels)
                loss.backward()
                summed = backend.all_reduce([p.grad for p in model.parameters()])
            with gh.record_function("accuracy"):  # beside the collective
                (gh.nn.functional.softmax(logits, dim=-1).argmax(axis=-1) == labels).sum().item()
            with gh.record_function("update"):
                for p, g in zip(model.parameters(), summed(), strict=True):
                    p.grad = g / 2
                optimizer.step()
                loss.item()

        for _ in range(2):
            step()
        with gh.profile(record_shapes=True, profile_memory=True, rank=rank) as prof:
            for _ in range(steps):
                step()
                prof.step()
        prof.export_chrome_trace(f"{folder}/rank{rank}.json.gz", hta=True)
    shared.close()
