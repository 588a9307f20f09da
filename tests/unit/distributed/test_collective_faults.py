import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).parents[3] / "tools" / "collective_faults.py"
CHEAP = (
    "kill",
    "kill inside",
    "leave",
    "memory",
    "slow",
    "order",
    "dtype",
    "size",
    "group",
    "message",
)


def test_ranks_that_die_or_disagree_are_survived_or_reported():
    command = [sys.executable, TOOL, "--faults", "10", "--seed", "2", "--kinds", *CHEAP]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
