"""The report: one page, no network; its tables and drawings come up in a browser."""

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tests.unit.profile.test_profiler import Net, prof  # noqa: F401  a fixture

import glasshouse as gh
from glasshouse.profile.report import data_of, folded, page_of
from glasshouse.profile.tables import kernel_table
from glasshouse.profile.traces import chrome

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium here")


def dom(path, part, width=1280):
    """The page's document after its scripts ran."""
    done = subprocess.run(
        [
            BROWSER,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            f"--window-size={width},900",
            "--virtual-time-budget=5000",
            "--dump-dom",
            f"file://{path}#{part}",
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout


def test_page_is_whole_and_needs_no_network(prof, tmp_path):  # noqa: F811
    text = prof.report(tmp_path / "r.html").read_text("utf-8")
    assert not re.search(r"""(src|href)\s*=|https?://|@import|fetch\(""", text)
    assert "/*DATA*/" not in text and "prefers-color-scheme: dark" in text


def test_data_cannot_end_the_script():
    page = page_of({"name": "</script><b><!-- <script>"})
    assert page.count("<script>") == page.count("</script>") == 1 and "<b>" not in page
    assert "\\u003c/script>\\u003cb>\\u003c!-- \\u003cscript>" in page


@needs_browser
def test_odd_names_are_shown(tmp_path):
    with gh.profile() as p, gh.record_function("<!-- <script> & </script>"):
        (gh.ones(3) + 1).numpy()
    assert "&lt;!-- &lt;script&gt; &amp; &lt;/script&gt;" in dom(
        p.report(tmp_path / "r.html"), "operators"
    )


def test_short_recordings_are_no_missing_kernels(tmp_path):
    with gh.profile() as p:
        (gh.ones(3) + 1).numpy()
    data = data_of(p.trace)
    assert data["programs"][0]["kinds"].keys() == {"reference"}
    assert not any("without a kernel" in text for text in data["advice"])


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("summary", "of the machine's limit"),
        ("modules", "conv"),
        ("kernels", "onednn conv"),
        ("flame", "<canvas"),
        ("timeline", "slices"),
        ("memory", "Alive at the peak"),
        ("roofline", "FLOP/s against"),
        ("operators", "conv_weight_grad"),
        ("compiler", "No step fell back"),
    ],
)
def test_parts_come_up_in_a_browser(prof, tmp_path, part, expected):  # noqa: F811
    path = prof.report(tmp_path / "r.html")
    text = dom(path, part).split("</script>", 1)[0].split("<script>")[0]
    assert expected in text


@needs_browser
def test_each_module_says_how_near_the_limit_it_is(prof, tmp_path):  # noqa: F811
    text = dom(prof.report(tmp_path / "r.html"), "modules")
    page = text[text.index('id="page-modules"') :]
    (row,) = re.findall(r"<tr[^>]*><td[^>]*><span[^>]*></span>conv</td>.*?</tr>", page)
    assert re.search(r"<td>(> )?[0-9.]+ %</td></tr>$", row)


@needs_browser
def test_all_kinds_are_as_near_the_limit_as_the_summary_says(prof, tmp_path):  # noqa: F811
    text = dom(prof.report(tmp_path / "r.html"), "summary")
    share = r"((?:> |&gt; )?[0-9.]+ %)"
    (card,) = re.findall(rf"of the machine's limit<b>{share}</b>", text)
    (row,) = re.findall(rf"<td[^>]*>all</td>(?:(?!</tr>).)*?<td[^>]*>{share}</td></tr>", text)[-1:]
    assert card == row


def test_limits_of_modules_add_up_to_that_of_all_kernels(prof):  # noqa: F811
    data = data_of(prof.trace)
    run_s = (
        r["runs"] * max(r["exact_flops"] / data["flops_per_s"], r["bytes"] / data["bytes_per_s"])
        for r in data["kernels"]
    )
    roots = (r for r in data["modules"] if "." not in r["module"] and not r["phase"])
    assert sum(r["ideal_ns"] for r in roots) == pytest.approx(1e9 * sum(run_s))


@needs_browser
def test_comparison_is_shown(prof, tmp_path):  # noqa: F811
    prof.export_json(tmp_path / "base.json")
    path = prof.report(tmp_path / "r.html", against=tmp_path / "base.json")
    assert "Against the other run" in dom(path, "summary", 400)


