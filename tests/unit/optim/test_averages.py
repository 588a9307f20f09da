"""Averages of weights against PyTorch's; look-ahead, accumulation, groups, hooks."""

import copy

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import interop, nn, optim
from glasshouse.base.errors import CheckpointError, DTypeError, OptionError
from glasshouse.optim import swa_utils


def both_models(torch):
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    layers = torch.nn
    twin = layers.Sequential(layers.Linear(3, 4), layers.BatchNorm1d(4), layers.Linear(4, 2))
    model.load_state_dict(interop.state_dict_from_torch(twin.state_dict()))
    return model, twin


def values(module):
    return {name: x.detach().numpy() for name, x in module.state_dict().items()}


def equal(ours, theirs, rtol=1e-5):
    ours, theirs = values(ours), values(theirs)
    assert ours.keys() == theirs.keys()
    for name, x in ours.items():
        np.testing.assert_allclose(x, theirs[name], rtol=rtol, atol=1e-6, err_msg=name)


AVERAGES = {
    "equal": lambda ns: {},
    "ema": lambda ns: {"avg_fn": ns.get_ema_avg_fn(0.7)},
    "ema-multi": lambda ns: {"multi_avg_fn": ns.get_ema_multi_avg_fn(0.7)},
    "swa-multi": lambda ns: {"multi_avg_fn": ns.get_swa_multi_avg_fn()},
    "own": lambda ns: {"avg_fn": lambda average, value, n: average * 0.25 + value * 0.75},
    "buffers": lambda ns: {"avg_fn": ns.get_ema_avg_fn(0.7), "use_buffers": True},
}


@pytest.mark.parametrize("name", AVERAGES)
def test_averages_equal_pytorchs(name):
    torch = pytest.importorskip("torch")
    model, twin = both_models(torch)
    average = swa_utils.AveragedModel(model, **AVERAGES[name](swa_utils))
    other = torch.optim.swa_utils.AveragedModel(twin, **AVERAGES[name](torch.optim.swa_utils))
    rng = np.random.default_rng(0)
    for _ in range(4):
        for p, t in zip(model.parameters(), twin.parameters(), strict=True):
            g = rng.normal(size=p.shape).astype(np.float32)
            with gh.no_grad(), torch.no_grad():
                p += gh.asarray(g)
                t += torch.tensor(g)
        x = rng.normal(size=(5, 3)).astype(np.float32)
        model(gh.asarray(x))
        twin(torch.tensor(x))
        average.update_parameters(model)
        other.update_parameters(twin)
        equal(average, other)


def test_an_average_goes_on_from_its_state():
    model = nn.Linear(2, 2)
    average = swa_utils.AveragedModel(model)
    average.update_parameters(model)
    again = swa_utils.AveragedModel(nn.Linear(2, 2))
    again.load_state_dict(average.state_dict())
    assert again.n_averaged.item() == 1
    equal(again, average)


def test_update_bn_equals_pytorchs():
    torch = pytest.importorskip("torch")
    model, twin = both_models(torch)
    batches = [np.random.default_rng(i).normal(size=(6, 3)).astype(np.float32) for i in range(3)]
    model.eval()
    twin.eval()
    swa_utils.update_bn([(gh.asarray(x), None) for x in batches], model)
    torch.optim.swa_utils.update_bn([torch.tensor(x) for x in batches], twin)
    equal(model, twin)
    assert not model.training and model[1].momentum == 0.1


def quadratic_steps(opt, p, steps):
    for step in steps:
        opt.zero_grad()
        ((p - float(step)) ** 2).sum().backward()
        opt.step()


def test_lookahead_equals_its_equations():
    p, k, alpha = gh.tensor([1.0, -2.0], requires_grad=True), 3, 0.4
    opt = optim.Lookahead(optim.SGD([p], lr=0.1, momentum=0.5), k, alpha)
    x = slow = np.array([1.0, -2.0])
    b = 0.0
    for step in range(10):
        quadratic_steps(opt, p, [step])
        b = 0.5 * b + 2 * (x - step)
        x = x - 0.1 * b
        if (step + 1) % k == 0:
            x = slow = slow + alpha * (x - slow)
    np.testing.assert_allclose(p.numpy(), x, rtol=1e-5)


