"""Threads compute with tensors that others recorded, and that nobody has computed yet."""

import gc
import sys
import threading
import weakref

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags

THREADS, STEPS = 4, 6


@pytest.fixture(params=["auto", "always", "never"])
def mode(request):
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    with flags.override(compile=request.param):
        yield request.param
    sys.setswitchinterval(interval)


def run_in_threads(work) -> None:
    """Run `work(number)` in several threads that start together; raise the first error."""
    barrier, errors = threading.Barrier(THREADS), []

    def body(number):
        barrier.wait()
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=body, args=(i,)) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def mixed(pick, x, y):
    """One of some functions, alike for NumPy and for tensors."""
    return [x + y, x * y * 0.5, (x @ y) * 0.1, x - y.sum() * 0.01][pick]


@pytest.mark.parametrize("seed", range(6))
def test_random_programs_share_what_waits(seed, mode):
    """Each thread reads what the main thread recorded and what the others publish."""
    rng = np.random.default_rng(seed)
    start = [rng.standard_normal((4, 4)).astype(np.float32) for _ in range(4)]
    picks = rng.integers(0, 4, (THREADS, STEPS))
    reads = rng.integers(0, 4, (THREADS, STEPS, 2))

    def chain(arrays, number, publish):
        x = arrays[number]
        for step in range(STEPS):
            first, second = (arrays[i] for i in reads[number, step])
            x = mixed(picks[number, step], mixed(picks[number, -step], x, first), second)
            publish(number, step, x)

    wanted = {}
    chain_of = [array * np.float32(1.5) + 1 for array in start]
    for number in range(THREADS):
        chain(chain_of, number, lambda i, step, x: wanted.__setitem__((i, step), x))
    shared = [gh.asarray(array) * 1.5 + 1 for array in start]
    published, values = {}, {}

    def work(number):
        def publish(i, step, x):
            published[i, step] = x
            other = published.get(((i + 1) % THREADS, step))
            if other is not None:
                values[(i + 1) % THREADS, step] = other.numpy()
            if picks[i, step] % 2:
                values[i, step] = x.numpy()

        chain(shared, number, publish)

    run_in_threads(work)
    for place, x in published.items():
        np.testing.assert_allclose(x.numpy(), wanted[place], rtol=1e-4, atol=1e-4)
    for place, value in values.items():
        np.testing.assert_allclose(value, wanted[place], rtol=1e-4, atol=1e-4)


def test_a_model_gives_gradients_in_each_thread(mode):
    gh.random.seed(0)
    model = gh.nn.Sequential(gh.nn.Linear(5, 7), gh.nn.Tanh(), gh.nn.Linear(7, 3))
    x = gh.random.normal((THREADS, 6, 5)) * 2  # waits as the weights do
    gradients = [None] * THREADS

    def gradients_of(number):
        return [
            g.numpy() for g in gh.grad(lambda x: (model(x) ** 2).sum(), argnums=(0,))(x[number])
        ]

    def work(number):
        for _ in range(3):
            gradients[number] = gradients_of(number)

    run_in_threads(work)
    for number in range(THREADS):
        for result, wanted in zip(gradients[number], gradients_of(number), strict=True):
            np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5)


def test_a_thread_that_ends_leaves_nothing():
    """Without a collection of garbage: what it recorded and never read is gone with it."""
    nodes = []

    def work(number):
        x = gh.ones((3,)) + number
        nodes.append(weakref.ref(x.payload))

    gc.disable()
    try:
        run_in_threads(work)
        assert [node() for node in nodes] == [None] * THREADS
    finally:
        gc.enable()
