"""Folders of C as WebAssembly: in Node, and the digits' network in a page that one draws on."""

import functools
import html
import json
import re
import shutil
import subprocess
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import c_programs
import numpy as np
import pytest
from click.testing import CliRunner

import glasshouse as gh
from glasshouse import nn
from glasshouse.cli.main import main
from glasshouse.cli.train_digits import TrainingRecipe, TrainingRun
from glasshouse.data import digits

PAGE = Path(__file__).parents[3] / "examples" / "digits_in_a_page"
CLANG = ["clang", "--target=wasm32-wasi"]
CHROMIUM = next(filter(shutil.which, ("chromium", "chromium-browser", "google-chrome")), None)
NODE = """
import { WASI } from "node:wasi";
import { readFileSync } from "node:fs";
const wasi = new WASI({ version: "preview1", args: ["example"], preopens: { ".": "." } });
const code = await WebAssembly.compile(readFileSync("example.wasm"));
wasi.start(await WebAssembly.instantiate(code, { wasi_snapshot_preview1: wasi.wasiImport }));
"""


@functools.cache
def builds():
    """Whether clang makes WebAssembly here, with a linker and a libc."""
    if not shutil.which("clang"):
        return False
    program = b"#include <math.h>\nint main(int n, char **a) { return (int)pow(n, n); }"
    command = [*CLANG, "-x", "c", "-", "-lm", "-o", "/dev/null"]
    return subprocess.run(command, input=program, capture_output=True).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("node"), reason="needs Node")
def test_a_training_step_of_two_sizes_runs_in_node(tmp_path):
    if not builds():
        pytest.skip("needs clang, lld and wasi-libc")
    gh.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2),
                          nn.Linear(144, 10))  # fmt: skip
    optimizer = gh.optim.AdamW(model.parameters(), lr=0.01)

    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    calls = [(np.zeros((n, 1, 8, 8), np.float32), np.zeros(n, np.int64)) for n in (2, 5)]
    gh.export_program(step, tmp_path, *calls[0], name="train", more=calls[1:])
    program = c_programs.loaded(tmp_path, "train")
    wanted = [program.run(*call)[0] for call in calls]
    program.close()
    files = [str(tmp_path / "example.c"), *c_programs.sources_of(tmp_path)]
    c_programs.compile_c(tmp_path, *files, compiler=CLANG, output="example.wasm")
    (tmp_path / "run.mjs").write_text(NODE)
    process = subprocess.run(["node", "run.mjs"], cwd=tmp_path, capture_output=True, text=True)
    losses = [float(x) for x in re.findall(r"output: (\S+)", process.stdout)]
    np.testing.assert_allclose(losses, wanted, rtol=1e-5, err_msg=process.stderr)


@pytest.mark.slow
def test_a_state_comes_from_memory(tmp_path):
    w = gh.tensor(np.arange(6, dtype=np.float32).reshape(2, 3))
    gh.export_program(lambda x: x + w, tmp_path, np.ones((2, 3), np.float32))
    program = c_programs.loaded(tmp_path, "program")
    (tmp_path / "zero").mkdir()
    data = (tmp_path / "program.safetensors").read_bytes()
    changed = data[:-24] + np.full(6, 7.0, np.float32).tobytes()
    load = program.library.gh_load_memory
    program.check(load(program.context, changed, len(changed)))
    np.testing.assert_array_equal(program.run(np.zeros((2, 3), np.float32))[0], np.full((2, 3), 7))
    for length in (0, 7, 20, len(data) - 1):
        with pytest.raises(RuntimeError, match="the memory"):
            program.check(load(program.context, data[:length], length))
    program.close()


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


def page_of(folder, name, profile):
    """The page of a folder as Chromium has it after its scripts ran."""
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(QuietHandler, directory=str(folder))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    options = "--headless --no-sandbox --disable-gpu --virtual-time-budget=60000 --dump-dom"
    command = [CHROMIUM, *options.split(), f"--user-data-dir={profile}"]
    try:
        address = f"http://127.0.0.1:{server.server_port}/{name}"
        done = subprocess.run([*command, address], capture_output=True, text=True, timeout=180)
    finally:
        server.shutdown()
        server.server_close()
    return html.unescape(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_digits_that_are_drawn_in_a_page_are_read(tmp_path, monkeypatch):
    pytest.importorskip("sklearn")
    if not builds():
        pytest.skip("needs clang, lld and wasi-libc")
    monkeypatch.chdir(tmp_path)
    run = TrainingRun(TrainingRecipe(epochs=6))
    for _ in range(6):
        run.epoch(lambda loss: None)
    run.save(Path("run"))
    options = ["run", "--sizes", "input=1x1x8x8", "--out", "page", "--name", "predict"]
    done = CliRunner().invoke(main, ["export", *options])
    assert done.exit_code == 0, done.output
    subprocess.run(["sh", PAGE / "build.sh", "page"], check=True, capture_output=True)
    assert Path("page/page.wasm").stat().st_size < 100_000

    pictures, labels = digits("test").arrays
    Path("page/pictures.json").write_text(json.dumps(pictures.reshape(-1, 64).tolist()))
    shutil.copy(Path(__file__).with_name("draw_digits.js"), "page")
    text = Path("page/index.html").read_text()
    script = '<script src="draw_digits.js"></script></html>'
    Path("page/try.html").write_text(text.replace("</html>", script))
    page = page_of(Path("page"), "try.html", tmp_path / "profile")
    results = re.search(r'<pre id="results">(.*?)</pre>', page, re.DOTALL)
    assert results, page[-2000:]
    data = json.loads(results[1])

    run.model.eval()
    with gh.no_grad():
        wanted = run.model(gh.asarray(pictures)).numpy()
    largest = np.abs(wanted).max()
    np.testing.assert_allclose(data["scores"], wanted, rtol=0, atol=1e-5 * largest)
    assert (np.argmax(data["scores"], 1) == labels).mean() > 0.95
    answers = data["answers"]  # of digits that are drawn: one may be read wrongly
    assert len(answers) == 10 and sum(digit == read for digit, read in answers) >= 8, answers
