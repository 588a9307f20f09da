"""Our tools on a model of PyTorch's: modules, both passes, lines, PyTorch's own steps."""

import inspect
import json

import pytest

import glasshouse as gh

torch = pytest.importorskip("torch")
nn = torch.nn

pytestmark = [
    pytest.mark.library_warnings,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


class Block(nn.Module):
    """A layer with a product of its own name."""

    def __init__(self):
        super().__init__()
        self.attention = nn.Linear(16, 16)

    def forward(self, x):
        return x + torch.tanh(self.attention(x))


class Net(nn.Module):
    """Two blocks, and an operator that has no entry."""

    def __init__(self):
        super().__init__()
        self.layer = nn.ModuleList([Block(), Block()])

    def forward(self, x):
        for layer in self.layer:
            x = layer(x)
        return torch.linalg.qr(x)[1].sum()


def ready():
    """A compiled model that ran both passes, and its input."""
    from glasshouse.torch.backend.entry_point import glasshouse

    function, x = torch.compile(Net(), backend=glasshouse), torch.randn(16, 16)
    function(x).backward()
    return function, x


def test_flops_are_counted_at_each_call_by_module_and_pass():
    function, x = ready()
    with gh.FlopCounter() as fc:
        function(x)
    product = 2 * 16**3
    assert fc.by_module()["layer.1.attention"] == product
    assert fc.by_phase() == {"forward": 2 * product}
    with gh.FlopCounter() as fc:
        function(x).backward()
        function(x)
    assert fc.by_phase()["forward"] == 4 * product
    assert fc.by_module()["layer.1.attention"] == 4 * product


def test_torchdynamo_compiles_nothing_of_what_tells(monkeypatch):
    from torch._dynamo import convert_frame

    torch._dynamo.reset()  # the first of all calls
    function, x = ready()
    compiled, compile_frame = [], convert_frame._compile
    monkeypatch.setattr(
        convert_frame,
        "_compile",
        lambda code, *args, **named: compiled.append(code) or compile_frame(code, *args, **named),
    )
    with gh.FlopCounter():
        function(x)
    assert {code.co_filename for code in compiled} <= {__file__}


def test_the_first_call_counts_as_any_other():
    from glasshouse.torch.backend.entry_point import glasshouse

    function, x = torch.compile(nn.Linear(16, 16), backend=glasshouse), torch.randn(16, 16)
    with gh.FlopCounter() as fc:
        function(x)
    assert fc.total() == 2 * 16**3


def test_steps_of_pytorch_are_named_in_traces_with_the_users_line(tmp_path):
    function, x = ready()
    with gh.profile() as prof:
        function(x)
    path = tmp_path / "trace.json"
    prof.export_chrome_trace(path)
    names = [event.get("name") for event in json.loads(path.read_text())["traceEvents"]]
    assert "aten.linalg_qr.default" in names
    assert any("matmul" in str(name) for name in names)  # ours, in the same trace
    lines, first = inspect.getsourcelines(Net.forward)
    line = first + next(i for i, text in enumerate(lines) if "linalg" in text)
    (message,) = (text for text in str(prof).splitlines() if text.startswith("fallback"))
    assert "aten.linalg_qr.default" in message and f"{__file__}:{line}" in message


def test_steps_name_the_modules_that_they_work_for():
    function, x = ready()
    with gh.profile() as prof:
        function(x).backward()
    table = str(prof)
    assert "attention" in table and "forward" in table and "backward" in table


def test_the_backward_program_runs_in_its_own_node_of_autograd():
    function, x = ready()
    with gh.profile() as prof:
        function(x).square().backward()
    trace = prof.trace
    names = [trace.name_of(event) for event in trace.events]
    at = names.index("CompiledFunctionBackward")
    begin, end = trace.events[at]["begin"], trace.events[at]["end"]
    phases = {(share.program, share.step): share.phase for share in trace.shares}
    steps = trace.steps
    backward = [
        i
        for i, key in enumerate(zip(steps.program.tolist(), steps.step.tolist(), strict=True))
        if phases[key] == "backward"
    ]
    assert backward
    assert (steps.begin[backward] >= begin).all() and (steps.end[backward] <= end).all()
    assert trace.self_ns[at] < end - begin
