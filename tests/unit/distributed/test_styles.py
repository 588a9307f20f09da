import numpy as np
import pytest
from parallel_models import (
    DECODER_PLANS,
    OPTIMIZERS,
    alone,
    batches,
    build,
    check_same,
    loss_by_class,
    loss_of,
    train,
)

import glasshouse as gh
from glasshouse import distributed as dist
from glasshouse.base.errors import IndexOutOfRangeError, OptionError, ShapeError
from glasshouse.distributed import (
    Apart,
    Column,
    Heads,
    Replicate,
    Row,
    Sequence,
    Shard,
    Vocabulary,
)

PLANS = {
    **DECODER_PLANS,
    "mlp": {"0": Column(), "2": Row()},
    "joined": {
        "layers.*.self_attn": Heads(),
        "layers.*.linear1": Column(output=Replicate()),
        "layers.*.linear2": Row(input=Replicate()),
    },
}


def trained(axes, plan, rule, steps, stage=0, clip=None):
    """Losses and parameters of a model under a plan; data parallel along the other axes."""
    mesh, kind = dist.mesh(axes), "mlp" if plan == "mlp" else "gpt"
    model = dist.distribute(build(kind), mesh, PLANS.get(plan, {}))
    over = tuple(axis for axis in axes if axis != "tensor")
    optimizer = OPTIMIZERS[rule](model.parameters())
    if stage:
        optimizer = dist.zero(model, optimizer, mesh, over, stage=stage)
    elif over:
        dist.replicate(model, mesh, over)
    by_class = plan.startswith(("tensor", "sequence"))
    loss = loss_by_class(mesh["tensor"]) if by_class else loss_of
    placements = {axis: Shard(axis == "context") for axis in over}
    return train(model, optimizer, batches(kind, steps), placements, mesh, clip=clip, loss_of=loss)


def test_columns_and_rows_train_as_one_process(ranks):
    result = ranks(trained, {"tensor": 2}, "mlp", "sgd", 20)
    check_same(result, alone("mlp", "sgd", 20), 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("plan", ["tensor", "joined", "sequence"])
def test_a_decoder_under_a_plan_trains_as_one_process(ranks, plan):
    result = ranks(trained, {"tensor": 2}, plan, "adamw", 6, 0, 0.5)
    check_same(result, alone("gpt", "adamw", 6, clip=0.5), 1e-4, atol=1e-3)


@pytest.mark.slow
def test_a_decoder_on_parts_of_the_sequence_trains_as_one_process(ranks):
    result = ranks(trained, {"context": 2}, "context", "sgd", 6)
    check_same(result, alone("gpt", "sgd", 6), 1e-5, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "axes, plan, stage",
    [
        ({"data": 2, "tensor": 2}, "tensor", 0),
        ({"data": 2, "tensor": 2}, "sequence", 3),
        ({"context": 2, "tensor": 2}, "tensor, context", 0),
        ({"data": 2, "context": 2}, "context", 2),
    ],
)
def test_combinations_train_as_one_process(ranks, axes, plan, stage):
    result = ranks(trained, axes, plan, "sgd", 4, stage, 0.5, size=4)
    check_same(result, alone("gpt", "sgd", 4, clip=0.5), 1e-5, atol=1e-4)


def ring(is_causal):
    mesh, rng = dist.mesh({"context": dist.size()}), np.random.default_rng(0)
    q, k, v, g = (
        dist.place(rng.standard_normal((2, 8, 4)).astype(np.float32), mesh, {"context": Shard(1)})
        for _ in range(4)
    )
    for x in (q, k, v):
        x.requires_grad = True
    y = dist.ring_attention(q, k, v, group=mesh["context"], is_causal=is_causal)
    (y * g).sum().backward()
    sharding = dist.sharding_of(g)
    return [dist.gather(x, sharding).numpy() for x in (y.detach(), q.grad, k.grad, v.grad)]


@pytest.mark.slow
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("size", [2, 4])
def test_attention_in_a_ring_is_exact(ranks, is_causal, size):
    rng = np.random.default_rng(0)
    q, k, v, g = (gh.asarray(rng.standard_normal((2, 8, 4)).astype(np.float32)) for _ in range(4))
    for x in (q, k, v):
        x.requires_grad = True
    y = gh.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal)
    (y * g).sum().backward()
    for result in ranks(ring, is_causal, size=size):
        for got, wanted in zip(result, (y, q.grad, k.grad, v.grad), strict=True):
            np.testing.assert_allclose(got, wanted.numpy(), rtol=1e-4, atol=1e-6)


