"""Steps in several sizes as one program of C, with one state."""

import json
import shutil
import subprocess

import c_programs
import numpy as np
import pytest

import glasshouse as gh
from glasshouse import nn
from glasshouse.base.errors import CaptureError, OptionError

BATCHES = (4, 8)


def draws_of(batch, seed=0):
    draws = np.random.default_rng(seed)
    return draws.random((batch, 16), np.float32), draws.integers(0, 10, batch)


def training():
    gh.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 10))
    optimizer = gh.optim.Adam(model.parameters(), lr=0.01)

    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


@pytest.mark.slow
def test_a_training_step_of_two_sizes_has_one_state(tmp_path):
    model, step = training()
    own = gh.optimize(step)
    with c_programs.plainly(), c_programs.always():
        own(*map(gh.asarray, draws_of(BATCHES[0])))
    first, *more = map(draws_of, BATCHES)
    gh.export_program(own, tmp_path, *first, name="train", more=more)
    program = c_programs.loaded(tmp_path, "train")
    with c_programs.plainly(), c_programs.always():
        for i in range(30):
            batch = draws_of(BATCHES[i // 2 % 2], i)
            assert own(*map(gh.asarray, batch)).item() == program.run(*batch)[0]
            if i == 20:  # one file has the state of all sizes
                program.save(tmp_path / "later.safetensors")
                program.close()
                program = c_programs.loaded(tmp_path, "train", tmp_path / "libprograms.so")
                program.load(tmp_path / "later.safetensors")
    for key, value in model.state_dict().items():
        result = c_programs.state_of(program, f"model.{key}", value.shape)
        np.testing.assert_array_equal(result, value.numpy())
    program.close()


@pytest.mark.slow
def test_a_size_has_constants_of_its_own_and_wrong_sizes_are_refused(tmp_path):
    gh.manual_seed(0)
    w = gh.random.normal((3,))

    def fn(x):
        n = x.shape[0]
        return gh.tril(gh.ones((n, n))) @ x + w * gh.arange(n)[:, None]

    sizes = [np.full((n, 3), 0.5, np.float32) for n in (1, 5, 24)]
    gh.export_program(fn, tmp_path, sizes[0], more=[(x,) for x in sizes[1:]])
    manifest = json.loads((tmp_path / "program.json").read_text())
    assert [x["outputs"][0]["shape"] for x in manifest["sizes"]] == [[1, 3], [5, 3], [24, 3]]
    program = c_programs.loaded(tmp_path, "program")
    for x in (*sizes, *sizes[::-1]):
        wanted = fn(gh.asarray(x)).numpy()
        np.testing.assert_allclose(program.run(x)[0], wanted, rtol=1e-5, atol=1e-5)
    no_size = r"no size of it has inputs \[2, 3\]; there are \[1, 3\] or \[5, 3\] or \[24, 3\]"
    for bad, what in ((sizes[1][:2], no_size), (sizes[0].astype("f8"), "dtype"),
                      (sizes[0][0], r"inputs \[3\]")):  # fmt: skip
        with pytest.raises(RuntimeError, match=what):
            program.run(bad)
    with pytest.raises(RuntimeError, match="expected 1 inputs; got 0"):
        program.run()
    program.close()


@pytest.mark.slow
@pytest.mark.parametrize("cpp", [False, True])
def test_the_examples_run_each_size_under_the_sanitizers(tmp_path, cpp):
    if cpp and not shutil.which("c++"):
        pytest.skip("needs a C++ compiler")
    _, step = training()
    first, *more = map(draws_of, BATCHES)
    gh.export_program(step, tmp_path, *first, name="train", more=more)
    files = c_programs.sources_of(tmp_path)
    if cpp:
        objects = [c_programs.compile_c(tmp_path, *c_programs.SANITIZERS, "-c", x,
                                        output=f"{i}.o") for i, x in enumerate(files)]  # fmt: skip
        command = ["c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", *c_programs.SANITIZERS]
        command += [tmp_path / "example.cpp", *objects, "-lm", "-o", tmp_path / "example"]
        subprocess.run(command, check=True)
    else:
        files.append(str(tmp_path / "example.c"))
        c_programs.compile_c(tmp_path, *c_programs.SANITIZERS, *files, output="example")
    process = subprocess.run([tmp_path / "example"], cwd=tmp_path, capture_output=True, text=True)
    assert process.returncode == 0 and process.stdout.count("output") == len(BATCHES), (
        process.stderr
    )
    lost = subprocess.run([tmp_path / "example", "no file"], capture_output=True, text=True)
    assert lost.returncode and "no file" in lost.stderr


def test_what_is_no_other_size_is_refused(tmp_path):
    x = np.ones((2, 3), np.float32)
    with pytest.raises(OptionError, match="tuples of 1 inputs"):
        gh.export_program(lambda x: x + 1, tmp_path, x, more=[x])
    with pytest.raises(OptionError, match="other shapes or dtypes"):
        gh.export_program(lambda x: x + 1, tmp_path, x, more=[(x,)])

    class Memory:
        last = gh.zeros((1, 3))

        def step(self, x):
            self.last = self.last * 0.5 + x
            return self.last.sum()

    with pytest.raises(CaptureError, match="self.last to have one shape in all sizes"):
        gh.export_program(Memory().step, tmp_path, x, more=[(x[:1],)])
    assert not any(tmp_path.iterdir())
