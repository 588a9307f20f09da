"""Faults between a recording and compiled code: results stay right, with one warning."""

import contextlib
import errno
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.compile.building import disk_cache, toolchain
from glasshouse.compile.kernels import kernel_cache
from glasshouse.compile.programs import executable, program
from glasshouse.targets.cpu import fused
from glasshouse.targets.cpu.onednn import library as onednn


def clear():
    for cached in (
        toolchain.find_compiler,
        toolchain.identity,
        toolchain.identity_digest,
        toolchain.precompiled_header,
        disk_cache.open_cache,
        disk_cache.temporary_folder,
        disk_cache.warn_full,
    ):
        cached.cache_clear()
    onednn.load_library.cache_clear()
    forget_compiled()
    program.warned.clear()
    executable.NativeRunner.library = None


def forget_compiled():
    """Have Programs and libraries looked up on disk again."""
    toolchain.loaded.clear()
    kernel_cache.loaded_kernels.clear()
    kernel_cache.loaded_forms.clear()
    program.programs.clear()


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
        forget_compiled()
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
    result = entries()
    assert result and all(disk_cache.read_entry(path) for path in result)
    stamps = [path.stat().st_ino for path in result]
    flags.cc = script(fresh, "exit 1")  # nothing may be compiled again
    forget_compiled()
    compute()
    flags.cc = ""
    assert [path.stat().st_ino for path in entries()] == stamps
    assert os.stat(flags.cache).st_mode & 0o077 == 0


KERNEL = '#include "gh_kernel.h"\nfloat f(float x) { return gh_exp_f32(x) + gh_tanh_f32(x); }\n'


def build(folder, monkeypatch, more=()) -> tuple[bytes, list[str]]:
    """The library of a kernel, and the precompiled headers that gcc says it takes."""
    listed, run = [], toolchain.run

    def listing(command, timeout_s):
        done = run([*command, "-H"], timeout_s)
        listed.extend(line for line in done.stderr.splitlines() if line.startswith("! "))
        return done

    with monkeypatch.context() as patch:
        patch.setattr(toolchain, "run", listing)
        toolchain.build(folder / "kernel.so", KERNEL, more)
    return disk_cache.read_entry(folder / "kernel.so"), listed


@pytest.mark.skipif("Free Software Foundation" not in toolchain.identity(), reason="not gcc")
def test_kernels_take_the_header_that_gcc_has_parsed_before(fresh, monkeypatch):
    folder = disk_cache.open_cache(disk_cache.cache_folder())
    library, listed = build(folder, monkeypatch)
    (header,) = folder.glob(f"*{disk_cache.HEADER}")
    assert len(listed) == 1
    assert build(folder, monkeypatch, ("-O1",))[1] == []  # other options: it is parsed again
    header.write_bytes(header.read_bytes()[:-9])  # damaged: it is made again
    toolchain.precompiled_header.cache_clear()
    assert build(folder, monkeypatch)[0] == library
    assert disk_cache.read_entry(header) is not None
    monkeypatch.setattr(toolchain, "precompiled_header", lambda folder: None)
    assert build(folder, monkeypatch) == (library, [])


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


def fill_disk(monkeypatch, *folders):
    """Have every file written below these folders meet a full disk."""
    real = Path.write_text

    def write_text(path, *args, **named):
        if any(path.is_relative_to(folder) for folder in folders):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return real(path, *args, **named)

    monkeypatch.setattr(Path, "write_text", write_text)


def test_a_full_disk_of_the_cache(fresh, monkeypatch):
    fill_disk(monkeypatch, flags.cache)
    warned(1, f"no space is left on the disk of the cache {flags.cache}")  # one, and it computes
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no word of a missing compiler
        compute()
    assert entries() == []


def test_a_full_disk_of_the_temporary_folder_is_not_noticed(fresh, monkeypatch):
    fill_disk(monkeypatch, "/dev/full", tempfile.gettempdir() + "/glasshouse-compiled-")
    monkeypatch.setenv("TMPDIR", "/nowhere")  # the compiler's own files too lie in the cache
    warned(0, "")
    assert entries()


def test_full_disks_of_both(fresh, monkeypatch):
    fill_disk(monkeypatch, flags.cache, tempfile.gettempdir())
    warned(1, f"{tempfile.gettempdir()}). Free space (`glasshouse cache --clear`")
    assert entries() == []


def test_a_compiler_that_meets_a_full_disk(fresh):
    """The compiler says so in its own way; what is compiled elsewhere is used."""
    real, folder = toolchain.find_compiler()[0], Path(flags.cache)
    compiler = script(
        fresh,
        f'case "$TMPDIR" in {folder}*) echo "cannot write: {os.strerror(errno.ENOSPC)}" >&2;'
        f' exit 1;; esac\nexec {real} "$@"',
    )
    toolchain.find_compiler.cache_clear()
    with flags.override(cc=compiler):
        warned(1, "no space is left")
    assert entries() == []


