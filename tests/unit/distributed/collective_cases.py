"""Duties of every transport: cases that run on each rank of a world, whatever its transport.

A case checks itself against what NumPy makes of all ranks' operands, which each rank can compute.
`run(name, dtype)` runs one; `CASES` lists all of them."""

import threading

import numpy as np

from glasshouse.base.dtype import all_dtypes, as_dtype
from glasshouse.distributed import group, world
from glasshouse.ops.process import process

NAMES = [dtype.name for dtype in all_dtypes]
NUMBERS = [dtype.name for dtype in all_dtypes if not dtype.is_bool]
ORDERED = [dtype.name for dtype in all_dtypes if not dtype.is_complex]
NARROW = ("float16", "bfloat16")
SHAPE = (3, 5)


def operand(rank: int, dtype: str, shape=SHAPE, seed=0) -> np.ndarray:
    """Return the operand of a rank: its own numbers, the same on each machine."""
    rng = np.random.default_rng((seed, rank, 17))
    values = rng.integers(0, 2, shape) if dtype == "bool" else rng.integers(0, 20, shape)
    if as_dtype(dtype).is_inexact:
        values = values / 7
    if as_dtype(dtype).is_complex:
        values = values + 1j * rng.integers(0, 20, shape) / 3
    return values.astype(as_dtype(dtype).np)


def operands(dtype: str, shape=SHAPE, seed=0, size=None) -> np.ndarray:
    count = size or process.size
    return np.stack([operand(rank, dtype, shape, seed) for rank in range(count)])


def reduced(parts: np.ndarray, reduce: str) -> np.ndarray:
    """Of all ranks' operands, in double precision where they are added up."""
    if reduce != "sum":
        return getattr(np, reduce)(parts, axis=0)
    wide = np.complex128 if parts.dtype.kind == "c" else np.float64
    floating = as_dtype(parts.dtype).is_inexact
    return parts.sum(0, dtype=wide if floating else parts.dtype)


def close(result: np.ndarray, expected: np.ndarray) -> None:
    dtype = result.dtype
    rtol = {"float16": 2e-3, "bfloat16": 2e-2}.get(dtype.name, 1e-6) * process.size
    if as_dtype(dtype).is_inexact:
        wide = np.complex128 if dtype.kind == "c" else np.float64
        np.testing.assert_allclose(result.astype(wide), expected.astype(wide), rtol=rtol, atol=1e-6)
    else:
        np.testing.assert_array_equal(result, expected.astype(dtype))


def transport():
    return process.transport(world())


def all_reduce_sum(dtype):
    x, parts = operand(process.rank, dtype), operands(dtype)
    out = np.empty_like(x)
    transport().all_reduce(x, out)
    close(out, reduced(parts, "sum"))
    np.testing.assert_array_equal(x, parts[process.rank])
    transport().all_reduce(x, x)  # in place
    np.testing.assert_array_equal(x, out)


def all_reduce_extremes(dtype):
    x, parts = operand(process.rank, dtype), operands(dtype)
    for reduce in ("max", "min"):
        out = np.empty_like(x)
        transport().all_reduce(x, out, reduce)
        np.testing.assert_array_equal(out, reduced(parts, reduce))


def all_gather(dtype):
    parts = operands(dtype)
    out = np.empty_like(parts)
    transport().all_gather(operand(process.rank, dtype), out)
    np.testing.assert_array_equal(out, parts)


def reduce_scatter(dtype):
    shape = (process.size, *SHAPE)
    parts = operands(dtype, shape)
    out = np.empty(SHAPE, parts.dtype)
    transport().reduce_scatter(operand(process.rank, dtype, shape), out)
    close(out, reduced(parts, "sum")[process.rank])


def all_to_all(dtype):
    shape = (process.size, *SHAPE)
    parts = operands(dtype, shape)
    out = np.empty(shape, parts.dtype)
    transport().all_to_all(operand(process.rank, dtype, shape), out)
    np.testing.assert_array_equal(out, parts[:, process.rank])


def broadcast(dtype):
    for root in range(process.size):
        x = operand(process.rank, dtype, seed=root)
        transport().broadcast(x, root)
        np.testing.assert_array_equal(x, operand(root, dtype, seed=root))


def send_and_receive(dtype):
    """Both to the next rank, and by tags that come in the order in which they were sent."""
    size, rank = process.size, process.rank
    out = np.empty(SHAPE, as_dtype(dtype).np)
    transport().send_receive(operand(rank, dtype), (rank + 1) % size, out, (rank - 1) % size)
    np.testing.assert_array_equal(out, operand((rank - 1) % size, dtype))
    if rank == 0:
        transport().send(operand(0, dtype, seed=1), 1, tag=5)
    if rank == 1:
        transport().receive(out, 0, tag=5)
        np.testing.assert_array_equal(out, operand(0, dtype, seed=1))


