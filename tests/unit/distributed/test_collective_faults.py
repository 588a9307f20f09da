import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[3] / "tools" / "fuzzers" / "collective_faults.py"
CHEAP = (
    "kill",
    "kill inside",
    "leave",
    "memory",
    "slow",
    "order",
    "dtype",
    "size",
    "long",
    "shape",
    "axis",
    "mean",
    "group",
    "message",
)
BESIDE = Path(sys.executable).with_name("mpiexec").exists()
HAS_MPI = importlib.util.find_spec("mpi4py") and (BESIDE or shutil.which("mpiexec"))
NOTHING_MOVED = ("other", "skip", "reduce", "root", *CHEAP[5:12])  # one start of MPI


def check_faults(kinds, seed: int, *options):
    faults = ["--faults", str(len(kinds)), "--seed", str(seed), "--kinds", *kinds]
    command = [sys.executable, TOOL, *faults, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_ranks_that_die_or_disagree_are_survived_or_reported():
    check_faults(CHEAP, 2)


@pytest.mark.slow
def test_programs_of_ranks_disagree_and_all_are_told():
    check_faults(("axis", "mean", "shape"), 3, "--programs")


@pytest.mark.slow
@pytest.mark.skipif(not HAS_MPI, reason="needs mpi4py and an MPI")
def test_disagreements_over_mpi_are_refused_on_all_ranks_and_nothing_has_moved():
    check_faults(NOTHING_MOVED, 4, "--transport", "mpi")


@pytest.mark.slow
@pytest.mark.skipif(not HAS_MPI, reason="needs mpi4py and an MPI")
def test_ranks_over_mpi_that_wait_for_each_other_are_named():
    check_faults(("group", "message"), 5, "--transport", "mpi")
