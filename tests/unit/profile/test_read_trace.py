"""Traces of torch.profiler, made by hand: of a GPU, and what is none."""

import gzip
import json

import pytest

import glasshouse as gh
from glasshouse.base.errors import OptionError


def slice_of(category, name, begin, end, tid=1, **args):
    args = {key.replace("_", " "): value for key, value in args.items()}
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 0 if category in ("kernel", "gpu_memcpy") else 9,
        "tid": tid,
        "ts": begin,
        "dur": end - begin,
        "args": args,
    }


def operator_with_kernels(name, begin, end, kernels, tid=1, **args):
    """An operator from one µs to another, and what it launches: (name, begin, end) on the GPU."""
    number = args["External_id"]
    yield slice_of("cpu_op", name, begin, end, tid, **args)
    for i, (kernel, first, last) in enumerate(kernels):
        correlation, at = 10 * number + i, begin + 1 + i
        launch = {"correlation": correlation}
        yield slice_of("cuda_runtime", "cudaLaunchKernel", at, at + 1, tid, **launch)
        more = {"correlation": correlation, "External_id": number, "device": 0, "stream": 7}
        category = "gpu_memcpy" if "Memcpy" in kernel else "kernel"
        yield slice_of(category, kernel, first, last, 7, **more)


def step_of_gpu(step: int):
    """A product of a module and its gradient, a copy, and an update."""
    at, number = 1000 * step, 100 * step
    shapes = {"Input_Dims": [[8, 4], [4, 2]], "Input_type": ["float", "float"]}
    engine = "autograd::engine::evaluate_function: MmBackward0"
    node = {"Sequence_number": 5 + number}
    yield slice_of("user_annotation", f"ProfilerStep#{step}", at, at + 900)
    yield slice_of("python_function", "train.py(3): step", at + 1, at + 800)
    yield slice_of("python_function", "nn.Module: Linear_0", at + 10, at + 60)
    yield slice_of("cpu_op", "aten::linear", at + 11, at + 55, External_id=number + 1)
    kernels = [("sgemm", at + 100, at + 300), ("splitK", at + 300, at + 310)]
    args = {"External_id": number + 2, **node, **shapes}
    yield from operator_with_kernels("aten::mm", at + 20, at + 40, kernels, **args)
    yield slice_of("cpu_op", engine, at + 100, at + 160, 2, **node, Fwd_thread_id=1)
    yield slice_of("cpu_op", "MmBackward0", at + 101, at + 159, 2, **node)
    kernels, args = [("sgemm", at + 320, at + 620)], {"External_id": number + 3, **shapes}
    yield from operator_with_kernels("aten::mm", at + 110, at + 130, kernels, 2, **args)
    kernels, args = [("Memcpy HtoD", at + 630, at + 650)], {"External_id": number + 4}
    yield from operator_with_kernels("aten::copy_", at + 200, at + 220, kernels, **args)
    yield slice_of("user_annotation", "Optimizer.step#SGD.step", at + 300, at + 400)
    kernels, args = [("add", at + 660, at + 670)], {"External_id": number + 5}
    yield from operator_with_kernels("aten::add_", at + 310, at + 330, kernels, **args)


def gpu_trace() -> dict:
    """Two steps; in µs."""
    events = [event for step in range(2) for event in step_of_gpu(step)]
    return {"schemaVersion": 1, "host_name": "there", "traceEvents": events}


@pytest.fixture
def read(tmp_path):
    path = tmp_path / "trace.json.gz"
    with gzip.open(path, "wt") as file:
        json.dump(gpu_trace(), file)
    return gh.profile.read(path)


def test_kernels_belong_to_the_operators_that_launched_them(read):
    rows = {r.name: r for r in read.key_averages()}
    assert rows["aten::mm"].kernel_ns == 2 * (200 + 10 + 300) * 1000
    assert rows["aten::mm"].host_ns == 4 * 20_000
    assert rows["aten::add_"].kernel_ns == 2 * 10_000
    assert read.trace.kernel_ns == 2 * (200 + 10 + 300 + 20 + 10) * 1000


def test_kernels_belong_to_modules_and_passes(read):
    rows = {(r.module, r.phase): r for r in read.modules().rows()}
    assert rows["Linear_0", "forward"].kernel_ns == 2 * 210_000
    assert rows["Linear_0", "backward"].kernel_ns == 2 * 300_000
    assert rows["Linear_0", ""].calls == 2
    assert rows["(no module)", "optimizer"].kernel_ns == 2 * 10_000


def test_kernels_have_names_streams_and_runs(read):
    kernels = {(r.name, r.phase): r for r in read.kernels()}
    assert kernels["sgemm", "forward"].runs == 2
    assert kernels["Memcpy HtoD", "forward"].kind == "copy"
    assert set(read.trace.steps.stream.tolist()) == {7}
    assert kernels["sgemm", "forward"].line == "train.py:3"
    assert kernels["sgemm", "backward"].line == "train.py:3"


def test_flops_are_counted_once_an_operator(read):
    pytest.importorskip("torch")
    product = 2 * 8 * 4 * 2
    assert read.key_averages().find("aten::mm").flops == 4 * product
    rows = {(r.module, r.phase): r for r in read.modules().rows()}
    assert rows["Linear_0", ""].flops == 4 * product


def test_steps_are_those_of_the_trace(read):
    assert [(number, end - begin) for number, begin, end in read.trace.loop_steps()] == [
        (0, 900_000),
        (1, 900_000),
    ]


def test_it_is_reported_and_written_again(read, tmp_path):
    assert "sgemm" in read.report(tmp_path / "report.html").read_text()
    read.export_chrome_trace(tmp_path / "ours.json")
    read.export_chrome_trace(tmp_path / "hta.json", hta=True)
    for name in ("ours.json", "hta.json"):
        assert gh.profile.merge([tmp_path / name], tmp_path / "merged.json")


@pytest.mark.parametrize("text", ["", "[1, 2", "[]", '{"a": 1}', '{"traceEvents": 3}'])
def test_another_file_is_refused(text, tmp_path):
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(OptionError, match="expected a trace"):
        gh.profile.read(path)


def test_a_trace_without_operators_has_empty_tables(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text('{"traceEvents": []}')
    read = gh.profile.read(path)
    assert read.kernels() == [] and "total" not in str(read)
