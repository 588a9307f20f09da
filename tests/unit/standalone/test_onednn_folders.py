"""Folders of C with oneDNN's products and convolutions: they give the bits of their Programs."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import c_programs
import numpy as np
import pytest
from test_folders_of_c import OPTIMIZERS, SIZES, batches, network, training_step

import glasshouse as gh
from glasshouse import nn
from glasshouse.base.errors import OptionError
from glasshouse.compile.building import toolchain
from glasshouse.standalone import folder as folders
from glasshouse.targets import ONEDNN, use_target
from glasshouse.targets.cpu.onednn.library import find_library, library

pytestmark = pytest.mark.skipif(library() is None, reason="oneDNN is not installed")
BOTH = ("plain", "onednn")


def options():
    """Arguments of the C compiler after the sources, to build with oneDNN."""
    path = find_library()
    return "-DGH_ONEDNN", path, f"-Wl,-rpath,{Path(path).parent}"


def loaded(folder, name, path=None):
    library = path or c_programs.library_of(folder, *options())
    return c_programs.loaded(folder, name, library)


def example_of(folder, *more):
    """The output of the folder's example in C."""
    files = [str(folder / "example.c"), *c_programs.sources_of(folder)]
    native = [x for x in toolchain.OPTIONS if x.startswith("-m")]
    return c_programs.compile_c(folder, *native, *files, *more, output="example")


def run(path, **environment):
    where = {"cwd": path.parent, "env": {**os.environ, **environment}}
    return subprocess.run([path], capture_output=True, text=True, **where)


def exported_training(folder, kind, name="adamw", forms=BOTH):
    """(step, model, optimizer), exported after a step in Python."""
    model = network(kind)
    optimizer = OPTIMIZERS[name](model.parameters())
    step = gh.optimize(training_step(model, optimizer))
    batch = next(batches(kind))
    with use_target(ONEDNN), c_programs.always():
        step(*map(gh.asarray, batch))
    gh.export_program(step, folder, *batch, name="train", forms=forms)
    return step, model, optimizer


@pytest.mark.slow
@pytest.mark.parametrize("kind", SIZES)
def test_a_hundred_training_steps_give_the_bits_of_the_program(tmp_path, kind):
    trained = exported_training(tmp_path, kind)
    program = loaded(tmp_path, "train")
    with use_target(ONEDNN), c_programs.always():
        c_programs.check_a_hundred_steps(tmp_path, trained, batches(kind), program)


@pytest.mark.slow
@pytest.mark.parametrize("kind", SIZES)
def test_both_forms_have_one_state_and_nearly_the_same_results(tmp_path, kind):
    exported_training(tmp_path, kind)
    losses = []
    for more in ((), options()):
        path = c_programs.library_of(tmp_path, *more).rename(tmp_path / f"{len(more)}.so")
        program = loaded(tmp_path, "train", path)
        losses.append([program.run(*next(batches(kind)))[0] for _ in range(5)])
        program.close()
    np.testing.assert_allclose(*losses, rtol=1e-4)


@pytest.mark.slow
def test_another_processor_chooses_other_layouts(tmp_path):
    gh.manual_seed(0)
    head = [nn.Conv2d(3, 20, 3, padding=1), nn.ReLU(), nn.Conv2d(20, 40, 3, groups=2), nn.Flatten()]
    model = nn.Sequential(*head, nn.Linear(40 * 36, 70), nn.ReLU(), nn.Linear(70, 10))
    optimizer = gh.optim.SGD(model.parameters(), lr=0.1)
    x = np.random.default_rng(0).random((4, 3, 8, 8), np.float32)
    gh.export_program(training_step(model, optimizer), tmp_path, x, np.arange(4), forms=BOTH)
    path = example_of(tmp_path, *options())
    results = [run(path, ONEDNN_MAX_CPU_ISA=isa) for isa in ("DEFAULT", "AVX2", "SSE41")]
    texts = [result.stdout.split() for result in results]
    assert all(text[0] == "output:" for text in texts), [x.stderr for x in results]
    np.testing.assert_allclose([float(text[1]) for text in texts], float(texts[0][1]), rtol=1e-5)


@pytest.mark.slow
def test_layouts_that_need_more_memory_than_the_plan_has_get_it(tmp_path):
    exported_training(tmp_path, "cnn", forms=("onednn",))
    wanted = run(example_of(tmp_path, *options())).stdout
    source = tmp_path / "train.onednn.c"
    # Scratch memory and layouts that primitives chose have a byte in the plan.
    source.write_text("\n".join(without_room(source.read_text().splitlines())) + "\n")
    assert wanted == run(example_of(tmp_path, *c_programs.SANITIZERS, *options())).stdout


def without_room(lines):
    """The tables of a program, in which arguments of layouts that primitives chose have a byte."""
    makes = [line for line in lines if line.startswith("  GH_TRY")]
    chosen = {i for i, line in enumerate(makes) if "gh_onednn_query" in line}
    inside = False
    for line in lines:
        if inside and line.startswith("  {"):
            rows = [x.strip(" {},").split(", ") for x in line.split("},") if x.strip()]
            rows = [(a, b, 1 if int(b) in chosen else size) for a, b, size in rows]
            line = "  " + " ".join(f"{{{a}, {b}, {size}}}," for a, b, size in rows)
        inside = "gh_onednn_arg" in line or (inside and line != "};")
        yield line


