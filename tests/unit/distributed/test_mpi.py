"""The transport mpi, under `mpiexec`: one start for all cases, one for each way to fail."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SOURCE = HERE.parents[2] / "src"
beside = Path(sys.executable).with_name("mpiexec")
MPIEXEC = str(beside) if beside.exists() else shutil.which("mpiexec")

pytestmark = pytest.mark.skipif(
    MPIEXEC is None or importlib.util.find_spec("mpi4py") is None, reason="needs mpi4py and an MPI"
)

spec = importlib.util.spec_from_file_location("mpi_cases", HERE / "collective_cases.py")
cases = importlib.util.module_from_spec(spec)
spec.loader.exec_module(cases)


def python(script: Path, *before: str) -> subprocess.CompletedProcess:
    """Return the output of a script, with the words of a launcher before it."""
    paths = os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [*before, sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )


def mpiexec(script: Path) -> subprocess.CompletedProcess:
    return python(script, MPIEXEC, "-n", "2")


@pytest.fixture(scope="module")
def outcomes():
    """Return the outcome of each case: the errors of the ranks on which it failed."""
    done = mpiexec(HERE / "run_mpi_cases.py")
    results = dict(json.loads(line) for line in done.stdout.splitlines() if line[:1] == "[")
    if done.returncode:
        results["error"] = done.stderr
    return results


@pytest.mark.parametrize(
    "number", range(len(cases.CASES)), ids=["-".join(case) for case in cases.CASES]
)
def test_two_ranks_over_mpi(outcomes, number):
    assert number in outcomes, outcomes.get("error")
    assert outcomes[number] == [], "\n".join(outcomes[number])


LATE = """
import numpy as np, time
import glasshouse as gh
from glasshouse.ops.process import process
world = gh.distributed.init(timeout_s=60)
x = np.ones(3, np.float32)
process.transport(world).all_reduce(x, x)
process.transport(world).timeout_s = 0.3
if world.rank == 0:
    time.sleep(100)
process.transport(world).START  # the line that is named
"""


@pytest.mark.slow
@pytest.mark.parametrize("way", ["all_reduce(x, x)", 'start("all_reduce", x, x).wait()'])
def test_a_rank_that_hangs_ends_all_in_time_and_the_place_is_named(tmp_path, way):
    script = tmp_path / "late.py"
    script.write_text(LATE.replace("START", way))
    done = mpiexec(script)
    assert done.returncode != 0
    assert f"all_reduce on rank 1 at {script}:11: expected all ranks of " in done.stderr
    assert "within 0.3 s; got a call of group world that is not done" in done.stderr


FAILS = """
import numpy as np
import glasshouse as gh
from glasshouse.base.errors import CollectiveError
from glasshouse.ops.process import process
world = gh.distributed.init(timeout_s=100)
try:
    process.transport(world).broadcast(np.ones(4 + 1000 * world.rank), 1)
except CollectiveError as error:
    print(error, flush=True)
if world.rank == 1:
    raise ValueError("of this rank")
gh.distributed.barrier()
"""


@pytest.mark.slow
def test_calls_that_differ_are_refused_and_an_error_on_one_rank_ends_all(tmp_path):
    script = tmp_path / "fails.py"
    script.write_text(FAILS)
    done = mpiexec(script)
    assert done.returncode != 0
    assert "ValueError: of this rank" in done.stderr
    calls = [f"rank {r} broadcast(float64, shape ({n},), root 1)" for r, n in ((0, 4), (1, 1004))]
    assert all(done.stdout.count(call) == 2 for call in calls)


HANGS = """
import time
from glasshouse.distributed.transports import mpi
mpi.optional = lambda *names: time.sleep(100)  # as MPI does where a rank does not come
mpi.begin_mpi(0.5)
"""


@pytest.mark.slow
def test_a_beginning_that_hangs_ends_in_time_and_its_line_is_named(tmp_path):
    script = tmp_path / "hangs.py"
    script.write_text(HANGS)
    done = python(script)
    assert done.returncode == 1
    assert f'File "{script}", line 5 in <module>' in done.stderr
