import contextlib

import numpy as np
import pytest
from parallel_models import BY_ROWS, OPTIMIZERS, alone, batches, build, check_same, loss_of, train

import glasshouse as gh
from glasshouse import distributed as dist
from glasshouse.base.errors import CollectiveError, OptionError

REDUCERS = ["inline", "coalescing", "overlapped"]


def replicated(kind, rule, steps, options, clip=None):
    mesh = dist.mesh({"data": dist.size()})
    model = build(kind)
    if dist.rank():  # the first rank's values count
        with gh.no_grad():
            for p in model.parameters():
                p.copy_(p + 1)
    dist.replicate(model, mesh, **options)
    optimizer = OPTIMIZERS[rule](model.parameters())
    return train(model, optimizer, batches(kind, steps), BY_ROWS, mesh, clip=clip)


@pytest.mark.slow
@pytest.mark.parametrize("reducer", REDUCERS)
def test_two_ranks_train_as_one_process(ranks, reducer):
    result = ranks(replicated, "mlp", "sgd", 20, {"reducer": reducer})
    check_same(result, alone("mlp", "sgd", 20), 1e-5)


@pytest.mark.slow
def test_small_buckets_and_tied_weights_change_nothing(ranks):
    result = ranks(replicated, "gpt", "adamw", 6, {"bucket_bytes": 4096})
    check_same(result, alone("gpt", "adamw", 6), 1e-4, atol=1e-3)


@pytest.mark.slow
def test_gradients_are_clipped_by_the_norm_of_their_mean(ranks):
    result = ranks(replicated, "mlp", "sgd", 5, {}, 0.1)
    check_same(result, alone("mlp", "sgd", 5, clip=0.1), 1e-5)


def gradients(options, accumulate=False, compute=None):
    mesh = dist.mesh({"data": dist.size()})
    model = dist.replicate(build("mlp"), mesh, **options)
    for step, batch in enumerate(batches("mlp", 2)):
        x, target = (dist.place(a, mesh, BY_ROWS) for a in batch)
        with dist.no_sync(model) if accumulate and step == 0 else contextlib.nullcontext():
            loss_of(model(x) if compute is None else compute(model)(x), target).backward()
    return [p.grad.numpy() for p in model.parameters()]


def gradients_alone():
    model = build("mlp")
    for x, target in batches("mlp", 2):
        loss_of(model(gh.asarray(x)), gh.asarray(target)).backward()
    return [p.grad.numpy() for p in model.parameters()]


def check_gradients(result, rtol=1e-5, atol=1e-6):
    for own in result:
        for got, wanted in zip(own, gradients_alone(), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=rtol, atol=atol)


@pytest.mark.parametrize("accumulate", [False, True])
def test_gradients_of_several_batches_add_up(ranks, accumulate):
    check_gradients(ranks(gradients, {}, accumulate))


def captured_gradients(options):
    return gradients(options, compute=gh.optimize)


def test_a_captured_model_has_the_same_gradients(ranks):
    check_gradients(ranks(captured_gradients, {}))


def recomputed_gradients(options):
    return gradients(options, compute=lambda model: gh.checkpoint(lambda x: model(x)))


@pytest.mark.parametrize("reducer", REDUCERS)
def test_a_recomputed_model_has_the_same_gradients(ranks, reducer):
    check_gradients(ranks(recomputed_gradients, {"reducer": reducer}))


def gradients_of_one_batch(options):
    """Return the gradients of this rank's part alone, and those of all ranks' parts."""
    mesh, model = dist.mesh({"data": dist.size()}), build("mlp")
    (batch,) = batches("mlp", 1)
    x, target = (dist.place(a, mesh, BY_ROWS) for a in batch)
    results = []
    for make in (lambda: model, lambda: dist.replicate(model, mesh, **options)):
        model.zero_grad()
        loss_of(make()(x), target).backward()
        results.append([p.grad.numpy() for p in model.parameters()])
    return results