def a_scalar_and_nothing(dtype):
    for shape in ((), (0, 4)):
        parts, x = operands(dtype, shape), operand(process.rank, dtype, shape)
        gathered = np.empty_like(parts)
        transport().all_gather(x, gathered)
        np.testing.assert_array_equal(gathered, parts)
        out = np.empty_like(x)
        transport().all_reduce(x, out, "max")
        np.testing.assert_array_equal(out, parts.max(0))


def what_is_not_a_number(dtype):
    x = operand(process.rank, dtype)
    x[0, 0] = np.inf if process.rank else 1
    x[0, 1] = np.nan if process.rank else 1
    out = np.empty_like(x)
    transport().all_reduce(x, out)
    assert np.isposinf(out[0, 0]) and np.isnan(out[0, 1])
    for reduce in ("max", "min"):
        transport().all_reduce(x, out, reduce)
        assert np.isnan(out[0, 1])


def large_arrays(dtype):
    """More than fits in what transports have as buffers, and no power of two."""
    shape = (1_300_003,)
    x = np.full(shape, process.rank + 1, as_dtype(dtype).np)
    x[-1] = 3
    out = np.empty_like(x)
    transport().all_reduce(x, out)
    total = process.size * (process.size + 1) // 2
    assert (out[:-1] == total).all() and out[-1] == 3 * process.size
    transport().broadcast(x, 1)
    assert (x[:-1] == 2).all()


def started_calls_come_in_order(dtype):
    """A call made directly, too, comes after those that were started before it."""
    shape = (300_000,)  # long enough to be still under way
    xs = [operand(process.rank, dtype, shape, seed) for seed in range(6)]
    outs = [np.empty_like(x) for x in xs]
    requests = [transport().start("all_reduce", x, y) for x, y in zip(xs[:5], outs[:5])]
    transport().all_reduce(xs[5], outs[5])
    for request in reversed(requests):
        request.wait()
        assert request.is_done()
    for seed, out in enumerate(outs):
        close(out, reduced(operands(dtype, shape, seed), "sum"))


def many_at_once(dtype):
    arrays = [operand(process.rank, dtype, (n, 2), n) for n in (1, 4, 2)]
    arrays.append(operand(process.rank, "int32"))
    transport().all_reduce_many(arrays)
    for array, n in zip(arrays, (1, 4, 2)):
        close(array, reduced(operands(dtype, (n, 2), n), "sum"))
    close(arrays[-1], reduced(operands("int32"), "sum"))


def subgroups(dtype):
    """Of two ranks in the other order, of the rest, and of one rank alone."""
    size = process.size
    for ranks in ((1, 0), tuple(range(size - 1, 0, -1)), (size - 1,)):
        result = group(ranks)
        if process.rank in ranks and len(ranks) > 1:
            x = operand(process.rank, dtype)
            out = np.empty((len(ranks), *SHAPE), x.dtype)
            process.transport(result).all_gather(x, out)
            np.testing.assert_array_equal(out, operands(dtype)[list(ranks)])
            process.transport(result).broadcast(x, 1)
            np.testing.assert_array_equal(x, operand(ranks[1], dtype))


def barriers(dtype):
    for _ in range(5):
        transport().barrier()


def calls_from_another_thread(dtype):
    """One thread at a time, as where a Program runs in a thread of its own."""
    results = []

    def run_all_gather():
        all_gather(dtype)
        results.append(True)

    thread = threading.Thread(target=run_all_gather)
    thread.start()
    thread.join()
    assert results


CASES = [
    *((case, name) for case in ("all_gather",) for name in NAMES),
    *(("all_reduce_sum", name) for name in NUMBERS),
    *(("all_reduce_extremes", name) for name in ORDERED),
    *(("reduce_scatter", name) for name in NUMBERS),
    *(("all_to_all", name) for name in ("bool", "bfloat16", "complex128")),
    *(("broadcast", name) for name in ("bool", "bfloat16", "complex128")),
    *(("send_and_receive", name) for name in ("bool", "bfloat16", "float32")),
    *(("a_scalar_and_nothing", name) for name in ("float32", "bfloat16")),
    *(("what_is_not_a_number", name) for name in ("float32", *NARROW)),
    *(("large_arrays", name) for name in ("float32", "int8", "bfloat16")),
    *(("many_at_once", name) for name in ("float32", "float16")),
    ("started_calls_come_in_order", "float32"),
    ("subgroups", "float32"),
    ("barriers", "float32"),
    ("calls_from_another_thread", "float32"),
]


def run(name: str, dtype: str) -> None:
    """One case, on this rank."""
    globals()[name](dtype)
