"""`glasshouse launch`. The ranks are processes; the launcher runs here, but where it is killed."""

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from glasshouse.base.errors import BackendError
from glasshouse.cli.main import main
from glasshouse.distributed.launching import supervise
from glasshouse.distributed.launching.nodes import NodePlace
from glasshouse.distributed.launching.supervise import LaunchPlan, launch

SOURCE = Path(__file__).parents[3] / "src"
EXAMPLES = SOURCE.parent / "examples"
LIMIT_S = 60.0


@pytest.fixture
def script(tmp_path, monkeypatch):
    """Writes a script; the ranks find this checkout."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(SOURCE), str(tmp_path)]))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    def write(text: str) -> str:
        path = tmp_path / "script_of_ranks.py"
        path.write_text(textwrap.dedent(text))
        return str(path)

    return write


def running(pid: int) -> bool:
    """Whether a process is there, and not as one that has ended."""
    status = Path(f"/proc/{pid}/stat")
    try:
        return status.read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(holds) -> bool:
    end = time.monotonic() + LIMIT_S
    while not holds() and time.monotonic() < end:
        time.sleep(0.02)
    return holds()


@pytest.mark.slow
def test_each_rank_runs_the_script_with_its_flags(script, capfd, tmp_path):
    path = script(
        """
        import json, os, sys
        from glasshouse.base.flags import flags
        own = [flags.rank, flags.world_size, flags.restart, flags.timeout_s, flags.transport]
        print(json.dumps([*own, sys.argv[1:], os.environ["OMP_NUM_THREADS"], sys.path[0]]))
        print("half\\rwhole", end="", file=sys.stderr)
        """
    )
    logs = tmp_path / "logs"
    plan = LaunchPlan((path, "-x", "1"), 2, "shared_files", 9.0, logs=logs, quiet=True)
    assert launch(plan) == 0
    shown = capfd.readouterr()
    threads = str(max(1, len(os.sched_getaffinity(0)) // 2))
    for rank in range(2):
        logged = (logs / f"rank-{rank}.log").read_bytes().decode()
        assert "half\rwhole" in logged
        line = logged.replace("half\rwhole", "").strip()
        wanted = [rank, 2, 0, 9.0, "shared_files", ["-x", "1"], threads, str(tmp_path)]
        assert json.loads(line) == wanted
        assert (f"[rank {rank}] {line}\n" in shown.out) == (rank == 0)
    assert shown.err == "[rank 0] whole\n"


@pytest.mark.slow
def test_after_a_failure_all_are_ended_and_start_anew(script, capfd, tmp_path):
    script(
        """
        import subprocess, sys, time
        from glasshouse.base.flags import flags
        print("start", flags.restart, flags.world_size, flags.rendezvous)
        if flags.rank == 1:
            if flags.restart == 0:
                sys.exit(3)
            raise ValueError("of the last start")
        child = subprocess.Popen(["sleep", "600"])
        open(f"{sys.argv[1]}/child-{child.pid}", "w").close()
        time.sleep(600)
        """
    )
    plan = LaunchPlan(("-m", "script_of_ranks", str(tmp_path)), 2, restarts=1)
    assert launch(plan) == 1
    shown = capfd.readouterr()
    starts = [line.split()[3:] for line in shown.out.splitlines()]
    assert {(restart, size) for restart, size, _ in starts} == {("0", "2"), ("1", "2")}
    assert not any(Path(folder).exists() for _, _, folder in starts)
    assert not any(running(int(path.name[6:])) for path in tmp_path.glob("child-*"))
    assert "rank 1 of 2 failed: its end with exit code 3. See what it printed." in shown.err
    last = shown.err.partition("restart 1 of 1, on 2 ranks\n")[2].splitlines()
    assert last[0] == "glasshouse launch: rank 1 of 2 failed; all others were ended."
    assert last[1] == "Traceback (most recent call last):"
    assert "script_of_ranks.py" in last[2]
    assert last[-1] == "ValueError: of the last start"
    assert shown.err.count("of the last start") == 2  # in the line of code, and in the message


@pytest.mark.slow
def test_a_run_goes_on_from_its_checkpoint_on_fewer_ranks(script, capfd, tmp_path):
    path = str(EXAMPLES / "elastic_training.py")
    plan = LaunchPlan((path, str(tmp_path / "killed"), "4"), 3, restarts=1, min_ranks=2)
    assert launch(plan) == 0
    shown = capfd.readouterr()
    assert "rank 2 of 3 failed: its end by SIGKILL. Somebody killed it, or" in shown.err
    assert "restart 1 of 1, on 2 ranks" in shown.err
    *steps, weights = shown.out.splitlines()
    started = [line.split(":")[0].removeprefix("[rank 0] ") for line in steps]
    assert started == [
        *(f"step {step} on 3 ranks" for step in (1, 2, 3)),
        *(f"step {step} on 2 ranks" for step in (4, 5, 6, 7, 8)),
    ]
    spec = importlib.util.spec_from_file_location("elastic_training", path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    undisturbed = example.train(str(tmp_path / "alone"))  # in this process
    result = np.array([float(number) for number in weights.split()[3:]])
    np.testing.assert_allclose(result, undisturbed[0], rtol=1e-4)


WAITS = """
    import signal, subprocess, sys, time
    def end(number, frame):
        print("asked to end")
        sys.exit(5)
    signal.signal(signal.SIGTERM, end)
    child = subprocess.Popen(["sleep", "600"])
    import os
    from glasshouse.base.flags import flags
    print("ready", os.getpid(), child.pid, flags.rendezvous)
    time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_launcher_that_is_ended_leaves_no_process_and_no_file(script, number):
    command = [sys.executable, "-m", "glasshouse.cli", "launch", "-n", "2", script(WAITS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as launcher:
        ready = [launcher.stdout.readline().split()[3:] for _ in range(2)]
        pids = [int(pid) for own, child, _ in ready for pid in (own, child)]
        assert all(map(running, pids))
        launcher.send_signal(number)
        rest = launcher.stdout.read()
    assert wait_until(lambda: not any(map(running, pids)))
    assert wait_until(lambda: not any(Path(folder).exists() for _, _, folder in ready))
    if number == signal.SIGTERM:
        assert launcher.returncode == 128 + number
        assert rest.count("asked to end") == 2


@pytest.mark.slow
def test_launchers_of_two_nodes_make_one_world_and_end_together(script, capfd):
    path = script(
        """
        import time
        import glasshouse as gh
        world = gh.distributed.init()
        print("sum", gh.distributed.all_reduce(gh.ones(2) + world.rank).tolist(), world.size)
        if world.rank == 1:
            raise ValueError("of the second node")
        time.sleep(600)
        """
    )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        master = f"127.0.0.1:{taken.getsockname()[1]}"
    options = ["-n", "1", "--nodes", "2", "--node-rank", "1", "--master", master]
    command = [sys.executable, "-m", "glasshouse.cli", "launch", *options, path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as second:
        assert launch(LaunchPlan((path,), 1, node=NodePlace(2, 0, master))) == 1
        assert second.stdout.read() == "[rank 1] sum [3.0, 3.0] 2\n"
    assert second.returncode == 1
    shown = capfd.readouterr()
    assert shown.out == "[rank 0] sum [3.0, 3.0] 2\n"
    assert shown.err.count("rank 1 of 2 failed; all others were ended.") == 2  # each launcher's
    assert shown.err.endswith("ValueError: of the second node\n")


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="needs mpi4py")
def test_mpi_starts_the_ranks_with_the_same_output_and_failures(script, capfd, monkeypatch):
    monkeypatch.setenv("OMPI_ALLOW_RUN_AS_ROOT", "1")
    monkeypatch.setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
    path = script(
        """
        import glasshouse as gh
        world = gh.distributed.init()
        print(gh.distributed.all_reduce(gh.ones(2)).tolist())
        if world.rank == 1:
            raise ValueError("of rank 1")
        gh.distributed.barrier()
        """
    )
    try:
        supervise.find_mpiexec()
    except BackendError:
        pytest.skip("needs mpiexec")
    assert launch(LaunchPlan((path,), 2, "mpi")) != 0
    shown = capfd.readouterr()
    assert {"[rank 0] [2.0, 2.0]", "[rank 1] [2.0, 2.0]"} <= {*shown.out.splitlines()}
    assert "rank 1 of 2 failed; all others were ended." in shown.err
    assert shown.err.endswith("ValueError: of rank 1\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-n", "2", "nowhere.py"], "expected a script; got 'nowhere.py'"),
        (["-n", "2", "--min-ranks", "3", "-m", "x"], "expected --min-ranks up to 2; got 3"),
        (["-n", "1", "--nodes", "2", "-m", "x"], "--master HOST:PORT of the first machine"),
        (["-n", "1", "--node-rank", "1", "-m", "x"], "--node-rank below 1; got 1"),
        (
            ["-n", "1", "--nodes", "2", "--master", "a:1", "--restarts", "1", "-m", "x"],
            "--nodes without --restarts",
        ),
        (["-n", "0", "-m", "x"], "0 is not in the range"),
    ],
)
def test_wrong_options_are_refused(arguments, message):
    done = CliRunner().invoke(main, ["launch", *arguments])
    assert done.exit_code == 2
    assert message in done.output
