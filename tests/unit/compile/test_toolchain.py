"""What can go wrong between a recording and compiled code: results stay right, with one warning."""

import errno
import os
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.compile import code, executable, program, toolchain
from glasshouse.targets.cpu import onednn


def clear():
    for cached in (toolchain.find_compiler, toolchain.identity, toolchain.usable_cache):
        cached.cache_clear()
    onednn.load_library.cache_clear()
    toolchain.loaded.clear()
    program.programs.clear()
    program.Warned.yet = False
    executable.Runner.library = None


@pytest.fixture
def fresh(tmp_path):
    """A compiler with an empty cache; afterwards everything as before."""
    gh.backends.load("lazy").evaluate()  # what other tests left waiting
    clear()
    with flags.override(cache=str(tmp_path / "cache"), compile="always"), gh.backends.use("lazy"):
        yield tmp_path
    clear()


def compute():
    """Something that compiles, and whether it is right."""
    x = gh.asarray(np.arange(12.0, dtype=np.float32).reshape(3, 4))
    y = (gh.exp(x * 0.1) + 1).sum(axis=1) @ gh.ones((3, 2))
    expected = (np.exp(np.arange(12.0).reshape(3, 4) * 0.1) + 1).sum(axis=1) @ np.ones((3, 2))
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-5)


def warned(times, text):
    """`compute`, twice, gives its warning once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        compute()
        program.programs.clear()
        compute()
    messages = [str(w.message) for w in caught if "glasshouse" in str(w.message)]
    assert len(messages) == times, messages
    assert all(text in message for message in messages), messages


def script(folder: Path, body: str) -> str:
    path = folder / "fakecc"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o700)
    return str(path)


def entries() -> list[Path]:
    return sorted(Path(flags.cache).glob("*.so"))


def test_compiled_code_is_kept_and_found_again(fresh):
    compute()
    made = entries()
    assert made and all(path.with_suffix(".sha256").exists() for path in made)
    stamps = [path.stat().st_mtime_ns for path in made]
    flags.cc = script(fresh, "exit 1")  # nothing may be compiled again
    toolchain.loaded.clear()
    program.programs.clear()
    compute()
    flags.cc = ""
    assert [path.stat().st_mtime_ns for path in entries()] == stamps
    assert os.stat(flags.cache).st_mode & 0o077 == 0


def test_no_compiler(fresh):
    with flags.override(cc="no-such-compiler"):
        warned(1, "no-such-compiler")


@pytest.mark.parametrize(
    ("body", "text"),
    [("exit 3", "failed (3)"), ("kill -9 $$", "failed (-9)"), ("exec sleep 60", "longer than")],
    ids=["fails", "killed", "hangs"],
)
def test_a_compiler_that_fails(fresh, monkeypatch, body, text):
    monkeypatch.setattr(toolchain, "TIMEOUT_S", 0.3)
    body = f'if [ "$1" = --version ]; then echo fake; exit 0; fi\n{body}'
    with flags.override(cc=script(fresh, body)):
        warned(1, text)
    assert entries() == []


def test_a_full_disk(fresh, monkeypatch):
    real, full = os.replace, []

    def replace(source, target):
        if str(target).startswith(flags.cache):
            full.append(target)
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(source, target)

    monkeypatch.setattr(toolchain.os, "replace", replace)
    compute()  # from a temporary folder
    assert full and entries() == []


def test_a_cache_that_cannot_be_written(fresh):
    with flags.override(cache="/dev/null/cache"):
        warned(1, "not usable")


def test_a_cache_that_others_may_write(fresh):
    os.makedirs(flags.cache)
    os.chmod(flags.cache, 0o777)
    warned(1, "others may write")


def test_a_corrupted_entry_is_made_again(fresh):
    compute()
    for path in entries():
        data = path.read_bytes()
        path.unlink()  # the old file is mapped
        path.write_bytes(data[:100] + b"spoilt")
    toolchain.loaded.clear()
    program.programs.clear()
    executable.Runner.library = None
    compute()
    for path in entries():
        assert toolchain.load_entry(path) is not None


def test_several_processes_share_the_cache(fresh):
    code = (
        "import glasshouse as gh, numpy as np\n"
        "x = gh.asarray(np.ones((64, 64), 'f4'))\n"
        "y = x\n"
        "for i in range(6): y = gh.tanh(y @ x * 0.01) + i\n"
        "print(float(y.sum().item()))"
    )
    environment = {
        **os.environ,
        "GH_CACHE": flags.cache,
        "GH_COMPILE": "always",
        "GH_BACKEND": "lazy",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(Path(gh.__file__).parents[1]),
    }
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code], env=environment, text=True, stdout=subprocess.PIPE
        )
        for _ in range(3)
    ]
    answers = {process.communicate(timeout=120)[0] for process in running}
    assert len(answers) == 1 and all(process.returncode == 0 for process in running)
    assert all(toolchain.load_entry(path) is not None for path in entries())


def test_threads_that_compile_first_share_one_engine(fresh, monkeypatch):
    made, real = [], onednn.Library

    class Slow(real):
        def __init__(self):
            time.sleep(0.05)
            made.append(self)
            super().__init__()

    monkeypatch.setattr(onednn, "Library", Slow)
    errors = []

    def work():
        try:
            compute()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == [] and len(made) == 1


def test_a_onednn_that_does_not_load(fresh):
    broken = fresh / "libdnnl.so"
    broken.write_text("no library")
    with flags.override(onednn=str(broken)):
        warned(1, "onednn-cpu-gomp")


def test_a_bug_in_the_compiler_is_no_end(fresh, monkeypatch):
    def broken(kernel):
        raise KeyError("bug")

    monkeypatch.setattr(code, "emit", broken)
    with pytest.warns(UserWarning, match="bug"):
        compute()
    program.programs.clear()
    with flags.override(verify=True), pytest.raises(KeyError):
        compute()