def losses_by_class(options):
    mesh, rng = dist.mesh({"tensor": 2}), np.random.default_rng(1)
    scores = rng.standard_normal((3, 6, 2)).astype(np.float32)
    own = dist.place(scores, mesh, {"tensor": Shard(1)})
    own.requires_grad = True
    target = gh.asarray([[0, 5], [3, 2], [-100, 1]])
    loss = dist.cross_entropy(own, target, group=mesh["tensor"], **options)
    loss.sum().backward()
    return loss.numpy(), dist.gather(own.grad, dist.sharding_of(own)).numpy()


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy_of_classes_that_ranks_share_out(ranks, reduction):
    scores = np.random.default_rng(1).standard_normal((3, 6, 2)).astype(np.float32)
    scores = gh.asarray(scores).requires_grad_()
    target = gh.asarray([[0, 5], [3, 2], [-100, 1]])
    wanted = gh.nn.functional.cross_entropy(scores, target, reduction=reduction)
    wanted.sum().backward()
    for loss, gradient in ranks(losses_by_class, {"reduction": reduction}):
        np.testing.assert_allclose(loss, wanted.numpy(), rtol=1e-5)
        np.testing.assert_allclose(gradient, scores.grad.numpy(), rtol=1e-4, atol=1e-6)


def of_no_rank():
    """Return the errors for tokens and classes that no rank has; also for some known only when
    read."""
    mesh, messages = dist.mesh({"tensor": 2}), []
    table = dist.distribute(gh.nn.Sequential(gh.nn.Embedding(6, 4)), mesh, {"0": Vocabulary()})
    scores = gh.zeros((2, 3))
    for call, wrong in (
        (table, [0, 6]),
        (table, [-1, 5]),
        (lambda y: dist.cross_entropy(scores, y, group=mesh["tensor"]), [-100, 6]),
    ):
        with pytest.raises(IndexOutOfRangeError) as caught:
            call(gh.asarray(wrong))
        messages.append(str(caught.value))
    with pytest.raises(IndexOutOfRangeError):
        table(gh.arange(1 << 17) % 7).numpy()
    return messages


def test_numbers_outside_a_shared_vocabulary_are_refused_on_each_rank(ranks):
    for above, below, of_class in ranks(of_no_rank):
        assert "expected indices from 0 to 5; got indices from 0 to 6" in above
        assert "expected indices from 0 to 5; got indices from -1 to 5" in below
        assert "expected class indices from 0 to 5, or ignore_index -100; got" in of_class


def masks():
    mesh = dist.mesh({"data": 2, "tensor": 2})
    dist.seed(7, mesh)
    alike = gh.nn.Dropout(0.5)
    apart = dist.distribute(gh.nn.Sequential(gh.nn.Dropout(0.5)), mesh, {"0": Apart()})
    x = gh.ones(64)
    return [layer(x).numpy() for layer in (alike, apart, alike)]


def test_dropout_differs_by_data_and_where_ranks_share_out_units(ranks):
    result = ranks(masks, size=4)  # ranks 0 and 1 have the same data
    for whole in (0, 2):
        np.testing.assert_array_equal(result[0][whole], result[1][whole])
        assert np.any(result[0][whole] != result[2][whole])
    assert np.any(result[0][1] != result[1][1])


def refusals():
    mesh, messages = dist.mesh({"tensor": 2}), []
    model = build("gpt")
    before = [p.numpy() for p in model.parameters()]
    for error, plan in (
        (OptionError, {"layers.*.linear3": Column()}),
        (OptionError, {"layers.*.norm1": Column()}),
        (OptionError, {"tokens": Vocabulary(), "output": Row()}),
        (OptionError, {"output": Column("tenser")}),
        (ShapeError, {"norm": Sequence(), "small": Column()}),
    ):
        model.small = gh.nn.Linear(4, 3)
        with pytest.raises(error) as caught:
            dist.distribute(model, mesh, {"layers.*.linear1": Column(), **plan})
        messages.append(str(caught.value))
    after = [p.numpy() for p in model.parameters()][: len(before)]
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
    return messages


def test_plans_that_do_not_fit_are_refused_and_change_nothing(ranks):
    for pattern, kind, tied, axis, small in ranks(refusals):
        assert "got 'layers.*.linear3'" in pattern
        assert "Did you mean 'layers." in pattern
        assert "expected Linear; got LayerNorm at 'layers.0.norm1'" in kind
        assert "one way to cut it" in tied
        assert "Did you mean 'tensor'" in axis
        assert "small.weight" in small
        assert "2 ranks along 'tensor' divide; got shape (3, 4)" in small


def held():
    mesh = dist.mesh({"tensor": 2})
    model = dist.distribute(build("gpt"), mesh, PLANS["tensor"])
    return [p.size for p in model.parameters()]


def test_each_rank_holds_about_half_of_a_decoder(ranks):
    whole = sum(p.size for p in build("gpt").parameters())
    for sizes in ranks(held):
        assert whole / 2 < sum(sizes) < 0.65 * whole
