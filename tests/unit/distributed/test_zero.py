import collections
import contextlib

import numpy as np
import pytest
from parallel_models import BY_ROWS, OPTIMIZERS, alone, batches, build, check_same, loss_of, train

import glasshouse as gh
from glasshouse import distributed as dist
from glasshouse.analyze.planner.blocks import AppliedBlocks, RematBlock
from glasshouse.base.errors import OptionError
from glasshouse.dispatch import backend as backends

STAGES = [1, 2, 3]
IN_THE_FIRST_PASS = "ranks ask each other which gradients there are"


def sharded(kind, rule, steps, options, clip=None):
    mesh = dist.mesh({"data": dist.size()})
    model = build(kind)
    optimizer = OPTIMIZERS[rule](model.parameters())
    optimizer = dist.zero(model, optimizer, mesh, **options)
    return train(model, optimizer, batches(kind, steps), BY_ROWS, mesh, clip=clip)


@pytest.mark.parametrize("stage", STAGES)
def test_two_ranks_train_as_one_process(ranks, stage):
    result = ranks(sharded, "mlp", "sgd", 20, {"stage": stage})
    check_same(result, alone("mlp", "sgd", 20), 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_two_ranks_train_a_decoder_as_one_process(ranks, stage):
    result = ranks(sharded, "gpt", "adamw", 6, {"stage": stage, "bucket_bytes": 4096}, 0.5)
    check_same(result, alone("gpt", "adamw", 6, clip=0.5), 1e-4, atol=1e-3)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("rule", ["lamb", "lars", "novograd"])
def test_rules_with_norms_have_those_of_whole_parameters(ranks, rule, stage):
    result = ranks(sharded, "mlp", rule, 4, {"stage": stage})
    check_same(result, alone("mlp", rule, 4), 1e-4)


def large(is_shared=False):
    """Weights and gradients of a model, large enough that each goes alone, after two steps."""
    gh.random.seed(2)
    model = gh.nn.Sequential(gh.nn.Linear(512, 600), gh.nn.Tanh(), gh.nn.Linear(600, 512))
    optimizer, mesh = OPTIMIZERS["sgd"](model.parameters()), dist.mesh({"data": dist.size()})
    if is_shared:
        optimizer = dist.zero(model, optimizer, mesh, stage=1)
    x = gh.random.normal((8, 512))
    x = dist.place(x, mesh, BY_ROWS) if is_shared else x
    for _ in range(2):
        optimizer.zero_grad()
        (model(x) ** 2).mean().backward()
        optimizer.step()
    return [value.numpy() for p in model.parameters() for value in (p, p.grad)]


@pytest.mark.slow
def test_large_parameters_and_their_gradients_are_those_of_one_process(ranks):
    expected = large()
    for result in ranks(large, True):
        for got, wanted in zip(result, expected, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def local_shapes(stage):
    mesh, model = dist.mesh({"data": dist.size()}), build("mlp")
    optimizer = dist.zero(model, OPTIMIZERS["adamw"](model.parameters()), mesh, stage=stage)
    (batch,) = batches("mlp", 1)
    x, target = (dist.place(a, mesh, BY_ROWS) for a in batch)
    loss_of(model(x), target).backward()
    gradients = [p.grad.shape for p in model.parameters()]
    optimizer.step()
    state = [optimizer.state[p]["exp_avg"].shape for p in model.parameters()]
    return [p.shape for p in model.parameters()], gradients, state


WHOLE = [(16, 6), (16,), (4, 16), (4,)]
HALVES = [(8, 6), (8,), (2, 16), (2,)]


@pytest.mark.parametrize(
    "stage, parameters, gradients", [(1, WHOLE, WHOLE), (2, WHOLE, HALVES), (3, HALVES, HALVES)]
)
def test_each_rank_has_its_rows(ranks, stage, parameters, gradients):
    for result in ranks(local_shapes, stage):
        assert result == (parameters, gradients, HALVES)


def accumulated(stage):
    mesh, model = dist.mesh({"data": dist.size()}), build("mlp")
    optimizer = dist.zero(model, OPTIMIZERS["sgd"](model.parameters()), mesh, stage=stage)
    for number in range(2):
        optimizer.zero_grad()
        for batch in list(batches("mlp", 4))[2 * number : 2 * number + 2]:
            x, target = (dist.place(a, mesh, BY_ROWS) for a in batch)
            loss_of(model(x), target).backward()
        optimizer.step()
    return [dist.gather(p).numpy() for p in model.parameters()]


@pytest.mark.slow
def test_gradients_of_several_batches_add_up(ranks):
    model = build("mlp")
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    for number, (x, target) in enumerate(batches("mlp", 4)):
        if number % 2 == 0:
            optimizer.zero_grad()
        loss_of(model(gh.asarray(x)), gh.asarray(target)).backward()
        if number % 2:
            optimizer.step()
    for stage in STAGES:
        for result in ranks(accumulated, stage):
            for got, p in zip(result, model.parameters(), strict=True):
                np.testing.assert_allclose(got, p.numpy(), rtol=1e-4, atol=1e-6)


def called_by(way, stage):
    mesh, model = dist.mesh({"data": dist.size()}), build("mlp")
    optimizer = dist.zero(model, OPTIMIZERS["sgd"](model.parameters()), mesh, stage=stage)
    forward = gh.optimize(model) if way == "captured" else gh.checkpoint(lambda x: model(x))
    losses = []
    for batch in batches("mlp", 3):
        x, target = (dist.place(a, mesh, BY_ROWS) for a in batch)
        optimizer.zero_grad()
        loss = loss_of(forward(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [dist.gather(p).numpy() for p in model.parameters()]


@pytest.mark.parametrize("stage", [2, 3])
@pytest.mark.parametrize("way", ["captured", "recomputed"])
def test_captured_and_recomputed_models(ranks, way, stage):
    check_same(ranks(called_by, way, stage), alone("mlp", "sgd", 3), 1e-5)


class WithoutUnits(gh.nn.Module):
    """A model whose parameters belong to the whole, of which a part runs again."""

    def __init__(self, layers):
        super().__init__()
        self.first, self.last = layers[0], layers[2]

    def forward(self, x):
        return self.last(gh.checkpoint(lambda x: gh.tanh(self.first(x)))(x))


def with_blocks_again(way):
    """Losses and parameters under ZeRO 3, whose blocks or parts run again in the backward pass."""
    mesh, model = dist.mesh({"data": dist.size()}), build("mlp")
    blocks = [RematBlock("0"), RematBlock("2")]
    if way == "parts":
        model = WithoutUnits(model)
    if way == "applied before":
        AppliedBlocks(model, blocks)
    optimizer = dist.zero(model, OPTIMIZERS["sgd"](model.parameters()), mesh, stage=3)
    if way == "applied after":
        AppliedBlocks(model, blocks)
    return train(model, optimizer, batches("mlp", 3), BY_ROWS, mesh)


@pytest.mark.parametrize("way", ["applied before", "applied after", "parts"])
def test_blocks_that_run_again_have_whole_parameters(ranks, way):
    check_same(ranks(with_blocks_again, way), alone("mlp", "sgd", 3), 1e-5)


def trained_in_steps(stage, is_captured, clip, reads=False, count=5):
    """(losses, parameters, how gradients are cut after each step, breaks of the captured step, how
    often it was found)."""
    mesh, model = dist.mesh({"data": dist.size()}), build("mlp")
    optimizer = OPTIMIZERS["adamw"](model.parameters())
    if stage:
        optimizer = dist.zero(model, optimizer, mesh, stage=stage)
    else:
        dist.replicate(model, mesh)
    if reads:
        model[0].bias.register_post_accumulate_grad_hook(lambda p: p.grad.sum().item())

    def step(x, target):
        optimizer.zero_grad()
        loss = loss_of(model(x), target)
        loss.backward()
        if clip:
            gh.optim.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        return loss

    call, losses, cuts = gh.optimize(step) if is_captured else step, [], []
    for batch in batches("mlp", count):
        x, target = (dist.place(a, mesh, BY_ROWS) for a in batch)
        losses.append(call(x, target).item())
        cuts.append([str(p.grad.sharding) for p in model.parameters()])
    parameters = [dist.gather(p).numpy() for p in model.parameters()]
    if not is_captured:
        return losses, parameters, cuts
    return losses, parameters, cuts, call.capture.breaks, call.hits


@pytest.mark.slow
@pytest.mark.parametrize("stage", [0, 1, 2])
@pytest.mark.parametrize("clip", [None, 0.05])
def test_a_whole_step_is_captured(ranks, stage, clip):
    wanted = ranks(trained_in_steps, stage, False, clip)
    result = ranks(trained_in_steps, stage, True, clip)
    for (losses, parameters, cuts, breaks, hits), (expected, others, plain_cuts) in zip(
        result, wanted, strict=True
    ):
        assert losses == expected
        assert cuts == plain_cuts
        for got, other in zip(parameters, others, strict=True):
            np.testing.assert_array_equal(got, other)
        assert [reason for _, reason, _ in breaks] == [IN_THE_FIRST_PASS]
        assert hits == 3


@pytest.mark.slow
@pytest.mark.parametrize("stage", [0, 2])
def test_a_step_with_a_hook_that_reads_is_captured_in_pieces(ranks, stage):
    wanted = ranks(trained_in_steps, stage, False, 0.05, True)
    result = ranks(trained_in_steps, stage, True, 0.05, True)
    for (losses, parameters, cuts, *_), (expected, others, plain) in zip(
        result, wanted, strict=True
    ):
        np.testing.assert_allclose(losses, expected, rtol=1e-5)
        assert cuts == plain
        for got, other in zip(parameters, others, strict=True):
            np.testing.assert_allclose(got, other, rtol=1e-4, atol=1e-6)


def explained():
    mesh, model = dist.mesh({"data": dist.size()}), build("mlp")
    dist.zero(model, OPTIMIZERS["sgd"](model.parameters()), mesh, stage=3)
    return str(gh.explain(lambda x: model(x) * 2, gh.ones((2, 6))))


def test_why_stage_3_is_not_captured_is_said(ranks):
    for text in ranks(explained):
        assert "the parameters of ZeRO 3 are others in each call" in text


def gradients_of(stage, quiet, forward_too):
    """Gradients of three batches, and what was sent for each: (calls by name, bytes)."""
    mesh, model = dist.mesh({"data": dist.size()}), build("mlp")
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    if stage:
        dist.zero(model, optimizer, mesh, stage=stage)
    else:
        dist.replicate(model, mesh)
    sent = []
    for number, batch in enumerate(batches("mlp", 3)):
        x, target = (dist.place(a, mesh, BY_ROWS) for a in batch)
        backends.current().evaluate()
        is_quiet = quiet and number < 2
        with counting() as calls:
            with dist.no_sync(model) if is_quiet and forward_too else contextlib.nullcontext():
                loss = loss_of(model(x), target)
            with dist.no_sync(model) if is_quiet else contextlib.nullcontext():
                loss.backward()
            backends.current().evaluate()
        sent.append(calls)
    return [dist.gather(whole_of(p)).numpy() for p in model.parameters()], sent


def whole_of(p):
    """A parameter's gradient, with how ranks share it out."""
    p.grad.sharding = p.grad.sharding or p.sharding
    return p.grad


@contextlib.contextmanager
def counting():
    """Gets how often each collective was called, by name."""
    calls, kinds = collections.Counter(), ("all_reduce", "all_gather", "reduce_scatter")

    class Counting(gh.Mode):
        def process(self, primitive, args, attrs, below):
            calls[primitive.name] += primitive.name in kinds
            return below(primitive, args, attrs)

    with Counting():
        yield calls
    for name in [name for name in calls if not calls[name]]:
        del calls[name]


@pytest.mark.parametrize("forward_too", [False, True])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_gradients_are_sent_once_after_no_sync(ranks, stage, forward_too):
    wanted = ranks(gradients_of, stage, False, forward_too)
    result = ranks(gradients_of, stage, True, forward_too)
    gathers = {"all_gather": 3} if stage == 3 else {}  # two units forward, one of them once more
    for (gradients, sent), (expected, usual) in zip(result, wanted, strict=True):
        for got, other in zip(gradients, expected, strict=True):
            np.testing.assert_allclose(got, other, rtol=1e-5, atol=1e-7)
        assert sent[:2] == [gathers, gathers]
        assert sent[2] == usual[2]
        assert sum(usual[1].values()) > sum(gathers.values())


def uneven(stage):
    mesh = dist.mesh({"data": dist.size()})
    gh.random.seed(1)
    model = gh.nn.Sequential(gh.nn.Linear(3, 5), gh.nn.Tanh(), gh.nn.Linear(5, 1))
    rule = gh.optim.SGD(model.parameters(), lr=0.1)
    optimizer = dist.zero(model, rule, mesh, stage=stage) if stage else rule
    for number in range(3):
        x = gh.asarray(np.random.default_rng(number).standard_normal((4, 3)).astype(np.float32))
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    return [dist.gather(p).numpy() for p in model.parameters()]


@pytest.mark.parametrize("stage", STAGES)
def test_rows_that_ranks_do_not_divide(ranks, stage):
    for result in ranks(uneven, stage):
        for got, wanted in zip(result, uneven(0), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def scaled(stage, value):
    mesh, model = dist.mesh({"data": dist.size()}), gh.nn.Linear(2, 4)
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    optimizer, scaler = dist.zero(model, optimizer, mesh, stage=stage), gh.optim.GradScaler(4.0)
    x = np.ones((1, 2), np.float32)
    weights = np.array([value, 1, 1, 1], np.float32)  # the rows of the first rank alone
    scaler.scale((model(gh.asarray(x)) * gh.asarray(weights)).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    return scaler.get_scale()


@pytest.mark.parametrize("stage", [2, 3])
def test_ranks_agree_on_whether_gradients_overflow(ranks, stage):
    assert ranks(scaled, stage, np.inf) == [2.0, 2.0]
    assert ranks(scaled, stage, 1.0) == [4.0, 4.0]


def refusals():
    mesh, messages = dist.mesh({"data": dist.size()}), []
    model = build("mlp")
    matrices = [p for p in model.parameters() if p.ndim == 2]
    for optimizer in (
        gh.optim.Muon(matrices),
        gh.optim.Shampoo(model.parameters()),
        gh.optim.Adafactor(model.parameters()),
        gh.optim.LBFGS(model.parameters()),
        gh.optim.Lookahead(gh.optim.Muon(matrices)),
    ):
        with pytest.raises(OptionError) as error:
            dist.zero(model, optimizer, mesh)
        messages.append(str(error.value))
    with pytest.raises(OptionError, match="a pattern of module names") as error:
        dist.zero(model, OPTIMIZERS["sgd"](model.parameters()), mesh, units=["layers.*"])
    dist.zero(model, OPTIMIZERS["sgd"](model.parameters()), mesh)
    with pytest.raises(OptionError, match="whole parameters") as error:
        gh.optim.Muon(matrices)
    return messages


def test_rules_that_need_whole_parameters_are_refused(ranks):
    for messages in ranks(refusals):
        for message, name in zip(
            messages, ("Muon", "Shampoo", "Adafactor", "LBFGS", "Muon"), strict=True
        ):
            assert f"got {name!r}" in message