def test_compressed_gradients_are_off_by_no_more_than_is_said(ranks):
    result = ranks(gradients_of_one_batch, {"compress": "bfloat16"})
    for *own, got in zip(*[own for own, _ in result], result[0][1], strict=True):
        error = abs(got - np.mean(own, axis=0))
        assert np.any(error)
        assert np.all(error <= 2 * 2.0**-8 * 1.01 * np.mean(np.abs(own), axis=0))


class Branches(gh.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = (gh.nn.Linear(3, 1) for _ in range(3))

    def forward(self, x, first):
        return (self.a if first else self.b)(x)


def unused():
    mesh = dist.mesh({"data": dist.size()})
    gh.random.seed(0)
    model = dist.replicate(Branches(), mesh, find_unused=True)
    model(gh.ones((2, 3)), dist.rank() == 0).sum().backward()
    return [p.grad is not None and p.grad.numpy() for p in model.parameters()]


def test_ranks_may_use_different_parameters(ranks):
    for a, a_bias, b, b_bias, c, c_bias in ranks(unused):
        for weight, bias in ((a, a_bias), (b, b_bias)):
            np.testing.assert_allclose(weight, np.ones((1, 3)))
            np.testing.assert_allclose(bias, [1.0])
        assert (c, c_bias) == (False, False)


def layers(*names):
    """A model with a layer of each name, in this order."""
    return gh.nn.ModuleDict({name: gh.nn.Linear(2, 2) for name in names})


def another_model(kind):
    mesh, other = dist.mesh({"data": dist.size()}), dist.rank() == 1
    models = {
        "shape": lambda: gh.nn.Linear(2, 1 + other),
        "names": lambda: layers("a", "c" if other else "b"),
        "order": lambda: layers(*("ba" if other else "ab")),
        "more": lambda: layers(*("abc" if other else "ab")),
        "dtype": lambda: gh.nn.Linear(2, 2).to(dtype="float64" if other else "float32"),
        "frozen": lambda: layers("a", "b"),
    }
    model = models[kind]()
    if kind == "frozen":
        model["b" if other else "a"].requires_grad_(False)
    with pytest.raises(OptionError) as error:
        dist.replicate(model, mesh)
    return str(error.value)


@pytest.mark.parametrize(
    ("kind", "differs"),
    [
        ("shape", "rank 0: weight float32[1, 2]; rank 1: weight float32[2, 2]"),
        ("names", "rank 0: b.weight float32[2, 2]; rank 1: c.weight float32[2, 2]"),
        ("order", "rank 0: a.weight float32[2, 2]; rank 1: b.weight float32[2, 2]"),
        ("more", "rank 0: none; rank 1: c.weight float32[2, 2]"),
        ("dtype", "rank 0: weight float32[2, 2]; rank 1: weight float64[2, 2]"),
        ("frozen", "rank 0: a.weight float32[2, 2], frozen; rank 1: a.weight float32[2, 2]"),
    ],
)
def test_another_model_on_some_rank_is_refused(ranks, kind, differs):
    for message in ranks(another_model, kind):
        assert differs in message


def other_layers_used(reducer):
    model = dist.replicate(layers("a", "b"), dist.mesh({"data": dist.size()}), reducer=reducer)
    try:
        model["ab"[dist.rank()]](gh.ones((1, 2))).sum().backward()
        return [p.grad.tolist() for p in model.parameters() if p.grad is not None]
    except CollectiveError as error:
        return str(error)


@pytest.mark.slow
@pytest.mark.parametrize("reducer", REDUCERS)
def test_gradients_of_different_parameters_are_not_mixed(reducer):
    for message in dist.spawn(other_layers_used, 2, reducer):
        assert "gradients of a." in message and "gradients of b." in message


def test_an_unknown_reducer_is_refused_with_the_nearest():
    with pytest.raises(OptionError, match="Did you mean 'inline'"):
        dist.replicate(gh.nn.Linear(1, 1), dist.mesh({"data": 1}), reducer="inlined")
