"""One OpenMP runtime in a process, under whatever name somebody else has brought it."""

import subprocess
import sys
from pathlib import Path

import pytest

from glasshouse.compile import toolchain

CHILD = """
import ctypes, sys
theirs = ctypes.CDLL(sys.argv[1])
from glasshouse.compile import toolchain
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


def test_kernels_use_the_runtime_that_was_there_first(tmp_path):
    toolchain.share_openmp()
    paths = [x.split()[-1] for x in Path("/proc/self/maps").read_text().splitlines()]
    path = next((x for x in paths if "libgomp" in x), None)
    if path is None:
        pytest.skip("no libgomp here")
    copy = tmp_path / "libgomp-0123.so.1"
    copy.write_bytes(Path(path).read_bytes().replace(b"libgomp.so.1\0", b"libgomq.so.1\0"))
    command = [sys.executable, "-c", CHILD, str(copy)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout.split() == ["11", "33", "3"], done.stderr