WRAPPERS = {
    "lookahead": lambda opt: optim.Lookahead(opt, 3),
    "accumulation": lambda opt: optim.GradientAccumulation(opt, 3),
    "both": lambda opt: optim.GradientAccumulation(optim.Lookahead(opt, 2), 2),
}


@pytest.mark.parametrize("name", ["lookahead", "both"])
def test_a_wrapper_goes_on_from_its_state(name, tmp_path):
    p = gh.tensor([1.0, -2.0], requires_grad=True)
    opt = WRAPPERS[name](optim.Adam([p], lr=0.1))
    quadratic_steps(opt, p, range(4))
    interop.save_checkpoint(tmp_path / "c", optimizer=opt)
    q = gh.tensor(p.numpy().copy(), requires_grad=True)
    other = WRAPPERS[name](optim.Adam([q]))
    interop.load_checkpoint(tmp_path / "c", optimizer=other)
    quadratic_steps(opt, p, range(4, 12))
    quadratic_steps(other, q, range(4, 12))
    np.testing.assert_array_equal(p.numpy(), q.numpy())


def test_accumulated_steps_are_those_of_the_mean_gradient():
    p, q = (gh.tensor([1.0, -2.0], requires_grad=True) for _ in range(2))
    opt = optim.GradientAccumulation(optim.Adam([p], lr=0.1), 4)
    plain = optim.Adam([q], lr=0.1)
    for step in range(3):
        quadratic_steps(opt, p, range(4 * step, 4 * step + 4))
        plain.zero_grad()
        sum(((q - float(4 * step + i)) ** 2).sum() for i in range(4)).backward()
        q.grad = q.grad / 4
        plain.step()
    np.testing.assert_allclose(p.numpy(), q.numpy(), rtol=1e-6)


def test_schedules_work_on_wrappers():
    p = gh.tensor([1.0], requires_grad=True)
    opt = optim.Lookahead(optim.SGD([p], lr=1.0))
    schedule = optim.lr_scheduler.ExponentialLR(opt, 0.5)
    schedule.step()
    assert opt.inner.param_groups[0]["lr"] == 0.5


def test_groups_and_state_set_on_a_wrapper_are_the_inner_optimizers():
    p, q = (gh.tensor([x], requires_grad=True) for x in (1.0, 2.0))
    opt, other = optim.Lookahead(optim.SGD([p], lr=1.0)), optim.SGD([q], lr=0.5)
    opt.param_groups, opt.state = other.param_groups, other.state
    assert opt.inner.param_groups is other.param_groups and opt.inner.state is other.state


def test_rates_set_on_a_chain_are_the_groups():
    p = gh.tensor([1.0], requires_grad=True)
    opt = optim.SGD([p], lr=1.0)
    chain = optim.lr_scheduler.ChainedScheduler([optim.lr_scheduler.ExponentialLR(opt, 0.5)])
    chain.last_lr = [0.25]
    assert opt.param_groups[0]["lr"] == 0.25