@pytest.fixture(scope="module")
def captured():
    """A captured step, and a captured function that breaks and is captured again."""
    model = Net()
    optimizer = gh.optim.SGD(model.parameters(), lr=0.1)

    @gh.optimize
    def step(x, y):
        optimizer.zero_grad()
        loss = gh.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    @gh.optimize
    def breaks(x, n):
        if (x * n).sum() > 0:
            x = x + 1
        return x

    x, y = gh.ones((4, 3, 10, 10)), gh.asarray([0, 1, 2, 3])
    for _ in range(4):
        step(x, y).item()
    breaks(x, 2), breaks(x, 3)
    with gh.profile(record_shapes=True) as p:
        for _ in range(3):
            step(x, y).item()
            p.step()
    yield p
    gh.reset()


def test_captured_kernels_say_module_pass_and_line(captured, tmp_path):
    results = [r for r in captured.kernels() if r.module == "Net.conv"]
    assert {r.phase for r in results} == {"forward", "backward"}
    (place,) = {r.line for r in results}  # a gradient's line is that of its forward call
    file, _, line = place.rpartition(":")
    assert "self.conv(x)" in Path(file).read_text().splitlines()[int(line) - 1]
    update = next(r for r in captured.kernels() if r.phase == "optimizer")
    assert update.line.startswith(__file__)  # the line of optimizer.step()
    assert f"test_profiler.py:{line}" in kernel_table(captured.trace)
    data = chrome.read(captured.export_chrome_trace(tmp_path / "t.json"))
    kernels = [r["args"] for r in data["traceEvents"] if r.get("cat") == "kernel"]
    assert any(place in args["lines"] and "Net.conv" in args["modules"] for args in kernels)
    assert place in captured.report(tmp_path / "r.html").read_text("utf-8")


def test_captured_calls_are_in_the_table_of_operators(captured):
    conv = captured.key_averages(group_by_input_shape=True).find("conv")
    assert (conv.calls, conv.shapes, conv.host_ns) == (3, "[4, 3, 10, 10], [8, 3, 3, 3]", 0)
    assert conv.kernel_ns > 0 and conv.flops == 3 * 2 * 4 * 8 * 8 * 8 * 27
    shared = sum(r.kernel_ns for r in captured.key_averages())
    assert shared == pytest.approx(captured.trace.kernel_ns)
    where = captured.key_averages(group_by_stack_n=1).find("conv").stack
    assert "test_profiler.py" in where
    assert any("conv" in frames for frames, _ in folded(captured.trace))


def test_breaks_and_recompiles_are_in_the_report(captured, tmp_path):
    own = [c for c in captured.trace.captures if "captured." in c["name"]]  # of this file
    results = {c["name"].rpartition(".")[2]: c for c in own}
    assert results["step"]["breaks"] == [] and results["step"]["graphs"] >= 1
    (where, reason, hint), *_ = results["breaks"]["breaks"]
    assert where.startswith(__file__) and "branch" in reason and "gh.where" in hint
    assert any("n == 2" in guard for _, guard, _, _ in results["breaks"]["recompiles"])
    if BROWSER is not None:
        text = dom(captured.report(tmp_path / "r.html"), "compiler")
        assert "Graph breaks" in text and "a branch on a tensor" in text and "Recompiles" in text


def test_a_profile_without_steps_has_a_report(tmp_path):
    with gh.profile() as p:
        (gh.ones(3) + 1).numpy()
    assert data_of(p.trace)["step_ns"] == [p.trace.wall_ns]
    p.report(tmp_path / "r.html")


class Poor(gh.backends.TensorBackend):
    """A backend without any kernel."""

    name = "poor"
    to_numpy = from_numpy = staticmethod(np.asarray)


def test_primitives_without_a_kernel_are_told(tmp_path):
    with gh.backends.use(Poor()):
        x = gh.asarray([1.0, 2.0])
        x + x
        with gh.profile() as p:
            x + x, x * x, x * x
    assert p.trace.fallbacks == {"add": 1, "mul": 2}
    assert '"fallbacks":{"add":1,"mul":2}' in p.report(tmp_path / "r.html").read_text("utf-8")
