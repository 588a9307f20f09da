"""One OpenMP runtime in a process, under whatever name somebody else has brought it."""

import subprocess
import sys
from pathlib import Path

import pytest

from glasshouse.compile.building import toolchain

CHILD = """
import ctypes, sys
loaded = [ctypes.CDLL(path) for path in sys.argv[2:]]
theirs = loaded[int(sys.argv[1])]
from glasshouse.compile.building import toolchain
theirs.omp_set_num_threads(1)
kernel = toolchain.compile_one('''
int omp_get_max_threads(void);
int count(void) {
  int n = 0;
#pragma omp parallel
  __atomic_add_fetch(&n, 1, 5);
  return 10 * n + omp_get_max_threads();
}
''')
counts = [kernel.count()]
theirs.omp_set_num_threads(3)
print(*counts, kernel.count(), toolchain.count_threads())
"""


def copy_of_runtime(path: Path, name: bytes) -> Path:
    """OpenMP's runtime as a package brings it: under another name of as many letters."""
    toolchain.share_openmp()
    paths = [x.split()[-1] for x in Path("/proc/self/maps").read_text().splitlines()]
    own = next((x for x in paths if "libgomp" in x), None)
    if own is None:
        pytest.skip("no libgomp here")
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(Path(own).read_bytes().replace(b"libgomp.so.1\0", name + b"\0"))
    return path


def counts_with(*copies: Path, index: int):
    """The threads of a kernel, with these copies loaded, of which one is told how many."""
    command = [sys.executable, "-c", CHILD, str(index), *map(str, copies)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.slow
def test_kernels_use_the_runtime_that_was_there_first(tmp_path):
    copy = copy_of_runtime(tmp_path / "libgomp-0123.so.1", b"libgomq.so.1")
    assert counts_with(copy, index=0) == ["11", "33", "3"]


@pytest.mark.parametrize("first", [False, True])
def test_pytorchs_runtime_is_taken_of_several(tmp_path, first):
    other = copy_of_runtime(tmp_path / "other.libs" / "libgomp-0123.so.1", b"libgomq.so.1")
    of_pytorch = copy_of_runtime(tmp_path / "torch.libs" / "libgomp-4567.so.1", b"libgomr.so.1")
    copies = (of_pytorch, other) if first else (other, of_pytorch)
    assert counts_with(*copies, index=copies.index(of_pytorch)) == ["11", "33", "3"]
