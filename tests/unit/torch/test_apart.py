"""Tools' work in processes of its own: a crash or a hang costs that work alone."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[3] / "tools" / "judges"))
import apart


def count_to(send, last: int) -> None:
    for number in range(last):
        send(number)


def crash(send) -> None:
    send("begun")
    os.kill(os.getpid(), signal.SIGSEGV)


def hang(send) -> None:
    send("begun")
    time.sleep(60)


def test_work_sends_what_it_finds():
    assert list(apart.messages(count_to, (3,), 60)) == [0, 1, 2]


def test_a_crash_is_told_behind_what_was_sent():
    begun, ended = apart.messages(crash, (), 60)
    assert begun == "begun" and isinstance(ended, apart.Ended)
    assert ended == f"the process ended with status -{int(signal.SIGSEGV)}"


@pytest.mark.slow
def test_a_hang_is_ended():
    begun, ended = apart.messages(hang, (), 2)
    assert begun == "begun" and ended == "took longer than 2 s"


LOCKS = """
import multiprocessing, sys
sys.path.append(sys.argv[1])
import apart

def take_a_lock(send):
    take_a_lock.lock = multiprocessing.get_context("spawn").Lock()
    send("begun")

if __name__ == "__main__":
    print(list(apart.messages(take_a_lock, (), 60)))
"""


def test_a_process_lets_go_of_its_locks(tmp_path):
    """The one that tracks them warns of those that are left when all is over."""
    script = tmp_path / "locks.py"
    script.write_text(LOCKS)
    command = [sys.executable, str(script), str(Path(apart.__file__).parent)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("['begun']\n", "")
