import numpy as np
import pytest

import glasshouse as gh
from glasshouse import distributed as dist


def own(size=6):
    values = np.random.default_rng(dist.rank()).standard_normal((size, 2)).astype(np.float32)
    return gh.asarray(values)


def whole(count, size=6):
    return [
        np.random.default_rng(rank).standard_normal((size, 2)).astype(np.float32)
        for rank in range(count)
    ]


def collectives():
    x, ring = own(), [(i, (i + 1) % dist.size()) for i in range(dist.size())]
    results = [
        dist.all_reduce(x),
        dist.all_reduce(x, "mean"),
        dist.all_reduce(x, "max"),
        dist.all_gather(x, 1),
        dist.reduce_scatter(x),
        dist.all_to_all(x, 0, 1),
        dist.broadcast(x, 1),
        dist.permute(x, ring),
        dist.shard(x),
    ]
    return [y.numpy() for y in results]


def test_functions_equal_what_numpy_makes_of_all_parts(ranks):
    parts = whole(2)
    for rank, result in enumerate(ranks(collectives)):
        expected = [
            parts[0] + parts[1],
            (parts[0] + parts[1]) / 2,
            np.maximum(*parts),
            np.concatenate(parts, 1),
            np.split(parts[0] + parts[1], 2)[rank],
            np.concatenate([np.split(part, 2)[rank] for part in parts], 1),
            parts[1],
            parts[1 - rank],
            np.split(parts[rank], 2)[rank],
        ]
        for got, wanted in zip(result, expected, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-6)


def gradients(weights):
    """Of the sum of both ranks' losses, Σ w · f(x), for each function."""
    functions = [
        dist.all_reduce,
        lambda x: dist.all_gather(x, 1),
        dist.reduce_scatter,
        lambda x: dist.all_to_all(x, 0, 1),
        lambda x: dist.broadcast(x, 1),
        lambda x: dist.permute(x, [(0, 1), (1, 0)]),
        lambda x: dist.all_reduce(x, "max"),
    ]
    results = []
    for function, weight in zip(functions, weights, strict=True):
        x = own()
        x.requires_grad = True
        (function(x) * gh.asarray(weight[dist.rank()])).sum().backward()
        results.append(x.grad.numpy())
    return results


def test_gradients_are_those_of_the_sum_of_all_losses(ranks):
    rng = np.random.default_rng(9)
    shapes = [(6, 2), (6, 4), (3, 2), (3, 4), (6, 2), (6, 2), (6, 2)]
    weights = [rng.standard_normal((2, *shape)).astype(np.float32) for shape in shapes]
    result = ranks(gradients, weights)
    parts = [gh.asarray(part) for part in whole(2)]

    def together(number):
        w = [gh.asarray(weights[number][rank]) for rank in range(2)]

        def loss(a, b):
            total, halves = a + b, (gh.split(a, 2, axis=0), gh.split(b, 2, axis=0))
            results = [
                [total, total],
                [gh.concat([a, b], axis=1)] * 2,
                [total[:3], total[3:]],
                [gh.concat([a[:3], b[:3]], axis=1), gh.concat([a[3:], b[3:]], axis=1)],
                [b, b],
                [b, a],
                [gh.maximum(a, b)] * 2,
            ][number]
            assert halves
            return sum((r * v).sum() for r, v in zip(results, w, strict=True))

        return loss

    for number in range(len(shapes)):
        expected = gh.grad(together(number), argnums=(0, 1))(*parts)
        for rank in range(2):
            np.testing.assert_allclose(
                result[rank][number], expected[rank].numpy(), rtol=1e-5, atol=1e-6
            )


def replicated_layers(w1, w2, x):
    """A hidden layer whose units the ranks share out, as tensor-parallel layers do."""
    w1, w2, x = (gh.asarray(v) for v in (w1, w2, x))
    for v in (w1, w2, x):
        v.requires_grad = True
    first, second = dist.shard(w1, 1), dist.shard(w2, 0)
    hidden = gh.tanh(dist.copy_to(x) @ first)
    y = dist.all_reduce(hidden @ second, replicated=True)
    (y * y).sum().backward()
    return [v.grad.numpy() for v in (w1, w2, x)]


def test_layers_that_ranks_share_out_have_the_gradients_of_whole_ones(ranks):
    rng = np.random.default_rng(3)
    w1, w2, x = (rng.standard_normal(s).astype(np.float32) for s in ((3, 4), (4, 2), (5, 3)))
    wanted = gh.grad(lambda a, b, c: (gh.tanh(c @ a) @ b).square().sum(), argnums=(0, 1, 2))(
        *map(gh.asarray, (w1, w2, x))
    )
    for result in ranks(replicated_layers, w1, w2, x):
        for got, expected in zip(result, wanted, strict=True):
            np.testing.assert_allclose(got, expected.numpy(), rtol=1e-5, atol=1e-6)


def test_an_unknown_reduction_is_refused_with_all_that_there_are():
    with pytest.raises(gh.OptionError, match="'average'.* mean"):
        dist.all_reduce(gh.ones(3), "average")
