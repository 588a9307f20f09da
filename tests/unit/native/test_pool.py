"""The threads of native/pool.c: parts, barriers, regions in regions, many threads, forks."""

import json
import os
import subprocess
import sys

import pytest

from glasshouse.base.processes import OPENMP_SETTINGS
from glasshouse.compile.building import toolchain

KERNELS = r"""
#include <stdint.h>
int omp_get_thread_num(void), omp_get_num_threads(void), omp_get_max_threads(void);
int omp_in_parallel(void);

/* How often each part is done; the threads that a region in a region has. */
int parts(int threads, int *counts) {
  int inner = 0;
#pragma omp parallel num_threads(threads)
  {
    __atomic_add_fetch(counts + omp_get_thread_num(), 1, 5);
#pragma omp parallel num_threads(3)
    __atomic_add_fetch(&inner, omp_get_num_threads(), 5);
  }
  return inner + 1000 * omp_get_thread_num() + 100000 * omp_in_parallel();
}

/* Prefix sums that meet after each doubling: wrong as soon as one is ahead of the others. */
int64_t sums(int threads, int n, int64_t *a, int64_t *b) {
#pragma omp parallel num_threads(threads)
  for (int h = 1; h < n; h *= 2) {
#pragma omp for schedule(static)
    for (int i = 0; i < n; i++) b[i] = a[i] + (i >= h ? a[i - h] : 0);
#pragma omp for schedule(static)
    for (int i = 0; i < n; i++) a[i] = b[i];
  }
  return a[n - 1];
}

/* A loop whose pragma the pool does not know: its library stays with OpenMP. */
#ifdef DYNAMIC
int dynamic(int n) {
  int sum = 0;
#pragma omp parallel for schedule(dynamic, 3) reduction(+ : sum) num_threads(4)
  for (int i = 0; i < n; i++) sum += i;
  return sum;
}
#endif

/* Calls of old compilers, of which oneDNN is made. */
void GOMP_parallel_start(void (*)(void *), void *, unsigned), GOMP_parallel_end(void);
_Bool GOMP_loop_static_start(long, long, long, long, long *, long *);
_Bool GOMP_loop_static_next(long *, long *);
void GOMP_loop_end_nowait(void);
typedef struct { long from, to, step, chunk; int *counts; } Range;
static void body(void *of) {
  const Range *r = of;
  long i, last;
  if (GOMP_loop_static_start(r->from, r->to, r->step, r->chunk, &i, &last)) do {
    for (; r->step > 0 ? i < last : i > last; i += r->step)
      __atomic_add_fetch(r->counts + i, 1, 5);
  } while (GOMP_loop_static_next(&i, &last));
  GOMP_loop_end_nowait();
}
void old_loop(int threads, long from, long to, long step, long chunk, int *counts) {
  Range r = {from, to, step, chunk, counts};
  GOMP_parallel_start(body, &r, threads);
  body(&r);
  GOMP_parallel_end();
}
"""

BEGIN = f"""
import ctypes, json, os, signal, sys, threading, time
import numpy as np
from glasshouse.compile.building import toolchain
from glasshouse.compile.building.toolchain import compile_one, thread_pool, threads_used

SOURCE = {KERNELS!r}
kernel = compile_one(SOURCE)
assert thread_pool.library is not None

def pointer(array):
    return ctypes.c_void_p(array.ctypes.data)

def parts(threads):
    counts = np.zeros(threads, np.int32)
    inner = kernel.parts(threads, pointer(counts))
    return inner == (threads if threads > 1 else 9) and bool((counts == 1).all())

def sums(threads, n=1000):
    a, b = np.arange(n), np.zeros(n, np.int64)
    kernel.sums(threads, n, pointer(a), pointer(b))
    return bool((a == np.cumsum(np.arange(n))).all())

def tasks():
    return len(os.listdir("/proc/self/task"))
"""

pytestmark = pytest.mark.skipif(
    "Free Software" not in toolchain.identity(), reason="threads are gcc's alone"
)


def run_child(code: str, **variables: str):
    """The value that `code` prints as its last line, in a process without PyTorch."""
    settings = ("OMP_NUM_THREADS", "GH_THREADS", "GH_POOL", *OPENMP_SETTINGS)
    environ = {k: v for k, v in os.environ.items() if k not in settings} | variables
    command = [sys.executable, "-c", BEGIN + code]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=100, check=False, env=environ
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_each_part_of_a_region_is_done_once_also_with_more_threads_than_cores():
    code = "print(json.dumps([parts(n) for n in (1, 2, 3, 8, 40, 5) * 20]))"
    assert all(run_child(code))


