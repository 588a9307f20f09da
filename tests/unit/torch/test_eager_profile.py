"""The profiler around eager PyTorch: tables, memory, stacks; and traces of torch.profiler."""

import inspect
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import glasshouse as gh
from glasshouse.profile.report import data_of
from glasshouse.profile.steps.breakdown import Breakdown
from glasshouse.profile.traces import chrome

torch = pytest.importorskip("torch")
nn = torch.nn

pytestmark = [
    pytest.mark.library_warnings,
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

ROWS, WIDE = 64, 256
FLOAT = 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(WIDE, WIDE)
        self.second = nn.Linear(WIDE, WIDE, bias=False)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


def steps(model, count=2, prof=None):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x = torch.randn(ROWS, WIDE)
    for _ in range(count):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        if prof is not None:
            prof.step()


@pytest.fixture(scope="module")
def recorded():
    model = Block()
    steps(model)
    with gh.profile(record_shapes=True, profile_memory=True, with_stack=True) as prof:
        steps(model, prof=prof)
    return prof


def test_operators_have_times_shapes_flops_and_bytes(recorded):
    row = recorded.key_averages(group_by_input_shape=True).find("aten::addmm")
    assert row.calls == 2 and row.kernel_ns > 0
    assert row.shapes == f"[{WIDE}], [{ROWS}, {WIDE}], [{WIDE}, {WIDE}]"
    assert row.flops == 2 * (2 * ROWS * WIDE * WIDE + ROWS * WIDE)
    assert row.bytes == 2 * FLOAT * (WIDE + ROWS * WIDE + WIDE * WIDE + ROWS * WIDE)


def test_modules_have_both_passes_and_the_optimizer_its_own(recorded):
    rows = {(r.module, r.phase): r for r in recorded.modules().rows()}
    for name in ("first", "second"):
        assert rows[name, "forward"].kernel_ns > 0 and rows[name, "backward"].kernel_ns > 0
        assert rows[name, ""].calls == 2
    assert rows["(no module)", "optimizer"].kernel_ns > 0
    assert rows["Block", "forward"].flops > 0  # tanh is the model's own


def test_the_parts_add_up_to_the_whole(recorded):
    total = recorded.trace.kernel_ns
    assert sum(r.kernel_ns for r in recorded.key_averages()) == total
    assert sum(r.time_ns for r in recorded.kernels()) == total
    own = sum(values[0] for values in recorded.modules().own_sums.values())
    assert own == pytest.approx(total)
    assert len(recorded.trace.step_ns()) == 2


def test_a_gradient_is_linked_to_its_forward_call(recorded):
    events = recorded.events()
    forward = [e for e in events if e.name == "aten::addmm"]
    pulls = {e.sequence for e in events if e.kind == "pull" and e.name == "AddmmBackward0"}
    assert {e.sequence for e in forward} == pulls and len(pulls) == 2
    inside = [
        e for e in events if e.phase == "backward" and e.sequence in pulls and e.kind != "pull"
    ]
    assert {e.module for e in inside} == {"first"}
    assert "aten::mm" in {e.name for e in inside}


def test_stacks_have_the_users_lines(recorded):
    lines, first = inspect.getsourcelines(Block.forward)
    line = first + next(i for i, text in enumerate(lines) if "tanh" in text)
    event = next(e for e in recorded.events() if e.name == "aten::tanh")
    assert event.stack[0] == f"{__file__}({line}): forward"
    assert not any("/torch/" in frame for frame in event.stack if "tests" not in frame)
    kernel = next(r for r in recorded.kernels() if r.name == "aten::tanh_backward")
    assert kernel.line == f"{__file__}:{line}"  # of its forward call


def test_memory_belongs_to_modules_and_goes_when_tensors_go():
    x = torch.zeros(ROWS, WIDE)
    with gh.profile(profile_memory=True) as prof:
        y = x + 1
        z = y * 2
        del y, z
    memory = prof.memory()
    one = FLOAT * ROWS * WIDE
    assert memory.peak_bytes - memory.allocated[0] == 2 * one
    assert memory.allocated[-1] == memory.allocated[0] >= one  # x was there before
    assert [a.nbytes for a in memory.alive if a.tag.primitive == "aten::mul"] == [one]


def test_allocations_are_told_by_module(recorded):
    tags = {(a.tag.primitive, a.tag.module, a.tag.phase) for a in recorded.memory().alive}
    assert ("gradient of", "second.weight", "backward") in tags
    assert ("aten::tanh_backward", "Block", "backward") in tags


def test_what_was_there_before_is_told_by_what_it_is():
    model = torch.nn.Linear(WIDE, WIDE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step():
        model(torch.ones(2, WIDE)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    with gh.profile(profile_memory=True) as prof:
        step()
    sizes = {str(a.tag): (a.nbytes, a.count) for a in prof.memory().alive}
    for path, size in (("weight", WIDE * WIDE), ("bias", WIDE)):
        assert sizes[f"parameter {path}"] == (FLOAT * size, 1)
        assert sizes[f"momentum_buffer of {path} optimizer"] == (FLOAT * size, 1)


def test_tensors_at_the_peak_have_shapes_and_lines(recorded):
    results = [t for t in recorded.memory().tensors if t.tag.primitive.startswith("aten::")]
    assert all(t.spec for t in results)
    assert any(t.line.startswith(__file__) and t.tag.module == "Block" for t in results)


def test_what_is_kept_for_the_backward_pass_has_a_shape_a_line_and_the_name_of_its_function():
    def loss(x, w):
        return torch.relu(torch.nn.functional.linear(x, w)).square().sum()

    line = loss.__code__.co_firstlineno + 1
    run = torch.compile(loss, backend="glasshouse")
    x, w = torch.randn(ROWS, WIDE), torch.randn(WIDE, WIDE, requires_grad=True)
    for _ in range(2):
        run(x, w).backward()
    with gh.profile(profile_memory=True) as prof:
        result = run(x, w)
    kept = [t for t in prof.memory().tensors if t.tag.primitive == "relu"]
    assert [(t.spec, t.line) for t in kept] == [(f"float32[{ROWS}, {WIDE}]", f"{__file__}:{line}")]
    del result


def test_views_take_no_memory():
    x = torch.zeros(ROWS, WIDE)
    with gh.profile(profile_memory=True) as prof:
        kept = [x.t(), x[1], x.view(-1), x.add_(1)]
    assert len(prof.memory().time_ns) == 1 and len(kept) == 4


def test_traces_nest_and_have_arrows(recorded, tmp_path):
    for name, hta in (("trace.json", False), ("hta.json.gz", True)):
        recorded.export_chrome_trace(tmp_path / name, hta=hta)
        data = chrome.read(tmp_path / name)
        assert chrome.check(data) == []
        categories = {e.get("cat") for e in data["traceEvents"]}
        assert {"cpu_op", "fwdbwd"} <= categories
        names = {e["name"] for e in data["traceEvents"]}
        assert "aten::addmm" in names and "aten::aten::addmm" not in names
    assert "kernel" in categories  # HTA looks at kernels


def plain(model):
    def step(x):
        loss = torch.log_softmax(model(x), 1).sum()
        loss.backward()
        return loss.detach()

    return step


WAYS = {  # how a step runs, and the nodes of autograd that it goes back through
    "eager": (plain, {"TBackward0", "AddmmBackward0", "TanhBackward0", "MmBackward0"}),
    "compiled": (
        lambda model: plain(torch.compile(model, backend="glasshouse")),
        {"CompiledFunctionBackward", "LogSoftmaxBackward0", "SumBackward0"},
    ),
    "captured": (lambda model: gh.optimize(plain(model)), {"CompiledFunctionBackward"}),
}


@pytest.mark.parametrize("way", WAYS)
def test_arrows_lead_from_what_made_a_node_to_the_node(way, tmp_path):
    make, expected = WAYS[way]
    step, x = make(Block()), torch.randn(ROWS, WIDE)
    for _ in range(2):
        step(x)
    with gh.profile() as prof:
        step(x)
    prof.export_chrome_trace(tmp_path / "trace.json")
    records = chrome.read(tmp_path / "trace.json")["traceEvents"]
    slices = {(e["tid"], e["ts"]): e for e in records if e["ph"] == "X"}
    ends = {"s": {}, "f": {}}
    for e in records:
        if e.get("cat") == "fwdbwd":
            ends[e["ph"]][e["id"]] = slices[e["tid"], e["ts"]]
    pairs = [(ends["s"][i], ends["f"][i]) for i in ends["s"]]
    for forward, backward in pairs:
        numbers = [e["args"]["Sequence number"] for e in (forward, backward)]
        assert numbers[0] == numbers[1] >= 0, (forward["name"], backward["name"])
        compiles = backward["name"] == "CompiledFunctionBackward"
        assert compiles == (forward["name"] == "compiled graph")
    assert expected <= {backward["name"] for _, backward in pairs}


@pytest.mark.slow
def test_the_report_has_kernels_and_memory(recorded, tmp_path):
    page = recorded.report(tmp_path / "report.html").read_text()

    assert "aten::addmm" in page and "AddmmBackward0" in page


def test_a_schedule_records_only_its_steps():
    model = Block()
    plan = gh.profile.schedule(wait=1, active=1, repeat=1)
    with gh.profile(schedule=plan) as prof:
        steps(model, 3, prof)
    assert prof.key_averages().find("aten::addmm").calls == 1
    assert not torch._C._len_torch_dispatch_stack()


def test_the_profiler_lives_within_pytorchs_and_around_it():
    model = Block()
    with torch.profiler.profile() as theirs, gh.profile() as ours:
        steps(model, 1)
    assert ours.key_averages().find("aten::addmm").calls == 1
    assert any(e.key == "aten::addmm" for e in theirs.key_averages())
    with gh.profile() as ours, torch.profiler.profile() as theirs:
        steps(model, 1)
    assert ours.key_averages().find("aten::addmm").calls == 1
    assert any(e.key == "aten::addmm" for e in theirs.key_averages())


def test_other_threads_go_on():
    done = []

    def work():
        done.append(float((torch.ones(4) + 1).sum()))

    with gh.profile() as prof:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        torch.ones(3).exp()
    assert done == [8.0] and prof.key_averages().find("aten::exp").calls == 1


def test_regions_of_pytorch_are_annotations():
    with gh.profile() as prof, torch.profiler.record_function("my part"):
        torch.ones(3).exp()
    event = next(e for e in prof.events() if e.kind == "annotation")
    assert event.name == "my part" and event.self_ns > 0


def test_an_exception_within_ends_the_recording():
    with pytest.raises(ValueError), gh.profile() as prof:
        torch.ones(3).exp()
        raise ValueError
    assert prof.key_averages().find("aten::exp").calls == 1
    assert not torch._C._len_torch_dispatch_stack()


# -- traces of torch.profiler -------------------------------------------------------------------


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    model, path = Block(), tmp_path_factory.mktemp("theirs") / "trace.json"
    steps(model)
    options = {"record_shapes": True, "profile_memory": True, "with_stack": True}
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, **options) as prof:
        steps(model, prof=prof)
    prof.export_chrome_trace(str(path))
    return path


def test_a_trace_of_pytorchs_profiler_has_our_tables(theirs, recorded):
    read = gh.profile.read(theirs)
    for name in ("aten::addmm", "aten::mm", "aten::tanh_backward", "aten::add_"):
        theirs_row, ours = read.key_averages().find(name), recorded.key_averages().find(name)
        assert theirs_row.calls == ours.calls and theirs_row.flops == ours.flops
        assert theirs_row.kernel_ns > 0
    assert len(read.trace.step_ns()) == 2
    modules = {r.module: r for r in read.modules().rows() if not r.phase}
    (first,) = (m for m in modules if m.startswith("Block_0.Linear_0"))
    assert modules[first].calls == 2
    phases = {r.phase for r in read.modules().rows() if r.module == first}
    assert phases == {"", "forward", "backward"}
    assert read.memory().peak_bytes > 0


def test_a_read_trace_is_exported_and_compared(theirs, recorded, tmp_path):
    read = gh.profile.read(theirs)
    recorded.export_json(tmp_path / "ours.json")
    page = read.report(tmp_path / "report.html", against=tmp_path / "ours.json").read_text()
    assert "aten::addmm" in page
    assert "aten::mm" in recorded.report(tmp_path / "two.html", against=theirs).read_text()
    read.export_chrome_trace(tmp_path / "again.json")
    assert chrome.check(chrome.read(tmp_path / "again.json")) == []


def test_lines_of_the_user_are_those_of_the_trace(theirs):
    stacks = [e.stack for e in gh.profile.read(theirs).events() if e.name == "aten::tanh"]
    assert all(any("forward" in frame for frame in stack[:1]) for stack in stacks)
    assert not any("torch/nn" in frame for stack in stacks for frame in stack)


@pytest.mark.parametrize("reset", [False, True])
def test_what_torch_compile_takes_is_a_region_of_its_own(reset):
    model = torch.compile(nn.Sequential(nn.Linear(8, 8), nn.Tanh()), backend="glasshouse")
    x = torch.randn(4, 8)
    with gh.profile() as prof:
        model(x).sum().backward()
        if reset:
            torch._dynamo.reset()
    names = [trace_event.name for trace_event in prof.events()]
    assert {"TorchDynamo", "compile"} <= set(names)
    taken = Breakdown(prof.trace).ns
    assert taken["compiling"] > 0.5 * prof.trace.wall_ns
    with gh.profile() as prof:
        model(x).sum().backward()
    later = {trace_event.name for trace_event in prof.events()}
    assert ("TorchDynamo" in later) == reset


def test_a_tensor_in_memory_of_a_program_is_counted_once():
    """A tensor that PyTorch makes without a copy is in our manager's memory already."""
    compiled = torch.compile(lambda x: torch.sin(x) @ x, backend="glasshouse")
    x = torch.randn(WIDE, WIDE)
    with torch.no_grad():
        for _ in range(2):
            compiled(x)
        with gh.profile(profile_memory=True) as prof:
            y = compiled(x)
            z = torch.ops.aten._unsafe_view(y, (WIDE // 2, 2 * WIDE))
    assert z.data_ptr() == y.data_ptr()
    shown = str(prof.memory())
    assert "matmul" in shown and "_unsafe_view" not in shown


def run_in_thread(fn, name: str = "beside") -> None:
    thread = threading.Thread(target=fn, name=name)
    thread.start()
    thread.join()


def test_operators_of_threads_that_begin_in_a_recording_are_seen():
    x = torch.ones(ROWS, WIDE)
    model = nn.Linear(WIDE, WIDE)
    with gh.profile() as prof:
        run_in_thread(lambda: model(x).sum().backward())
        with ThreadPoolExecutor(1, "pool") as pool:
            pool.submit(torch.tanh, x).result()
    threads = {e.name: e.thread for e in prof.events() if e.kind == "computed"}
    assert threads["aten::addmm"] == "beside" and threads["aten::tanh"].startswith("pool")
    assert threads["aten::mm"] == "beside"
    assert "beside" not in prof.trace.unwatched_threads
    assert threading.Thread.start.__module__ == "threading"


def test_threads_from_before_are_told():
    begin, end = threading.Event(), threading.Event()

    def wait() -> None:
        begin.wait()
        torch.ones(3).add(1)
        end.set()

    thread = threading.Thread(target=wait, name="from before")
    thread.start()
    with gh.profile() as prof:
        torch.ones(3).mul(2)
        begin.set()
        end.wait()
    thread.join()
    assert "not seen in threads" in str(prof) and "from before" in str(prof)
    assert "from before" in data_of(prof.trace)["unwatched_threads"]
    assert "aten::add" not in {e.name for e in prof.events()}