@pytest.mark.slow
def test_a_training_step_is_clean_under_the_sanitizers(tmp_path):
    exported_training(tmp_path, "cnn")
    process = run(example_of(tmp_path, *c_programs.SANITIZERS, *options()))
    assert process.returncode == 0 and process.stdout.startswith("output:"), process.stderr


@pytest.mark.slow
def test_products_of_operands_that_lie_across_compile(tmp_path):
    x, y = (np.random.default_rng(0).random((1024, n), np.float32) for n in (64, 800))
    gh.export_program(lambda x, y: x.T @ y, tmp_path, x, y, forms=("onednn",))
    program = loaded(tmp_path, "program")
    np.testing.assert_allclose(program.run(x, y)[0], x.T @ y, rtol=1e-5)
    program.close()


@pytest.mark.slow
def test_loops_and_sizes_run_in_c(tmp_path):
    gh.manual_seed(1)
    embedding, lstm, head = nn.Embedding(20, 8), nn.LSTM(8, 12, batch_first=True), nn.Linear(12, 20)

    def predict(words):
        return head(lstm(embedding(words))[0])

    draws = np.random.default_rng(0)
    sizes = [draws.integers(0, 20, shape) for shape in ((3, 7), (2, 9))]
    gh.export_program(predict, tmp_path, sizes[0], more=[(sizes[1],)], forms=("onednn",))
    assert "_body0_call" in (tmp_path / "program.onednn.c").read_text()
    program = loaded(tmp_path, "program")
    for words in (*sizes, sizes[0]):
        with gh.no_grad():
            usual = predict(gh.asarray(words)).numpy()
        np.testing.assert_allclose(program.run(words)[0], usual, rtol=1e-5, atol=1e-6)
    with pytest.raises(RuntimeError, match="index"):
        program.run(sizes[0] + 100)
    program.close()


@pytest.mark.slow
def test_threads_with_a_context_each_give_what_one_gives(tmp_path):
    exported_training(tmp_path, "cnn", forms=("onednn",))
    library = c_programs.library_of(tmp_path, *options())
    c_programs.check_threads(tmp_path, library, next(batches("cnn")), 100)


@pytest.mark.slow
@pytest.mark.skipif(
    library() is None or "bfloat16" not in library().dtypes, reason="no bfloat16 here"
)
def test_a_primitive_that_a_processor_lacks_is_an_error_with_text(tmp_path):
    w = gh.ones((32, 32)).astype("bfloat16")
    x = np.ones((32, 32), np.float32)
    gh.export_program(lambda x: (x.astype("bfloat16") @ w).float(), tmp_path, x, forms=("onednn",))
    path = example_of(tmp_path, *options())
    assert run(path).stdout.startswith("output: 0 0")
    process = run(path, ONEDNN_MAX_CPU_ISA="SSE41")
    assert "oneDNN lacks a step of this program: program: dnnl_matmul" in process.stderr


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("cmake"), reason="needs cmake")
@pytest.mark.parametrize("form", BOTH)
def test_the_digits_are_learnt_in_either_form(tmp_path, form):
    pytest.importorskip("sklearn")
    example = Path(__file__).parents[3] / "examples" / "digits_in_c" / "export.py"
    subprocess.run([sys.executable, example, folder := tmp_path / "folder"], check=True)
    where = f"-DCMAKE_PREFIX_PATH={Path(find_library()).parents[1]}"
    chosen = f"-DGH_ONEDNN={'ON' if form == 'onednn' else 'OFF'}"
    build = tmp_path / "build"
    for command in (["-S", folder, "-B", build, where, chosen], ["--build", build]):
        subprocess.run(["cmake", *command], check=True, capture_output=True)
    process = subprocess.run([build / "train_digits", folder, "8"], capture_output=True, text=True)
    assert process.returncode == 0, process.stdout + process.stderr  # 98 % of the held-out images


@pytest.mark.quick
def test_a_folder_says_its_forms_and_has_no_others(tmp_path, monkeypatch):
    x = np.ones((2, 3), np.float32)
    gh.export_program(lambda x: x @ x.T, tmp_path, x, forms=BOTH)
    forms = json.loads((tmp_path / "program.json").read_text())["forms"]
    assert [(x, form["source"]) for x, form in forms.items()] == [
        ("plain", "program.c"),
        ("onednn", "program.onednn.c"),
    ]
    assert forms["plain"]["library"] is None and forms["onednn"]["library"].startswith("oneDNN 3")
    assert "GH_ONEDNN" in (tmp_path / "CMakeLists.txt").read_text()
    gh.export_program(lambda x: x @ x.T, tmp_path, x)
    assert not (tmp_path / "program.onednn.c").exists()
    assert "GH_ONEDNN" not in (tmp_path / "CMakeLists.txt").read_text()
    for bad in ("onednn", (), ("other",)):
        with pytest.raises(OptionError, match="forms among"):
            gh.export_program(lambda x: x, tmp_path, x, forms=bad)
    monkeypatch.setattr(folders, "library", lambda: None)
    with pytest.raises(OptionError, match="Install onednn-cpu-gomp"):
        gh.export_program(lambda x: x, tmp_path, x, forms=BOTH)