def test_threads_meet_at_barriers():
    code = "print(json.dumps([sums(n) for n in (1, 2, 3, 8, 2, 16) * 5]))"
    assert all(run_child(code))


def test_threads_that_begin_regions_have_workers_that_end_with_them():
    code = """
before, good = tasks(), []
def begin():
    good.extend(parts(3) and sums(4) for _ in range(20))
threads = [threading.Thread(target=begin) for _ in range(6)]
[t.start() for t in threads]
[t.join() for t in threads]
for _ in range(100):  # the system takes a moment to forget a thread
    if tasks() == before:
        break
    time.sleep(0.05)
print(json.dumps([len(good), all(good), tasks() - before]))
"""
    assert run_child(code) == [120, True, 0]


def test_a_forked_process_has_threads_of_its_own():
    code = """
assert parts(4)
child = os.fork()
if child == 0:
    os._exit(0 if parts(4) and sums(3) else 1)
print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), parts(4)]))
"""
    assert run_child(code) == [0, True]


def test_signals_come_to_the_main_thread_while_a_region_runs():
    code = """
seen = []
signal.signal(signal.SIGALRM, lambda *about: seen.append(threading.current_thread().name))
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
while len(seen) < 5:
    assert parts(3)
signal.setitimer(signal.ITIMER_REAL, 0)
print(json.dumps(sorted(set(seen))))
"""
    assert run_child(code) == ["MainThread"]


def test_loops_of_old_compilers_do_each_step_once():
    code = """
good = []
for threads in (1, 2, 3, 5):
    for first, last, step in ((0, 10, 1), (0, 2, 1), (3, 50, 7), (20, -1, -3), (5, 5, 1)):
        for chunk in (0, 1, 4):
            counts = np.zeros(64, np.int32)
            numbers = map(ctypes.c_long, (first, last, step, chunk))
            kernel.old_loop(threads, *numbers, pointer(counts))
            expected = np.zeros(64, np.int32)
            expected[list(range(first, last, step))] = 1
            good.append(bool((counts == expected).all()))
print(json.dumps(good))
"""
    assert all(run_child(code))


def test_a_library_with_other_calls_stays_with_openmp():
    code = """
other = compile_one("#define DYNAMIC\\n" + SOURCE)
adopted = thread_pool.library.gh_adopt(ctypes.c_void_p(other._handle))
print(json.dumps([adopted, other.dynamic(100), parts(3)]))
"""
    assert run_child(code) == [0, 4950, True]


@pytest.mark.parametrize(
    "variables, expected",
    [
        ({"OMP_NUM_THREADS": "3,2"}, [3, True]),
        ({"OMP_NUM_THREADS": "3", "GH_THREADS": "5"}, [5, True]),
    ],
)
def test_the_number_of_threads_is_as_asked(variables, expected):
    code = "print(json.dumps([toolchain.count_threads(), parts(2)]))"
    assert run_child(code, **variables) == expected


def test_a_number_of_threads_holds_for_one_thread_and_inside_a_context():
    code = """
before = toolchain.count_threads()
with threads_used(7):
    seen = []
    other = threading.Thread(target=lambda: seen.append(toolchain.count_threads()))
    other.start()
    other.join()
    inside = toolchain.count_threads()
print(json.dumps([inside, seen[0] == before, toolchain.count_threads() == before]))
"""
    assert run_child(code) == [7, True, True]


@pytest.mark.parametrize("name, value", [("GH_POOL", "openmp"), ("OMP_WAIT_POLICY", "passive")])
def test_openmp_has_the_threads_where_its_settings_or_the_flag_say_so(name, value):
    code = BEGIN.replace("is not None", "is None") + "print(json.dumps([parts(4), sums(3)]))"
    environ = {**os.environ, name: value}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environ
    )
    assert json.loads(done.stdout) == [True, True]


@pytest.mark.slow
def test_pytorchs_threads_are_shared_as_soon_as_it_is_imported():
    pytest.importorskip("torch")
    code = """
pool = thread_pool.library
before = [pool.gh_is_delegated(), parts(3)]
import torch
torch.set_num_threads(5)
print(json.dumps([*before, pool.gh_is_delegated(), toolchain.count_threads(), parts(3), sums(3)]))
"""
    assert run_child(code) == [0, True, 1, 5, True, True]