def test_groups_of_layers_named_by_a_function():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2))
    groups = optim.layerwise_groups(model, 1.0, 0.5, layer_of=lambda name: int(name[0]) // 2)
    assert [group["lr"] for group in groups] == [0.5, 1.0]
    opt = optim.AdamW(groups)
    assert opt.param_groups[1]["param_names"] == ["2.weight", "2.bias"]


def test_hooks_are_called_in_pytorchs_order_with_its_arguments():
    torch = pytest.importorskip("torch")

    def calls(opt):
        log = []
        opt.register_step_pre_hook(lambda o, args, kwargs: log.append(("pre", len(args), kwargs)))
        opt.register_step_post_hook(lambda o, args, kwargs: log.append(("post", len(args))))
        opt.register_state_dict_pre_hook(lambda o: log.append("saving"))
        opt.register_state_dict_post_hook(lambda o, d: {**d, "extra": 1})
        opt.register_load_state_dict_pre_hook(lambda o, d: log.append(d.pop("extra")))
        opt.register_load_state_dict_post_hook(lambda o: log.append("loaded"))
        removed = opt.register_step_pre_hook(lambda *_: log.append("removed"))
        first = opt.register_step_pre_hook(lambda *_: log.append("first"))
        removed.remove()
        opt.step()
        first.remove()
        state = opt.state_dict()
        assert state["extra"] == 1
        opt.load_state_dict(state)
        opt.step()
        return log

    p, t = gh.tensor([1.0], requires_grad=True), torch.ones(1, requires_grad=True)
    own, other = optim.SGD([p]), torch.optim.SGD([t])
    assert calls(own) == calls(other)


def test_a_hook_before_a_step_may_change_its_arguments():
    p = gh.tensor([1.0], requires_grad=True)
    opt = optim.SGD([p], lr=0.5)
    opt.register_step_pre_hook(lambda o, args, kwargs: ((o, lambda: 3), kwargs))
    assert opt.step() == 3
    opt.register_step_pre_hook(lambda o, args, kwargs: 5)
    with pytest.raises(OptionError, match=r"\(args, kwargs\); got int"):
        opt.step()


def test_named_parameters_keep_their_names_as_in_pytorch():
    torch = pytest.importorskip("torch")
    model, twin = both_models(torch)
    own = optim.SGD(model.named_parameters()).state_dict()
    other = torch.optim.SGD(twin.named_parameters()).state_dict()
    assert own == other


# -- state in 8 bits ---------------------------------------------------------------------------
KINDS = {"AdamW": {"lr": 3e-3}, "Adam": {"lr": 3e-3}, "Lion": {"lr": 2e-3}}
KINDS["SGD"] = {"lr": 0.05, "momentum": 0.9}


def train(kind, options, steps=60):
    gh.random.seed(0)
    model = nn.Sequential(nn.Linear(16, 300), nn.ReLU(), nn.Linear(300, 32))
    rng = np.random.default_rng(0)
    x, w = (gh.asarray(rng.normal(size=s), dtype=gh.float32) for s in ((64, 16), (16, 32)))
    opt, losses = kind(model.parameters(), **options), []
    for _ in range(steps):
        opt.zero_grad()
        loss = ((model(x) - x @ w) ** 2).mean()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return np.array(losses), opt


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_losses_with_8_bits_are_close_to_those_with_32(name):
    full, _ = train(getattr(optim, name), KINDS[name])
    short, opt = train(getattr(optim, f"{name}8bit"), KINDS[name])
    assert short[-1] < 0.5 * short[0]
    np.testing.assert_allclose(short, full, rtol=0.02, atol=0.01 * full[0])
    weight = opt.parameters()[0]
    buffers = {n: x.dtype.name for n, x in opt.state[weight].items() if n.endswith(("avg", "sq"))}
    assert set(buffers.values()) <= {"uint8"}


def table_of(signed):
    """The number of each code, as the paper has them."""
    top = 6 if signed else 7
    numbers = [0.0]
    for e in range(top + 1):
        places = np.linspace(0.1, 1.0, 2**e + 1)
        numbers += list((places[1:] + places[:-1]) / 2 * 10.0 ** (e - top))
    numbers[-1] = 1.0
    return np.float32([*numbers, *(-x for x in numbers)] if signed else numbers)


@pytest.mark.parametrize("signed", [False, True])
def test_codes_stand_for_the_numbers_of_the_table(signed):
    codes = gh.asarray(np.arange(256, dtype=np.uint8).reshape(1, 256))
    x = optim.eight_bit.decode(codes, gh.ones((1, 1)), (256,), gh.float32, signed)
    np.testing.assert_allclose(x.numpy(), table_of(signed), rtol=1e-5)
    again, _ = optim.eight_bit.encode(x, signed)
    kept = np.delete(np.arange(256), 128) if signed else np.arange(256)  # -0 is 0
    np.testing.assert_array_equal(again.numpy()[0][kept], kept)


@pytest.mark.parametrize("signed", [False, True])
def test_an_8_bit_number_is_nearly_the_nearest_of_the_table(signed):
    table = table_of(signed)
    x = np.random.default_rng(0).normal(size=1000) * 10 ** np.random.default_rng(1).uniform(-3, 0)
    x = np.float32(x if signed else abs(x))
    codes, scale = optim.eight_bit.encode(gh.asarray(x), signed)
    y = optim.eight_bit.decode(codes, scale, x.shape, gh.float32, signed).numpy()
    scales = np.repeat(scale.numpy(), 256)[:1000]
    nearest = abs(x[:, None] / scales[:, None] - table).min(1)
    error = abs(x - y) / scales
    assert (error <= 0.015).all() and error.mean() <= 1.1 * nearest.mean()
    np.testing.assert_allclose(y[abs(x).argmax()], x[abs(x).argmax()], rtol=1e-6)


def test_zeros_stay_zeros_in_8_bits():
    codes, scale = optim.eight_bit.encode(gh.zeros(300))
    assert not codes.numpy().any() and not scale.numpy().any()


def test_8_bit_state_goes_on_exactly(tmp_path):
    _, opt = train(optim.AdamW8bit, {"lr": 1e-2}, 3)
    interop.save_checkpoint(tmp_path / "c", optimizer=opt)
    copies = [gh.tensor(p.numpy().copy(), requires_grad=True) for p in opt.parameters()]
    other = optim.AdamW8bit(copies)
    interop.load_checkpoint(tmp_path / "c", optimizer=other)
    for p, q in zip(opt.parameters(), copies, strict=True):
        q.grad = p.grad = gh.ones(p.shape)
    opt.step()
    other.step()
    for p, q in zip(opt.parameters(), copies, strict=True):
        np.testing.assert_array_equal(p.numpy(), q.numpy())


def wrong_codes():
    p = gh.ones(4096).requires_grad_()
    opt = optim.SGD8bit([p], momentum=0.9)
    p.grad = gh.ones(4096)
    opt.step()
    state = copy.deepcopy(opt.state_dict())
    state["state"][0]["momentum_buffer"] = gh.ones((16, 256))
    opt.load_state_dict(state)


P = gh.tensor([1.0], requires_grad=True)
BAD_CALLS = [
    (lambda: swa_utils.AveragedModel(3), DTypeError, "a Module; got int"),
    (
        lambda: swa_utils.AveragedModel(nn.ReLU(), avg_fn=max, multi_avg_fn=max),
        OptionError,
        "got both",
    ),
    (lambda: swa_utils.get_ema_avg_fn(1.5), OptionError, "decay"),
    (lambda: swa_utils.get_ema_multi_avg_fn(-0.5), OptionError, "decay"),
    (
        lambda: swa_utils.AveragedModel(nn.Linear(1, 1)).update_parameters(nn.ReLU()),
        OptionError,
        "2 tensors to average; got 0",
    ),
    (lambda: optim.Lookahead(3), DTypeError, "an optimizer; got int"),
    (lambda: optim.Lookahead(optim.SGD([P]), 0), OptionError, "k to be"),
    (lambda: optim.Lookahead(optim.SGD([P]), alpha=2), OptionError, "alpha"),
    (lambda: optim.Lookahead(optim.SGD([P])).load_state_dict({}), CheckpointError, "'Lookahead'"),
    (lambda: optim.GradientAccumulation(optim.SGD([P]), 0), OptionError, "steps"),
    (lambda: optim.layerwise_groups(nn.Linear(1, 1), -1, 0.5), OptionError, "lr"),
    (
        lambda: optim.layerwise_groups(nn.Linear(1, 1), 1, 0.5, layer_of=str),
        OptionError,
        "layer_of",
    ),
    (wrong_codes, CheckpointError, "uint8 codes; got float32"),
    (lambda: optim.Adam8bit([gh.tensor([1j], requires_grad=True)]), DTypeError, "real"),
]


@pytest.mark.parametrize("number", range(len(BAD_CALLS)))
def test_bad_calls(number):
    call, error, text = BAD_CALLS[number]
    with pytest.raises(error, match=text):
        call()
