import numpy as np
import pytest

import glasshouse as gh
from glasshouse import distributed as dist
from glasshouse import nn
from glasshouse.analyze.trace import symbolic_trace
from glasshouse.base.errors import OptionError, ShapeError
from glasshouse.distributed.pipelines.stages import balanced, cut

VOCAB, LENGTH = 11, 6


class GPT(nn.Module):
    """A tiny one, whose output layer is its token embedding."""

    def __init__(self, dim=8, layers=2):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCAB, dim), nn.Embedding(LENGTH, dim)
        options = (dim, 2, 16, 0.0, "gelu")
        blocks = (nn.TransformerEncoderLayer(*options, batch_first=True) for _ in range(layers))
        self.blocks, self.norm = nn.ModuleList(blocks), nn.LayerNorm(dim)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(gh.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return nn.functional.linear(self.norm(x), self.tokens.weight)


def mlp():
    gh.random.seed(3)
    sizes = [4, 8, 8, 8, 3]
    layers = [nn.Linear(a, b) for a, b in zip(sizes, sizes[1:], strict=False)]
    return nn.Sequential(*(part for layer in layers for part in (layer, nn.Tanh())))


def gpt():
    gh.random.seed(4)
    return GPT()


def regression(step, rows=8):
    rng = np.random.default_rng(step)
    x, y = rng.standard_normal((rows, 4)), rng.standard_normal((rows, 3))
    return gh.asarray(x.astype(np.float32)), gh.asarray(y.astype(np.float32))


def text(step, rows=8):
    tokens = np.random.default_rng(step).integers(0, VOCAB, (rows, LENGTH + 1))
    return gh.asarray(tokens[:, :-1]), gh.asarray(tokens[:, 1:])


def token_loss(scores, target):
    return nn.functional.cross_entropy(scores.reshape(-1, VOCAB), target.reshape(-1))


CASES = {"mlp": (mlp, regression, nn.functional.mse_loss), "gpt": (gpt, text, token_loss)}
OPTIMIZERS = {
    "sgd": lambda p: gh.optim.SGD(p, lr=0.1, momentum=0.9),
    "adamw": lambda p: gh.optim.AdamW(p, lr=0.01),
}


def line():
    return dist.mesh({"pipe": dist.size()})


def alone(case, optimizer, steps=20):
    make, batch, loss_of = CASES[case]
    model = make()
    opt, losses = OPTIMIZERS[optimizer](model.parameters()), []
    for step in range(steps):
        x, y = batch(step)
        opt.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return losses, {k: v.numpy() for k, v in model.state_dict().items()}


def piped(case, optimizer, mesh=None, steps=20, **options):
    make, batch, loss_of = CASES[case]
    mesh = dist.mesh(mesh or {"data": 1, "pipe": dist.size()})
    rows = slice(mesh["data"].rank, None, mesh.size("data"))
    pipe = dist.pipeline(make(), mesh, data="data", example=batch(0)[0][rows], **options)
    opt, losses = OPTIMIZERS[optimizer](pipe.parameters()), []
    for step in range(steps):
        x, y = (part[rows] for part in batch(step))
        opt.zero_grad()
        losses.append(pipe.step(x, y, loss_of).item())
        opt.step()
    return losses, {k: v.numpy() for k, v in pipe.state_dict().items()}


def check_equal(result, expected):
    losses, state = expected
    for own_losses, own_state in result:
        np.testing.assert_allclose(own_losses, losses, rtol=1e-5)
        for name, value in own_state.items():
            np.testing.assert_allclose(value, state[name], rtol=1e-4, atol=1e-5)
    assert {name for _, own in result for name in own} == {*state}


SCHEDULES = {
    "1f1b": {"microbatches": 4},
    "gpipe": {"microbatches": 2},
    "interleaved": {"stages_per_rank": 2, "microbatches": 4},
}
RUNS = [("mlp", "1f1b"), ("mlp", "gpipe"), ("mlp", "interleaved"), ("gpt", "interleaved")]


@pytest.mark.slow
@pytest.mark.parametrize(("case", "schedule"), RUNS)
def test_losses_and_weights_equal_the_undivided_models(ranks, case, schedule):
    options = {"schedule": schedule, **SCHEDULES[schedule]}
    check_equal(ranks(run_piped, case, "sgd", None, options), alone(case, "sgd"))


def run_piped(case, optimizer, mesh, options):
    return piped(case, optimizer, mesh, **options)


@pytest.mark.slow
def test_adamw_of_shared_embeddings_equals_the_undivided_models(ranks):
    options = {"microbatches": 4, "split": ["blocks.1"]}
    expected, _ = alone("gpt", "adamw")
    for losses, _ in ranks(run_piped, "gpt", "adamw", None, options):
        np.testing.assert_allclose(losses, expected, rtol=1e-4)


@pytest.mark.slow
def test_two_pipelines_side_by_side_equal_one_process(ranks):
    result = ranks(run_piped, "gpt", "sgd", {"data": 2, "pipe": 2}, {"microbatches": 2}, size=4)
    check_equal(result, alone("gpt", "sgd"))


def held_and_result():
    model = gpt()
    expected = model(text(0)[0]).numpy()
    pipe = dist.pipeline(model, line(), example=text(0)[0], split=["blocks.1"], microbatches=4)
    names = sorted(name for name, _ in pipe.named_parameters())
    results = [pipe(text(0, rows)[0]).numpy() for rows in (8, 3)]
    return names, expected, results


@pytest.mark.slow
def test_forward_gives_every_rank_the_models_result(ranks):
    model = gpt()
    expected = [model(text(0, rows)[0]).numpy() for rows in (8, 3)]
    for _, _, result in ranks(held_and_result):
        for got, wanted in zip(result, expected, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_a_rank_holds_its_stages_alone_and_what_they_share(ranks):
    first, last = (names for names, _, _ in ranks(held_and_result))
    everything = {name for name, _ in gpt().named_parameters()}
    assert {*first} | {*last} == everything
    assert {*first} & {*last} == {"tokens.weight"}


class Block(nn.Module):
    """A module of the user's, whose call is not one node."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        return x + nn.functional.tanh(2 * self.inner(x))


class Weighted(nn.Module):
    """One that begins with a call of no module."""

    def __init__(self):
        super().__init__()
        self.blocks, self.scale = nn.ModuleList([Block() for _ in range(3)]), nn.Linear(4, 3)

    def forward(self, x):
        for block in self.blocks:
            x = block(2 * x)
        return nn.functional.linear(x - 1, self.scale.weight)


def test_stages_begin_where_the_users_modules_do():
    module = symbolic_trace(Weighted(), [((2, 4), "float32")])
    first, second = cut(module, ["blocks.1"])
    assert sorted(first.members()) == ["blocks.0.inner"]
    assert sorted(second.members()) == ["blocks.1.inner", "blocks.2.inner", "scale.weight"]
    assert {*balanced(module, 3)} <= {"blocks.1", "blocks.2", "blocks.1.inner", "blocks.2.inner"}


def with_tensor_parallel(folder):
    mesh = dist.mesh({"pipe": 2, "tensor": 2})
    styles = {"0": dist.Column(), "2": dist.Row(), "4": dist.Column(), "6": dist.Row()}
    model, x = dist.distribute(mlp(), mesh, styles), regression(0)[0]
    pipe = dist.pipeline(model, mesh, example=x, split=["4"], microbatches=2)
    optimizer, losses = OPTIMIZERS["sgd"](pipe.parameters()), []
    for step in range(20):
        optimizer.zero_grad()
        losses.append(pipe.step(*regression(step), nn.functional.mse_loss).item())
        optimizer.step()
    dist.save_checkpoint(folder, pipe, optimizer).wait()
    return losses


def test_with_tensor_parallel_it_equals_one_process(ranks, tmp_path):
    expected, state = alone("mlp", "sgd")
    for losses in ranks(with_tensor_parallel, tmp_path, size=4):
        np.testing.assert_allclose(losses, expected, rtol=1e-5)
    model = mlp()
    dist.load_checkpoint(tmp_path, model)
    for name, x in model.state_dict().items():
        np.testing.assert_allclose(x.numpy(), state[name], rtol=1e-4, atol=1e-5)


def foreign_parameter():
    model = mlp()
    pipe = dist.pipeline(model, line(), example=regression(0)[0], split=["4"], microbatches=2)
    other = model[0 if dist.rank() else 6].weight
    try:
        other.numpy()
    except gh.BackendError as error:
        return str(error), len(list(pipe.parameters()))
    return "it is there", 0


def test_parameters_of_other_ranks_have_no_memory(ranks):
    for message, own in ranks(foreign_parameter):
        assert "no value" in message or "computes nothing" in message, message
        assert own == 4


def accumulated():
    pipe = dist.pipeline(gpt(), line(), example=text(0)[0], microbatches=4)
    for step in (0, 1):
        pipe.step(*text(step), token_loss)
    return {name: p.grad.numpy() for name, p in pipe.named_parameters()}


@pytest.mark.slow
def test_gradients_of_several_steps_add_up(ranks):
    model = gpt()
    for step in (0, 1):
        x, y = text(step)
        token_loss(model(x), y).backward()
    expected = {name: p.grad.numpy() for name, p in model.named_parameters()}
    for own in ranks(accumulated):
        for name, grad in own.items():
            np.testing.assert_allclose(grad, expected[name], rtol=1e-4, atol=1e-6)


def clipped():
    pipe = dist.pipeline(gpt(), line(), example=text(0)[0], microbatches=4)
    pipe.step(*text(0), token_loss)
    norm = pipe.clip_grad_norm_(0.5).item()
    return norm, {name: p.grad.numpy() for name, p in pipe.named_parameters()}


@pytest.mark.slow
def test_gradients_are_clipped_by_the_norm_of_all_stages(ranks):
    model = gpt()
    token_loss(model(text(0)[0]), text(0)[1]).backward()
    expected = gh.optim.clip_grad_norm_(model.parameters(), 0.5).item()
    grads = {name: p.grad.numpy() for name, p in model.named_parameters()}
    for norm, own in ranks(clipped):
        assert norm == pytest.approx(expected, rel=1e-5)
        for name, grad in own.items():
            np.testing.assert_allclose(grad, grads[name], rtol=1e-4, atol=1e-6)


# -- what is refused -----------------------------------------------------------------------------


def test_batches_that_microbatches_do_not_divide_are_refused():
    pipe = dist.pipeline(mlp(), line(), example=((8, 4), "float32"), microbatches=4)
    with pytest.raises(ShapeError, match="4 microbatches divide"):
        pipe.step(gh.ones((6, 4)), gh.ones((6, 3)), nn.functional.mse_loss)
    with pytest.raises(ShapeError, match="3 microbatches divide"):
        dist.pipeline(mlp(), line(), example=((8, 4), "float32"), microbatches=3)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"split": ["9"], "schedule": "gpipe"}, "modules of the model"),
        ({"split": ["0"], "schedule": "gpipe"}, "the first left out"),
        ({"split": ["4", "2"], "schedule": "gpipe"}, "in the order in which they run"),
        ({"split": "even"}, "balanced"),
        ({"split": ["2"]}, "1 stages with 1f1b"),
        ({"stages_per_rank": 99, "schedule": "interleaved"}, "modules for 99 stages"),
        ({"schedule": "1f2b"}, "1f1b"),
    ],
)
def test_bad_declarations_are_refused(options, match):
    with pytest.raises(OptionError, match=match):
        dist.pipeline(mlp(), line(), example=((8, 4), "float32"), **options)


def test_a_pipeline_whose_parameters_are_to_be_shared_out_is_refused():
    mesh = dist.mesh({"data": 1, "pipe": 1})
    pipe = dist.pipeline(mlp(), mesh, example=((8, 4), "float32"))
    optimizer = OPTIMIZERS["sgd"](pipe.parameters())
    with pytest.raises(OptionError, match="stage 1 or 2 for a pipeline"):
        dist.zero(pipe, optimizer, mesh, stage=3)


class Grows(nn.Module):
    def forward(self, x):
        return x[: 1 + int(self.training)]


def test_stage_results_of_other_shapes_are_refused():
    model = nn.Sequential(nn.Linear(4, 4), Grows(), nn.Linear(4, 3))
    options = {"split": ["2"], "microbatches": 2, "schedule": "gpipe"}
    pipe = dist.pipeline(model, line(), example=((8, 4), "float32"), **options)
    stage = pipe.plan([gh.ones((4, 4)).spec]).modules[0]
    stage.forward = lambda x: (x[:1],)
    with pytest.raises(ShapeError, match="expected stage 0 to give"):
        pipe.step(gh.ones((8, 4)), gh.ones((8, 3)), nn.functional.mse_loss)
