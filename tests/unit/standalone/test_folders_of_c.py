"""Folders of C: they give the bits of the Programs that they were made from."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import c_programs
import numpy as np
import pytest

import glasshouse as gh
from glasshouse import nn
from glasshouse.base.errors import BackendError, CaptureError, OptionError

SIZES = {"mlp": (8, 64), "cnn": (8, 1, 8, 8)}


def network(kind):
    gh.manual_seed(0)
    if kind == "mlp":
        return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 10))
    head = [nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*head, nn.Flatten(), nn.Linear(128, 10))


def training_step(model, optimizer):
    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def batches(kind):
    draws = np.random.default_rng(1)
    while True:
        yield draws.random(SIZES[kind], np.float32), draws.integers(0, 10, SIZES[kind][0])


def exported_training(tmp_path, kind, make_optimizer, warm=1):
    """(step, model, optimizer, program in C), after `warm` steps in Python."""
    model = network(kind)
    optimizer = make_optimizer(model.parameters())
    step = gh.optimize(training_step(model, optimizer))
    batch = next(batches(kind))
    with c_programs.plainly(), c_programs.always():
        for _ in range(warm):
            step(*map(gh.asarray, batch))
    gh.export_program(step, tmp_path, *batch, name="train")
    return step, model, optimizer, c_programs.loaded(tmp_path, "train")


OPTIMIZERS = {
    "adamw": lambda params: gh.optim.AdamW(params, lr=0.01),
    "momentum": lambda params: gh.optim.SGD(params, lr=0.01, momentum=0.9),
    "rmsprop": lambda params: gh.optim.RMSprop(params, lr=0.01),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind, name", [(kind, name) for kind in SIZES for name in OPTIMIZERS])
def test_a_hundred_training_steps_give_the_bits_of_the_program(tmp_path, kind, name):
    *trained, program = exported_training(tmp_path, kind, OPTIMIZERS[name])
    with c_programs.plainly(), c_programs.always():
        c_programs.check_a_hundred_steps(tmp_path, trained, batches(kind), program)


@pytest.mark.slow
@pytest.mark.parametrize("kind", SIZES)
def test_inference_gives_the_bits_of_the_program_and_nearly_those_of_onednn(tmp_path, kind):
    model = network(kind).eval()
    x, _ = next(batches(kind))
    gh.export_program(model, tmp_path, x)
    program = c_programs.loaded(tmp_path, "program")
    (result,) = program.run(x)
    usual = model(gh.asarray(x)).detach().numpy()
    with c_programs.plainly(), c_programs.always(), gh.no_grad():
        np.testing.assert_array_equal(
            result, gh.optimize(lambda y: model(y))(gh.asarray(x)).numpy()
        )
    np.testing.assert_allclose(result, usual, rtol=1e-5, atol=1e-5 * abs(usual).max())
    program.close()
    weights = gh.load(tmp_path / "program.safetensors")
    assert set(weights) <= set(model.state_dict())  # the names are the model's own


@pytest.mark.slow
def test_a_step_that_was_never_called_begins_where_its_manifest_says(tmp_path):
    *_, program = exported_training(tmp_path, "mlp", OPTIMIZERS["adamw"], warm=0)
    calls = json.loads((tmp_path / "train.json").read_text())["calls_before"]
    assert calls > 0
    model = network("mlp")
    step = training_step(model, gh.optim.AdamW(model.parameters(), lr=0.01))
    with c_programs.plainly(), c_programs.always():
        for _ in range(calls):
            step(*map(gh.asarray, next(batches("mlp"))))
        loss = step(*map(gh.asarray, next(batches("mlp"))))
    np.testing.assert_allclose(program.run(*next(batches("mlp")))[0], loss.item(), rtol=1e-5)
    program.close()


@pytest.mark.quick
def test_exporting_changes_nothing_and_draws_nothing(tmp_path):
    model = network("mlp")
    before = {k: v.numpy().copy() for k, v in model.state_dict().items()}
    optimizer = gh.optim.Adam(model.parameters(), lr=0.01)
    draws = gh.default_generator.state()
    gh.export_program(training_step(model, optimizer), tmp_path, *next(batches("mlp")))
    assert gh.default_generator.state() == draws
    assert not optimizer.state
    for key, value in model.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[key])
        assert value.grad is None


@pytest.mark.slow
def test_loops_and_gathers_run_in_c(tmp_path):
    gh.manual_seed(1)
    embedding, lstm, head = nn.Embedding(20, 8), nn.LSTM(8, 12, batch_first=True), nn.Linear(12, 20)

    def predict(words):
        return head(lstm(embedding(words))[0])

    words = np.random.default_rng(0).integers(0, 20, (3, 7))
    gh.export_program(predict, tmp_path, words)
    program = c_programs.loaded(tmp_path, "program")
    with gh.no_grad():
        usual = predict(gh.asarray(words)).numpy()
    np.testing.assert_allclose(program.run(words)[0], usual, rtol=1e-5, atol=1e-6)
    with pytest.raises(RuntimeError, match="index"):
        program.run(words + 100)
    np.testing.assert_allclose(program.run(words)[0], usual, rtol=1e-5, atol=1e-6)
    program.close()


@pytest.mark.slow
def test_wrong_tensors_are_refused_and_nothing_is_written(tmp_path):
    gh.export_program(lambda x: x * 2.0, tmp_path, np.ones((2, 3), np.float32))
    program = c_programs.loaded(tmp_path, "program")
    for bad, what in (
        (np.ones((2, 4), np.float32), "size 4 on axis 1; expected 3"),
        (np.ones(6, np.float32), "1 axes; expected 2"),
        (np.ones((2, 3)), "dtype"),
    ):
        with pytest.raises(RuntimeError, match=what):
            program.run(bad)
    with pytest.raises(RuntimeError, match="expected 1 inputs; got 0"):
        program.run()
    with pytest.raises(RuntimeError, match="no number nothing"):
        program.set("nothing", 1.0)
    np.testing.assert_array_equal(program.run(np.ones((2, 3), np.float32))[0], np.full((2, 3), 2.0))
    program.close()


@pytest.mark.slow
def test_damaged_files_are_refused_and_change_nothing(tmp_path):
    w = gh.tensor(np.arange(6, dtype=np.float32).reshape(2, 3))
    gh.export_program(lambda x: x + w, tmp_path, np.ones((2, 3), np.float32))
    library = c_programs.library_of(tmp_path)
    program = c_programs.loaded(tmp_path, "program", library)
    good = (tmp_path / "program.safetensors").read_bytes()
    x, draws, path = np.zeros((2, 3), np.float32), np.random.default_rng(0), tmp_path / "bad"
    end = 8 + int.from_bytes(good[:8], "little")
    changed = [good[:n] for n in range(0, len(good), 7)]
    for _ in range(300):
        copy = bytearray(good)
        copy[draws.integers(0, end)] = draws.integers(0, 256)
        changed.append(bytes(copy))
    for data in changed:
        path.write_bytes(data)
        try:
            program.load(path)
        except RuntimeError:
            np.testing.assert_array_equal(program.run(x)[0], w.numpy())
        program.load(tmp_path / "program.safetensors")
    with pytest.raises(RuntimeError, match="cannot open"):
        program.load(tmp_path / "none")
    program.close()


@pytest.mark.slow
def test_two_programs_of_a_folder_share_state_by_name(tmp_path):
    model = network("mlp")
    step = training_step(model, gh.optim.SGD(model.parameters(), lr=0.1))
    x, y = next(batches("mlp"))
    gh.export_program(step, tmp_path, x, y, name="train")
    model.eval()
    gh.export_program(lambda x: model(x), tmp_path, x, name="predict")
    library = c_programs.library_of(tmp_path)
    train, other = (c_programs.loaded(tmp_path, name, library) for name in ("train", "predict"))
    (before,) = other.run(x)
    for _ in range(3):
        train.run(x, y)
    other.check(library_copy(other, train))
    assert abs(other.run(x)[0] - before).max() > 1e-3
    weight = c_programs.state_of(train, "model.0.weight", (32, 64))
    np.testing.assert_array_equal(c_programs.state_of(other, "model.0.weight", (32, 64)), weight)
    train.close(), other.close()


def library_copy(to, source):
    return to.library.gh_copy(to.context, source.context)


def test_what_has_no_form_in_c_is_refused_by_name(tmp_path):
    x = np.eye(3, dtype=np.float32)
    with pytest.raises(BackendError, match="svd"):
        gh.export_program(lambda x: gh.linalg.svd(x)[1], tmp_path, x)
    with pytest.raises(CaptureError, match="item"):
        gh.export_program(lambda x: print(x.sum().item()), tmp_path, x)
    log = []
    with pytest.raises(CaptureError, match="append"):
        gh.export_program(lambda x: log.append(x * 2.0), tmp_path, x)

    class Counter:
        count = 0

        def step(self, x):
            self.count += 1
            return x * 2.0 if self.count % 10 else x

    with pytest.raises(CaptureError, match=r"a choice by self.count at .*test_folders_of_c"):
        gh.export_program(Counter().step, tmp_path, x)
    with pytest.raises(OptionError, match="name that C takes"):
        gh.export_program(lambda x: x + 1, tmp_path, x, name="a b")
    with pytest.raises(OptionError, match="function"):
        gh.export_program(3, tmp_path, x)
    assert not any(tmp_path.iterdir())


@pytest.mark.slow
def test_a_training_step_is_clean_under_the_sanitizers(tmp_path):
    exported_training(tmp_path, "cnn", OPTIMIZERS["adamw"])[-1].close()
    files = [str(tmp_path / "example.c"), *c_programs.sources_of(tmp_path)]
    c_programs.compile_c(tmp_path, *c_programs.SANITIZERS, *files, output="example")
    process = subprocess.run([tmp_path / "example"], cwd=tmp_path, capture_output=True, text=True)
    assert process.returncode == 0 and process.stdout.startswith("output:"), process.stderr


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("qemu-aarch64"), reason="needs qemu-user")
@pytest.mark.skipif(not shutil.which("aarch64-linux-gnu-gcc"), reason="needs a cross compiler")
def test_another_processor_gives_nearly_the_same(tmp_path):
    program = exported_training(tmp_path, "cnn", OPTIMIZERS["adamw"])[-1]
    inputs = [np.zeros(x["shape"], x["dtype"]) for x in program.manifest["inputs"]]
    (wanted,) = program.run(*inputs)
    program.close()
    files = [str(tmp_path / "example.c"), *c_programs.sources_of(tmp_path)]
    c_programs.compile_c(
        tmp_path, "-static", *files, compiler=["aarch64-linux-gnu-gcc"], output="example"
    )
    process = subprocess.run(
        ["qemu-aarch64", tmp_path / "example"], cwd=tmp_path, capture_output=True, text=True
    )
    np.testing.assert_allclose(float(process.stdout.split()[1]), wanted, rtol=1e-5)


@pytest.mark.slow
def test_the_digits_are_learnt_without_python(tmp_path):
    pytest.importorskip("sklearn")
    example = Path(__file__).parents[3] / "examples" / "digits_in_c" / "export.py"
    subprocess.run([sys.executable, example, tmp_path / "folder"], check=True)
    folder = tmp_path / "folder"
    (folder / "example.c").unlink()
    library = c_programs.compile_c(folder, "-O3", *c_programs.sources_of(folder), output="digits")
    process = subprocess.run([library, folder, "8"], capture_output=True, text=True)
    assert process.returncode == 0, process.stdout + process.stderr  # 98 % of the held-out images
    assert library.stat().st_size < 1 << 20
    assert "model.0.weight" in gh.load(folder / "trained.safetensors")


@pytest.mark.slow
def test_threads_with_a_context_each_give_what_one_gives(tmp_path):
    exported_training(tmp_path, "mlp", OPTIMIZERS["adamw"])[-1].close()
    library = tmp_path / "libprograms.so"
    c_programs.check_threads(tmp_path, library, next(batches("mlp")), 200)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("c++"), reason="needs a C++ compiler")
def test_the_header_is_good_cpp_and_memory_may_be_the_callers(tmp_path):
    gh.export_program(lambda x: x * 2.0, tmp_path, np.ones((2, 3), np.float32), name="twice")
    library = c_programs.library_of(tmp_path)
    (tmp_path / "main.cpp").write_text(CPP)
    command = ["c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", tmp_path / "main.cpp", library]
    subprocess.run([*command, "-o", tmp_path / "main"], check=True)
    process = subprocess.run([tmp_path / "main"], capture_output=True, text=True)
    assert process.stdout == "2 4 6 8 10 12 memory\n"


CPP = r"""
#include "twice.h"
#include <cstdio>
#include <cstdlib>

int main() {
  float x[6] = {1, 2, 3, 4, 5, 6}, y[6];
  const int64_t shape[] = {2, 3};
  const gh_tensor in = {GH_F32, 2, shape, x}, out = {GH_F32, 2, shape, y};
  const size_t bytes = (gh_bytes(&twice) + 63) / 64 * 64;
  void *memory = std::aligned_alloc(64, bytes);
  gh_context *context = nullptr;
  if (gh_create_in(&twice, memory, bytes, &context)) return 1;
  if (gh_program_run(context, &in, 1, &out, 1)) return 1;
  for (float one : y) std::printf("%g ", one);
  gh_free(context);
  if (gh_create_in(&twice, memory, 64, &context) == GH_MEMORY) std::puts("memory");
  std::free(memory);
}
"""