def test_what_killed_processes_left_is_removed(fresh, monkeypatch):
    folder = Path(flags.cache)
    folder.mkdir(mode=0o700)
    body = 'if [ "$1" = --version ]; then echo fake; exit 0; fi\nexec sleep 60'
    code = "import glasshouse as gh; (gh.ones(3) + 1).numpy()"
    environment = {
        **os.environ,
        "GH_CC": script(fresh, body),
        "GH_CACHE": str(folder),
        "GH_COMPILE": "always",
        "GH_BACKEND": "lazy",
        "PYTHONPATH": str(Path(gh.__file__).parents[1]),
    }
    process = subprocess.Popen(
        [sys.executable, "-c", code], env=environment, start_new_session=True
    )
    for _ in range(400):
        if list(folder.glob("work-*/source.c")):
            break
        time.sleep(0.05)
    assert list(folder.glob("work-*/source.c"))
    monkeypatch.setattr(disk_cache, "LOCK_S", 0)
    disk_cache.remove_stale(folder, disk_cache.WORK)
    assert list(folder.glob("work-*"))  # its process is at work
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    with contextlib.suppress(ProcessLookupError):  # a child that was being forked has the lock too
        for _ in range(400):
            os.killpg(process.pid, 0)
            time.sleep(0.01)
    disk_cache.open_cache(folder)
    assert [path for path in folder.iterdir() if path.suffix != disk_cache.ANSWER] == []


@pytest.mark.slow
def test_temporary_folders_end_with_their_process(fresh):
    code = (
        "import warnings; warnings.simplefilter('ignore')\n"
        "import glasshouse as gh; print((gh.ones(3) + 1).sum().item())"
    )
    environment = {
        **os.environ,
        "GH_CACHE": "/dev/null/cache",
        "GH_COMPILE": "always",
        "GH_BACKEND": "lazy",
        "TMPDIR": str(fresh),
        "PYTHONPATH": str(Path(gh.__file__).parents[1]),
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, text=True, capture_output=True, check=True
    )
    assert float(done.stdout) == 6 and list(fresh.iterdir()) == []


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
    forget_compiled()
    executable.NativeRunner.library = None
    compute()
    for path in entries():
        assert toolchain.load_library(path) is not None


@pytest.mark.slow
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
    assert all(toolchain.load_library(path) is not None for path in entries())


@pytest.mark.slow
def test_threads_that_compile_first_share_one_engine(fresh, monkeypatch):
    results, real = [], onednn.OnednnLibrary

    class Slow(real):
        def __init__(self):
            time.sleep(0.05)
            results.append(self)
            super().__init__()

    monkeypatch.setattr(onednn, "OnednnLibrary", Slow)
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
    assert errors == [] and len(results) == 1


def test_a_onednn_that_does_not_load(fresh):
    broken = fresh / "libdnnl.so"
    broken.write_text("no library")
    with flags.override(onednn=str(broken)):
        warned(1, "onednn-cpu-gomp")


def test_a_bug_in_the_compiler_is_no_end(fresh, monkeypatch):
    def broken(kernel):
        raise KeyError("bug")

    monkeypatch.setattr(fused, "emit", broken)
    with pytest.warns(UserWarning, match="bug"):
        compute()
    program.programs.clear()
    with flags.override(verify=True), pytest.raises(KeyError):
        compute()


AHEAD = """
import warnings
warnings.simplefilter("error")
import numpy as np
import glasshouse as gh
step = gh.optimize(lambda x: (gh.exp(x * 0.1) + 1).sum(axis=1))
for _ in range(3):
    values = step(gh.asarray(np.arange(12.0, dtype=np.float32).reshape(3, 4)))
print(step.hits, values.tolist())
"""


@pytest.mark.slow
def test_what_is_built_ahead_runs_without_a_compiler(tmp_path):
    script, folder = tmp_path / "script.py", tmp_path / "cache"
    script.write_text(AHEAD)
    own = os.environ | {"GH_CACHE": str(folder), "GH_COMPILE": "always"}
    command = [sys.executable, "-m", "glasshouse.cli", "build", str(script)]
    built = subprocess.run(command, env=own, capture_output=True, text=True)
    assert built.returncode == 0 and "built    capture's frame hook" in built.stdout, built.stderr
    assert "2 [" in built.stdout
    empty = tmp_path / "bin"
    empty.mkdir()
    before = sorted(folder.iterdir())
    for extra in ({"PATH": str(empty)}, {"PATH": str(empty), "GH_CACHE_BYTES": "1GB"}):
        run = [sys.executable, str(script)]
        ran = subprocess.run(run, env=own | extra, capture_output=True, text=True)
        assert ran.returncode == 0 and ran.stdout in built.stdout, ran.stderr
    assert sorted(folder.iterdir()) == before
    lacking = (
        script.read_text().replace("reshape(3, 4)", "reshape(4, 3)").replace('"error"', '"always"')
    )
    script.write_text(lacking)
    ran = subprocess.run(run, env=own | extra, capture_output=True, text=True)
    assert ran.returncode == 0 and "2 [" in ran.stdout and "no C compiler found" in ran.stderr


def test_code_is_found_wherever_pythons_headers_lie(fresh, monkeypatch):
    calls = []
    monkeypatch.setattr(toolchain, "library", lambda key, source, more: calls.append(key))
    for include in ("/usr/include/python", "/opt/python/include"):
        toolchain.compile_one("int x;", (f"-I{include}",))
    toolchain.compile_one("int x;")
    assert calls[0] == calls[1] != calls[2]


def test_a_folder_that_may_only_be_read_is_used_without_a_warning(fresh, monkeypatch):
    folder = fresh / "image"
    folder.mkdir(mode=0o755)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert disk_cache.open_cache(folder) == folder


def test_a_compiler_that_is_named_and_missing_is_an_error_with_a_full_cache_too(fresh):
    compute()
    clear()
    with flags.override(cc="/nonexistent/cc"), pytest.raises(toolchain.CompileError):
        toolchain.identity()
