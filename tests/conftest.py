"""Of all tests."""

import atexit
import functools
import gc
import hashlib
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

# A shell that starts a command in the background has it ignore the keyboard's interrupt, and so
# would what the tests start; they send it themselves.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Where Python is told to write no bytecode, each process that a test starts would compile the whole
# package, which takes ten times as long as importing it. They share a folder of these tests' own.
if sys.dont_write_bytecode and "PYTHONPYCACHEPREFIX" not in os.environ:
    bytecode = tempfile.mkdtemp(prefix="glasshouse-bytecode-")
    atexit.register(shutil.rmtree, bytecode, ignore_errors=True)
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = bytecode
if "PYTHONPYCACHEPREFIX" in os.environ:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


def pytest_addoption(parser):
    parser.addoption("--part", type=int, default=0, help="which part of slow tests to run, from 0")
    parser.addoption("--of", type=int, default=1, help="how many parts there are")


def pytest_ignore_collect(collection_path, config):
    """Leave out files without a quick test under `-m quick`: reading all tests takes a minute."""
    is_test = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    if is_test and config.getoption("markexpr") == "quick":
        return "mark.quick" not in collection_path.read_text() or None
    return None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Mark the cases outside of samples as slow, before pytest selects by marks; after that,
    deselect the slow tests of other parts: the cases of one test are spread over all parts."""
    mark_outside_of_samples(items)
    yield
    part, parts = config.getoption("part"), config.getoption("of")
    slow = [item for item in items if item.get_closest_marker("slow")]
    others = {id(item): item for i, item in enumerate(slow) if i % parts != part}
    if others:
        items[:] = [item for item in items if id(item) not in others]
        config.hook.pytest_deselected(items=list(others.values()))


def mark_outside_of_samples(items):
    """Mark as slow the cases of a test that are outside of its sample. `sample(count)` has so many
    of the quick ones, which the digests of their names choose."""
    cases = {}
    for item in items:
        if item.get_closest_marker("sample") and not item.get_closest_marker("slow"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for of_test in cases.values():
        (count,) = of_test[0].get_closest_marker("sample").args
        of_test.sort(key=lambda item: hashlib.sha256(item.nodeid.encode()).digest())
        for item in of_test[count:]:
            item.add_marker("slow")


def pytest_collection_finish(session):
    """Exclude everything that exists before the first test (modules, 19,000 tests) from garbage
    collection: of that heap each collection takes 0.3 s, and capture and many tests ask for one."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """A process that is done takes tests of the one that is not: else it waits for minutes."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log) if config.getvalue("dist") == "load" else None


@pytest.fixture(autouse=True, scope="module")
def left_out_of_collections():
    """Exclude what a file's tests leave (Programs, kernels, kinds of calls) from the collections of
    garbage that later ones ask for."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def nothing_waits():
    """Drop what a test recorded and never read, so that the next one does not compute it."""
    yield
    record = sys.modules.get("glasshouse.graph.record")
    if record is not None:
        record.recorder.forget()


@functools.cache
def generators_of(module):
    """The NumPy generators among a module's global names."""
    return [x for x in vars(module).values() if isinstance(x, np.random.Generator)]


@pytest.fixture(autouse=True)
def own_draws(request):
    """Seed the generators of a test's module by the test's name: its data are the same whatever
    tests ran before it, in whichever process."""
    if generators := generators_of(request.module):
        seed = int.from_bytes(hashlib.sha256(request.node.nodeid.encode()).digest()[:8], "little")
        for generator in generators:
            generator.bit_generator.state = type(generator.bit_generator)(seed).state


@functools.cache
def other_hook():
    """The extension that gives the frame-evaluation hook back; None without a C compiler."""
    from glasshouse.compile.building.toolchain import CompileError, extension

    try:
        return extension(Path(__file__).with_name("unit") / "capture" / "other_hook.c")
    except (CompileError, OSError, ImportError):
        return None


@pytest.fixture(autouse=True)
def no_hook_of_dynamo():
    """Take the frame-evaluation hook from TorchDynamo, which keeps it for the rest of the process
    after a backend's error: callers then hold arguments until a call returns."""
    yield
    if "torch._dynamo" in sys.modules and (extension := other_hook()) is not None:
        extension.set_aside()


@pytest.fixture
def own_memory():
    """A manager of memory that holds nothing of other tests."""
    import glasshouse as gh

    with gh.memory.use(type(gh.memory.current())()):
        yield
