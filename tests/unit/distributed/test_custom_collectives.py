"""A user's own all-reduce (examples/compressed_all_reduce.py), plugged in with one class."""

import importlib.util
import sys
from pathlib import Path

import numpy as np

from glasshouse import distributed as dist
from glasshouse.ops.process import process

EXAMPLE = Path(__file__).parents[3] / "examples" / "compressed_all_reduce.py"


def example():
    name = "compressed_all_reduce"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, EXAMPLE)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def wrapped(fn):
    """Return the result of fn with the example's class around the world's transport."""
    world = dist.world()
    plain = process.transport(world)
    process.transports[world.ranks] = example().TopKAllReduce(plain)
    try:
        return fn(process.transport(world))
    finally:
        process.transports[world.ranks] = plain


def sums_over_steps():
    rng = np.random.default_rng(dist.rank())
    gradients = rng.standard_normal((5, 2000)).astype(np.float32)

    def steps(transport):
        results = []
        for gradient in gradients:
            transport.begin_step()
            out = np.empty_like(gradient)
            transport.all_reduce(gradient, out)
            results.append(out)
        return results, transport.kept[0]

    return *wrapped(steps), gradients.sum(0)


def test_what_is_not_sent_is_kept_and_nothing_is_lost(ranks):
    (result, kept, own), (others_found, others_kept, other) = ranks(sums_over_steps)
    for a, b in zip(result, others_found, strict=True):
        np.testing.assert_array_equal(a, b)
        assert 0 < np.count_nonzero(a) <= 200
    total = np.sum(result, 0) + kept + others_kept
    np.testing.assert_allclose(total, own + other, rtol=1e-4, atol=1e-5)


def trained():
    plain = example().train(steps=40)
    return plain, wrapped(lambda _: example().train(steps=40))


def test_training_with_a_tenth_of_the_bytes_learns_as_well(ranks):
    (plain, compressed), _ = ranks(trained)
    assert plain[0] == compressed[0]
    assert max(plain[1], compressed[1]) < 0.3 * plain[0]
    assert compressed[2] < 0.2 * plain[2]
