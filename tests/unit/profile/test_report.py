"""The report: one page, no network; its tables and drawings come up in a browser."""

import re
import shutil
import subprocess

import pytest
from tests.unit.profile.test_profiler import prof  # noqa: F401  a fixture

from glasshouse.profile.report import page_of

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium here")


def dom(path, part, width=1280):
    """The page's document after its scripts ran."""
    done = subprocess.run(
        [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},900",
         "--virtual-time-budget=5000", "--dump-dom", f"file://{path}#{part}"],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    return done.stdout


def test_page_is_whole_and_needs_no_network(prof, tmp_path):  # noqa: F811
    text = prof.report(tmp_path / "r.html").read_text("utf-8")
    assert not re.search(r"""(src|href)\s*=|https?://|@import|fetch\(""", text)
    assert "/*DATA*/" not in text and "prefers-color-scheme: dark" in text


def test_data_cannot_end_the_script():
    page = page_of({"name": "</script><b>"})
    assert "</script><b>" not in page and "<\\/script><b>" in page


@needs_browser
@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("summary", "of the machine's limit"), ("modules", "conv"), ("kernels", "onednn conv"),
        ("flame", "<canvas"), ("timeline", "slices"), ("memory", "Alive at the peak"),
        ("roofline", "FLOP/s against"), ("operators", "conv_weight_grad"),
        ("compiler", "No step fell back"),
    ],
)  # fmt: skip
def test_parts_come_up_in_a_browser(prof, tmp_path, part, expected):  # noqa: F811
    path = prof.report(tmp_path / "r.html")
    text = dom(path, part).split("</script>", 1)[0].split("<script>")[0]
    assert expected in text


@needs_browser
def test_comparison_is_shown(prof, tmp_path):  # noqa: F811
    prof.export_json(tmp_path / "base.json")
    path = prof.report(tmp_path / "r.html", against=tmp_path / "base.json")
    assert "Against the other run" in dom(path, "summary", 400)
