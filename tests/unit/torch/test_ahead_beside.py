"""Predictions of PyTorch models' steps beside profiles of the real ones: line by line, as text and
on the report's page; plans that keep a step's peak within a budget."""

import json

import pytest
from tests.unit.profile.test_report import BROWSER, dom
from tests.unit.torch.test_ahead_compiled import CASES, case, measured

import glasshouse as gh
from glasshouse.base.errors import OptionError

torch = pytest.importorskip("torch")
nn = torch.nn
F = torch.nn.functional

from glasshouse.torch.ahead.eager import EagerStep  # noqa: E402

pytestmark = [
    pytest.mark.library_warnings,
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


def profiled(model, loss, optimizer, inputs, backend="glasshouse", steps=1):
    """A profile of steps after the first two."""
    step = EagerStep(model, loss, optimizer, inputs, None)
    if backend:
        step.forward = torch.compile(model, backend=backend)
    for _ in range(2):
        step.run(optimizer, inputs)
    with gh.profile(profile_memory=True, with_stack=True) as prof:
        for _ in range(steps):
            step.run(optimizer, inputs)
            prof.step()
    return prof


def check_lines(beside) -> None:
    """All that was predicted was measured; both sides do the same work, and views are the rest."""
    for line in beside.lines:
        if line.predicted:
            assert line.measured, line
            assert line.predicted_flops == line.measured_flops, line
            assert line.predicted_bytes == line.measured_bytes, line
        else:
            assert not line.measured_flops and line.kind == "op", line
    assert {line.phase for line in beside.kernels} >= {"forward", "backward", "optimizer"}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_each_kernel_of_both_passes_lies_beside_its_prediction(name):
    inputs = case(name)
    costs = gh.analyze.step(*inputs)
    beside = gh.analyze.compare(costs, profiled(*inputs, steps=2))
    check_lines(beside)
    of_programs = [line for line in beside.kernels if line.kind != "operator"]
    assert sum(line.predicted for line in beside.lines) == pytest.approx(costs.kernel_ns)
    assert {line.phase for line in of_programs} == {"forward", "backward"}
    files = {line.line.rpartition("/")[2].partition(":")[0] for line in of_programs}
    assert files == ({""} if name == "perceptron" else {"test_ahead_compiled.py"})  # no own code
    assert costs.kernel_ns < costs.predicted_ns == costs.kernel_ns + costs.host_ns


@pytest.mark.parametrize("name", ["perceptron", "pictures", "words"])
def test_each_operator_of_eager_lies_beside_its_prediction(name):
    inputs = case(name)
    costs = gh.analyze.step(*inputs, convention="torch")
    beside = gh.analyze.compare(costs, profiled(*inputs, backend=None, steps=2))
    check_lines(beside)


def test_products_of_eager_run_at_the_rates_of_products():
    model = nn.Linear(512, 512)
    inputs = [((4096, 512), "float32"), ((4096, 512), "float32")]
    costs = gh.analyze.step(model, F.mse_loss, torch.optim.SGD, inputs, convention="torch")
    (product,) = (k for k in costs.kernels if k.name == "aten::addmm")
    machine = gh.analyze.MachineProfile.load("cpu2")
    assert product.ns < 0.5e9 * product.flops / machine.elementwise


def test_operators_that_touch_nothing_move_nothing():
    with gh.FlopCounter() as counter:
        y = torch.empty(1000, 1000).new_empty(1000, 1000)
        torch.empty_like(y), torch.ops.aten._unsafe_view(y, [1000000])
        torch.zeros(1000)
    assert counter.bytes == 4000


def test_the_longest_lines_are_shown_and_the_others_in_one():
    inputs = case("pictures")
    beside = gh.analyze.compare(gh.analyze.step(*inputs), profiled(*inputs))
    *first, others, whole = beside.shown(3)
    assert first == beside.lines[:3]
    assert others.name == f"others ({len(beside.lines) - 3})"
    assert whole.measured == pytest.approx(sum(line.measured for line in (*first, others)))
    text = beside.table(3)
    assert others.name in text and "time in kernels" in text and "peak bytes" in text


@pytest.mark.slow
def test_a_prediction_is_on_the_page(tmp_path):
    inputs = case("pictures")
    costs, prof = gh.analyze.step(*inputs), profiled(*inputs)
    page = prof.report(tmp_path / "r.html", predicted=costs)
    data = json.loads(json.dumps(costs.beside(prof.trace).to_dict()))
    assert {"time in kernels", "peak bytes"} <= {line["name"] for line in data["totals"]}
    assert [line["name"] for line in data["last"]] == ["all"]
    assert data["memory"]["parameters"] == sum(p.nbytes for p in inputs[0].parameters())
    if BROWSER is None:
        pytest.skip("no Chromium here")
    shown = dom(page, "prediction").split("</script>", 1)[0].split("<script>")[0]
    assert "Line by line" in shown and "aten::nll_loss_backward" in shown
    assert "first backward" in shown and "NaN" not in shown and "undefined" not in shown
    without = dom(prof.report(tmp_path / "s.html"), "summary")
    assert 'id="page-prediction"' not in without


# -- plans ------------------------------------------------------------------------------------


def deep():
    layers = [x for _ in range(6) for x in (nn.Linear(64, 64), nn.GELU(), nn.Sigmoid())]
    inputs = [torch.randn(512, 64), torch.randn(512, 64)]
    model = nn.Sequential(*layers)
    return model, F.mse_loss, torch.optim.SGD(model.parameters(), lr=0.1), inputs


@pytest.mark.slow
def test_a_plan_keeps_the_peak_of_the_step_within_a_budget():
    model, loss, optimizer, inputs = arguments = deep()
    choice = gh.analyze.plan(*arguments, "85%")
    assert (
        choice.peak_bytes
        <= 0.85 * choice.plain_bytes
        == 0.85 * gh.analyze.step(*arguments).peak_bytes
    )
    assert choice.extra_ns > 0 and str(choice.options["memory_budget"]) in choice.code()
    assert "more time predicted" in str(choice)
    with_plan = EagerStep(choice.compile(), loss, optimizer, inputs, None)
    peaks = measured_as_planned(with_plan, choice.options)
    assert max(peaks) == choice.peak_bytes


def measured_as_planned(step, options) -> list[int]:
    """Peaks of real steps, compiled with options."""
    compile_before = torch.compile

    def compile_with(model, **named):
        return compile_before(model, **named, options=options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "compile", compile_with)
        model = step.model._orig_mod
        return measured(model, step.loss, step.optimizer, step.inputs, steps=2)


def test_a_plan_for_what_fits_changes_nothing():
    choice = gh.analyze.plan(*deep(), 1.0)
    assert choice.options is None and choice.extra_ns == 0
    assert choice.code() == 'model = torch.compile(model, backend="glasshouse")\n'
    assert "nothing is computed again" in str(choice)


@pytest.mark.slow
def test_a_plan_that_cannot_be_met_names_the_least():
    with pytest.raises(OptionError, match=r"at least [\d,]+ bytes"):
        gh.analyze.plan(*deep(), "1%")
    with pytest.raises(OptionError, match="no solver for a torch.nn.Module"):
        gh.analyze.plan(*deep(), "50%", solver="chain")
