"""Ranks for tests: processes that stay from test to test, so that each costs milliseconds."""

import contextlib
import importlib.util
import inspect
import multiprocessing
import shutil
import sys
import tempfile
import traceback

import pytest

from glasshouse.distributed.groups import membership

TIMEOUT_S = 60.0


def serve(transport: str, rank: int, size: int, folder: str, pipe) -> None:
    """Run functions on a rank that the test sends, one after another."""
    membership.init(transport, rank=rank, size=size, rendezvous=folder, timeout_s=TIMEOUT_S)
    while (task := pipe.recv()) is not None:
        path, name, args = task
        try:
            answer = True, getattr(load(path), name)(*args)
        except BaseException:
            answer = False, traceback.format_exc()
        pipe.send(answer)
    membership.shutdown()


def load(path: str):
    """The test file as a module, imported once."""
    name = f"of_rank_{abs(hash(path))}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


class Ranks:
    """`ranks(fn, *args, size=2)`: what fn(*args), a function of a test file, gives on each rank."""

    def __init__(self, transport: str):
        self.transport = transport
        self.pools: dict[int, tuple] = {}

    def pool(self, size: int):
        if size not in self.pools:
            context = multiprocessing.get_context("spawn")
            folder = tempfile.mkdtemp(prefix="glasshouse-test-")
            pipes = [context.Pipe() for _ in range(size)]
            workers = [
                context.Process(
                    target=serve, args=(self.transport, rank, size, folder, pipes[rank][1])
                )
                for rank in range(size)
            ]
            for worker in workers:
                worker.start()
            self.pools[size] = [pipe for pipe, _ in pipes], workers, folder
        return self.pools[size]

    def __call__(self, fn, *args, size: int = 2) -> list:
        pipes, workers, _ = self.pool(size)
        for pipe in pipes:
            pipe.send((inspect.getfile(fn), fn.__name__, args))
        answers = []
        for pipe, worker in zip(pipes, workers, strict=True):
            if not pipe.poll(2 * TIMEOUT_S):
                self.end(size)
                pytest.fail(f"a rank does not answer; exit code {worker.exitcode}")
            answers.append(pipe.recv())
        failed = [text for ok, text in answers if not ok]
        if failed:
            self.end(size)
            pytest.fail("\n".join(failed))
        return [value for _, value in answers]

    def end(self, size: int) -> None:
        """End the ranks of a world of this size."""
        pipes, workers, folder = self.pools.pop(size)
        for pipe in pipes:
            with contextlib.suppress(OSError):
                pipe.send(None)
        for worker in workers:
            worker.join(5)
            if worker.is_alive():
                worker.kill()
                worker.join()
        shutil.rmtree(folder, ignore_errors=True)


def serving(transport: str):
    pool = Ranks(transport)
    yield pool
    for size in list(pool.pools):
        pool.end(size)


@pytest.fixture(scope="session")
def ranks():
    yield from serving("local")


@pytest.fixture(scope="session")
def clear_ranks():
    """Ranks over the slow clear transport."""
    yield from serving("shared_files")
