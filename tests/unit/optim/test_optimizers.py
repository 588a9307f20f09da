"""Optimizers against PyTorch's, step by step; groups, states, bad calls."""

import copy
import itertools

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import interop
from glasshouse.base.errors import CheckpointError, DTypeError, GradError, OptionError, ShapeError
from glasshouse.optim import SGD, Adagrad, Adam, AdamW, RMSprop


def product(**choices):
    """Every combination of options, as dicts."""
    return [
        dict(zip(choices, values, strict=True)) for values in itertools.product(*choices.values())
    ]


CASES = [
    *[
        (SGD, options)
        for options in product(
            lr=[0.05],
            momentum=[0.0, 0.9],
            dampening=[0.0, 0.3],
            weight_decay=[0.0, 0.1],
            nesterov=[False, True],
            maximize=[False, True],
        )
        if not options["nesterov"] or (options["momentum"] and not options["dampening"])
    ],
    *[
        (kind, options)
        for kind in (Adam, AdamW)
        for options in product(
            lr=[0.05],
            betas=[(0.9, 0.999), (0.3, 0.6)],
            eps=[1e-8, 0.1],
            weight_decay=[0.0, 0.1],
            amsgrad=[False, True],
            maximize=[False, True],
        )
    ],
    *[
        (RMSprop, options)
        for options in product(
            lr=[0.05],
            alpha=[0.99, 0.5],
            weight_decay=[0.0, 0.1],
            momentum=[0.0, 0.9],
            centered=[False, True],
            maximize=[False, True],
        )
    ],
    *[
        (Adagrad, options)
        for options in product(
            lr=[0.05],
            lr_decay=[0.0, 0.1],
            weight_decay=[0.0, 0.1],
            initial_accumulator_value=[0.0, 0.5],
            maximize=[False, True],
        )
    ],
]
DEFAULTS = [(SGD, {}), (Adam, {}), (AdamW, {}), (RMSprop, {}), (Adagrad, {})]


def parameters(dtype="float64", seed=0):
    rng = np.random.default_rng(seed)
    arrays = [rng.normal(size=(3, 4)), rng.normal(size=(5,)), rng.normal(size=())]
    return [gh.tensor(a, dtype=dtype, requires_grad=True) for a in arrays]


def gradients(params, step):
    """A gradient per parameter; the second has none at step 3."""
    rng = np.random.default_rng(100 + step)
    grads = [rng.normal(size=p.shape) * 10 ** rng.uniform(-2, 1) for p in params]
    return [None if (i, step) == (1, 3) else g for i, g in enumerate(grads)]


def set_gradients(params, step):
    for p, g in zip(params, gradients(params, step), strict=True):
        p.grad = None if g is None else gh.asarray(g, dtype=p.dtype)


def run(opt, params, steps):
    for step in steps:
        set_gradients(params, step)
        opt.step()


def torch_twin(torch, kind, options, params):
    twins = [torch.tensor(p.numpy(), requires_grad=True) for p in params]
    return twins, getattr(torch.optim, kind.__name__)(twins, **options)


def torch_step(torch, twins, opt, step):
    for t, g in zip(twins, gradients(twins, step), strict=True):
        t.grad = None if g is None else torch.tensor(g, dtype=t.dtype)
    opt.step()


@pytest.mark.parametrize(("kind", "options"), DEFAULTS + CASES)
def test_twenty_steps_equal_pytorchs(kind, options):
    torch = pytest.importorskip("torch")
    params = parameters()
    opt = kind(params, **options)
    twins, torch_opt = torch_twin(torch, kind, options, params)
    for step in range(20):
        run(opt, params, [step])
        torch_step(torch, twins, torch_opt, step)
        for p, t in zip(params, twins, strict=True):
            np.testing.assert_allclose(p.numpy(), t.detach().numpy(), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("kind", [SGD, Adam, AdamW, RMSprop, Adagrad])
def test_float32_equals_pytorchs(kind):
    torch = pytest.importorskip("torch")
    params = parameters("float32")
    opt = kind(params, lr=0.01)
    twins, torch_opt = torch_twin(torch, kind, {"lr": 0.01}, params)
    for step in range(20):
        run(opt, params, [step])
        torch_step(torch, twins, torch_opt, step)
    for p, t in zip(params, twins, strict=True):
        assert p.dtype == gh.float32
        np.testing.assert_allclose(p.numpy(), t.detach().numpy(), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("kind", [SGD, Adam, RMSprop, Adagrad])
def test_complex_parameters_equal_pytorchs(kind):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    p = gh.tensor(rng.normal(size=4) + 1j * rng.normal(size=4), requires_grad=True)
    options = {"lr": 0.05, "weight_decay": 0.1}
    opt = kind([p], **options)
    (twin,), torch_opt = torch_twin(torch, kind, options, [p])
    for _ in range(5):
        g = rng.normal(size=4) + 1j * rng.normal(size=4)
        p.grad, twin.grad = gh.asarray(g), torch.tensor(g)
        opt.step()
        torch_opt.step()
    np.testing.assert_allclose(p.numpy(), twin.detach().numpy(), rtol=1e-12)
    other = kind([gh.tensor(p.numpy(), requires_grad=True)])
    other.load_state_dict(opt.state_dict())


def test_groups_have_their_own_options():
    a, b, c = parameters()
    opt = SGD([{"params": [a]}, {"params": b, "lr": 0.5}], lr=0.1)
    opt.add_param_group({"params": [c], "weight_decay": 1.0})
    before = [p.numpy() for p in (a, b, c)]
    run(opt, [a, b, c], [0])
    grads = gradients([a, b, c], 0)
    np.testing.assert_allclose(a.numpy(), before[0] - 0.1 * grads[0])
    np.testing.assert_allclose(b.numpy(), before[1] - 0.5 * grads[1])
    np.testing.assert_allclose(c.numpy(), before[2] - 0.1 * (grads[2] + before[2]))
    assert repr(opt).splitlines()[2].startswith("  group 1: 1 parameters, lr=0.5, momentum=0.0")


def test_a_step_keeps_the_parameter_object_a_leaf():
    (p,) = params = parameters()[:1]
    alias, before = p, p.detach()
    opt = Adam(params)
    (p * 2).sum().backward()
    opt.step()
    assert alias is p
    assert p.is_leaf
    assert p.requires_grad
    assert not np.array_equal(before.numpy(), p.numpy())
    (p * 3).sum().backward()
    np.testing.assert_allclose(p.grad.numpy(), 5.0)


def test_accumulating_gradients_does_not_reach_into_the_momentum():
    p = gh.tensor([1.0], requires_grad=True)
    opt = SGD([p], lr=0.0, momentum=0.9)
    p.grad = gh.asarray([1.0])
    opt.step()
    p.grad += 5.0
    assert opt.state[p]["momentum_buffer"].tolist() == [1.0]


def test_float64_options_do_not_promote_the_parameter():
    p = gh.tensor([1.0], requires_grad=True)
    opt = Adam([p], lr=np.float64(0.1), eps=np.float32(1e-8))
    p.grad = gh.asarray([1.0])
    opt.step()
    opt.param_groups[0]["lr"] = np.float64(0.2)
    opt.step()
    assert p.dtype == gh.float32


def test_zero_grad():
    params = parameters()
    opt = SGD(params)
    set_gradients(params, 0)
    opt.zero_grad(set_to_none=False)
    assert [float(p.grad.sum()) for p in params] == [0, 0, 0]
    opt.zero_grad()
    assert [p.grad for p in params] == [None] * 3


@pytest.mark.parametrize(
    ("gradient", "error", "text"),
    [
        (gh.ones((2,)), ShapeError, r"float32\[1\]; got float32\[2\]"),
        (gh.ones(()), ShapeError, "got float32"),
        (gh.ones((1,), dtype="float64"), DTypeError, "got float64"),
        (np.ones(1), DTypeError, "got numpy.ndarray"),
    ],
)
def test_a_gradient_unlike_its_parameter_changes_nothing(gradient, error, text):
    params = [gh.tensor([1.0], requires_grad=True) for _ in range(2)]
    opt = SGD(params)
    params[0].grad, params[1].grad = gh.ones((1,)), gradient
    with pytest.raises(error, match=text):
        opt.step()
    assert [p.tolist() for p in params] == [[1.0], [1.0]]


def test_closure_runs_with_gradients_and_returns_its_loss():
    p = gh.tensor([2.0], requires_grad=True)
    opt = SGD([p], lr=0.25)

    def closure():
        opt.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    with gh.no_grad():
        assert opt.step(closure).item() == 4.0
    assert p.tolist() == [1.0]


def count_additions(work):
    """How often `work` calls the kernel of the add card."""
    log = []

    def counting_add(a, b):
        log.append(1)
        return a + b

    with gh.backends.current().replace("add", counting_add):
        work()
    return len(log)


@pytest.mark.parametrize(
    ("kind", "expected"), [(SGD, 1), (Adam, 4), (AdamW, 4), (RMSprop, 3), (Adagrad, 3)]
)
def test_every_addition_goes_through_the_add_card(kind, expected):
    p = gh.tensor([1.0, 2.0], requires_grad=True)
    opt = kind([p], lr=0.1)
    p.grad = gh.asarray([1.0, 1.0])
    opt.step()
    assert count_additions(opt.step) == expected


STATEFUL = [
    (SGD, {"lr": 0.1, "momentum": 0.9}),
    (Adam, {"lr": 0.1, "amsgrad": True}),
    (RMSprop, {"lr": 0.1, "momentum": 0.9, "centered": True}),
    (Adagrad, {"lr": 0.1}),
]


@pytest.mark.parametrize(("kind", "options"), STATEFUL)
def test_a_loaded_state_goes_on_exactly(kind, options):
    params = parameters()
    opt = kind(params, **options)
    run(opt, params, range(5))
    saved = opt.state_dict()
    copies = [gh.tensor(p.numpy().copy(), requires_grad=True) for p in params]
    other = kind(copies, lr=9.0)
    other.load_state_dict(saved)
    run(opt, params, range(5, 9))  # the saved state is a snapshot: this must not change it
    run(other, copies, range(5, 9))
    for p, q in zip(params, copies, strict=True):
        np.testing.assert_array_equal(p.numpy(), q.numpy())
    assert other.param_groups[0]["lr"] == 0.1


@pytest.mark.parametrize(("kind", "options"), STATEFUL)
def test_a_state_from_pytorch_goes_on(kind, options):
    torch = pytest.importorskip("torch")
    params = parameters()
    twins, torch_opt = torch_twin(torch, kind, options, params)
    for step in range(4):
        torch_step(torch, twins, torch_opt, step)
    copies = [gh.tensor(t.detach().numpy().copy(), requires_grad=True) for t in twins]
    opt = kind(copies)
    opt.load_state_dict(interop.state_dict_from_torch(torch_opt.state_dict()))
    run(opt, copies, range(4, 8))
    for step in range(4, 8):
        torch_step(torch, twins, torch_opt, step)
    for p, t in zip(copies, twins, strict=True):
        np.testing.assert_allclose(p.numpy(), t.detach().numpy(), rtol=1e-11)


def test_deepcopy_makes_an_independent_optimizer():
    params = parameters()
    opt = Adam(params)
    run(opt, params, [0])
    other = copy.deepcopy(opt)
    assert other.param_groups[0]["params"][0] is not params[0]
    assert other.state_dict()["state"][0]["step"] == 1


def broken(**changes):
    def make(state):
        return {**state, **changes}

    return make


def without_buffer(state):
    return {**state, "state": {0: {"step": 1}}}


def wrong_shape(state):
    entry = {**state["state"][0], "exp_avg": gh.zeros((2,))}
    return {**state, "state": {0: entry}}


def wrong_lr(state):
    return {**state, "param_groups": [{**state["param_groups"][0], "lr": -1.0}]}


BAD_STATES = [
    (lambda state: 3, CheckpointError, "got int"),
    (lambda state: {}, CheckpointError, "'state' and 'param_groups'"),
    (broken(state=5), CheckpointError, "'state' and 'param_groups'"),
    (broken(param_groups=[]), CheckpointError, r"sizes \[3\]; got \[\]"),
    (broken(param_groups=[{"params": [0]}]), CheckpointError, r"sizes \[3\]; got \[1\]"),
    (broken(param_groups=[5]), CheckpointError, "something else"),
    (broken(state={7: {}}), CheckpointError, "parameters 0 to 2; got 7"),
    (broken(state={0: None}), CheckpointError, "parameter 0"),
    (broken(state={0: {"step": -1, "exp_avg": 0, "exp_avg_sq": 0}}), CheckpointError, "got -1"),
    (broken(state={0: {"momentum_buffer": gh.zeros((3, 4))}}), CheckpointError, "momentum_buffer"),
    (without_buffer, CheckpointError, "exp_avg"),
    (wrong_shape, CheckpointError, r"shape \(3, 4\).*got shape \(2,\)"),
    (wrong_lr, OptionError, "lr"),
]


@pytest.mark.parametrize("number", range(len(BAD_STATES)))
def test_a_state_that_does_not_fit_changes_nothing(number):
    damage, error, text = BAD_STATES[number]
    params = parameters()
    opt = Adam(params)
    run(opt, params, [0])
    before = copy.deepcopy(opt.state_dict())
    with pytest.raises(error, match=text):
        opt.load_state_dict(damage(opt.state_dict()))
    after = opt.state_dict()
    assert after["param_groups"] == before["param_groups"]
    for name in ("exp_avg", "exp_avg_sq"):
        old, new = before["state"][0][name], after["state"][0][name]
        np.testing.assert_array_equal(old.numpy(), new.numpy())


def leaf():
    return gh.tensor([1.0], requires_grad=True)


SHARED = leaf()
BAD_CALLS = [
    (lambda: SGD([]), OptionError, "at least one parameter"),
    (lambda: SGD(leaf()), DTypeError, "iterable of parameters"),
    (lambda: SGD(3), DTypeError, "got int"),
    (lambda: SGD({"params": [leaf()]}), DTypeError, "got dict"),
    (lambda: SGD([3.0]), DTypeError, "got float at 0"),
    (lambda: SGD([leaf(), np.ones(2)]), DTypeError, "numpy.ndarray at 1"),
    (lambda: SGD([gh.asarray([1, 2])]), DTypeError, "a tensor of int64"),
    (lambda: SGD([leaf() * 2]), GradError, "leaf tensors"),
    (lambda: SGD([SHARED, SHARED]), OptionError, "twice"),
    (lambda: SGD([{"params": [SHARED]}, {"params": [SHARED]}]), OptionError, "twice"),
    (lambda: SGD([{"params": []}]), OptionError, "empty group"),
    (lambda: SGD([{"lr": 1.0}]), OptionError, r"a dict with \['lr'\]"),
    (lambda: SGD([{"params": [leaf()]}, leaf()]), OptionError, "every group to be a dict"),
    (lambda: SGD([{"params": [leaf()], "momentun": 1}]), OptionError, "Did you mean 'momentum'"),
    (lambda: SGD([leaf()], lr=-1), OptionError, r"lr to be a number in \[0.0, inf\); got -1"),
    (lambda: SGD([leaf()], lr=float("nan")), OptionError, "got nan"),
    (lambda: SGD([leaf()], lr="0.1"), OptionError, "got '0.1'"),
    (lambda: SGD([leaf()], momentum=-0.1), OptionError, "momentum"),
    (lambda: SGD([leaf()], nesterov=True), OptionError, "nesterov"),
    (lambda: SGD([leaf()], momentum=0.9, dampening=0.1, nesterov=True), OptionError, "nesterov"),
    (lambda: Adam([leaf()], betas=(0.9, 1.0)), OptionError, "betas to be two numbers"),
    (lambda: Adam([leaf()], betas=(0.9,)), OptionError, "betas"),
    (lambda: Adam([leaf()], betas=0.9), OptionError, "betas"),
    (lambda: Adam([leaf()], eps=-1), OptionError, "eps"),
    (lambda: AdamW([leaf()], weight_decay=-1), OptionError, "weight_decay"),
    (lambda: RMSprop([leaf()], alpha=1.5), OptionError, "alpha"),
    (lambda: Adagrad([leaf()], lr_decay=-1), OptionError, "lr_decay"),
    (lambda: SGD([SHARED]).add_param_group({"params": [SHARED]}), OptionError, "twice"),
    (lambda: SGD([SHARED]).add_param_group([leaf()]), OptionError, "dict"),
]


@pytest.mark.parametrize("number", range(len(BAD_CALLS)))
def test_bad_calls(number):
    call, error, text = BAD_CALLS[number]
    with pytest.raises(error, match=text):
        call()


def test_a_refused_group_changes_nothing():
    opt = SGD([leaf()])
    with pytest.raises(OptionError):
        opt.add_param_group({"params": [leaf()], "lr": -1.0})
    assert len(opt.param_groups) == 1


class OwnState(gh.optim.Optimizer):
    """An optimizer as programs of PyTorch have them: its `step` makes the state itself."""

    def __init__(self, params, lr=0.5):
        super().__init__(params, {"lr": lr})

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if len(state) == 0:
                    state["sum"] = gh.zeros_like(p)
                with gh.no_grad():
                    state["sum"] += p.grad
                    p -= group["lr"] * state["sum"]


def test_a_users_step_makes_its_own_state():
    p = gh.nn.Parameter(gh.zeros(2))
    optimizer = OwnState([p])
    for _ in range(3):
        p.grad = gh.ones(2)
        optimizer.step()
    assert p.tolist() == [-3.0, -3.0]  # 0.5 (1 + 2 + 3)
    assert optimizer.state[p]["sum"].tolist() == [3.0, 3.0]
    assert optimizer.state_dict()["state"][0]["sum"].tolist() == [3.0, 3.0]


def test_the_state_of_a_users_step_is_saved_and_loaded():
    """As PyTorch does: a run that goes on from a state ends where the whole run does."""
    ends = []
    for stops in (False, True):
        p = gh.nn.Parameter(gh.zeros(2))
        optimizer = OwnState([p])
        for i in range(4):
            p.grad = gh.ones(2) * (i + 1)
            optimizer.step()
            if stops:
                saved = optimizer.state_dict()
                optimizer = OwnState([p])
                optimizer.load_state_dict(saved)
        ends.append((p.tolist(), optimizer.state[p]["sum"].tolist()))
    assert ends[0] == ends[1] == ([-10.0, -10.0], [10.0, 10.0])


def test_the_saved_state_of_a_users_step_is_a_snapshot_of_each_kind_of_value():
    p = gh.nn.Parameter(gh.zeros(2, dtype="float64"))
    optimizer = OwnState([p])
    optimizer.state[p] = {
        "step": gh.tensor(3.0),
        "sum": gh.ones(2),
        "history": [gh.ones(1), (2, np.ones(2, np.float32))],
        "seen": {"count": gh.tensor(5), "name": "a"},
        "none": None,
    }
    saved = optimizer.state_dict()
    optimizer.state[p]["sum"] += 1
    other = OwnState([p])
    other.load_state_dict(saved)
    other.state[p]["history"][0] += 1
    state = other.state[p]
    assert state["sum"].tolist() == [1.0, 1.0] and state["sum"].dtype == gh.float64
    assert state["step"].dtype == gh.float32 and state["step"].item() == 3  # as PyTorch keeps it
    assert saved["state"][0]["history"][0].tolist() == [1.0]
    assert state["history"][1][0] == 2 and state["history"][1][1].dtype == gh.float64
    assert state["seen"]["count"].dtype == gh.int64 and state["seen"]["name"] == "a"
    assert state["none"] is None


def test_a_rule_that_does_not_name_its_state_is_told_how():
    class Rule(gh.optim.Optimizer):
        def change(self, grad, state, group):
            state["sum"] = state.get("sum", 0) + grad
            return -state["sum"]

    p = gh.nn.Parameter(gh.zeros(2))
    optimizer = Rule([p], {})
    p.grad = gh.ones(2)
    optimizer.step()
    with pytest.raises(CheckpointError, match="a rule names its state in `buffers`"):
        optimizer.load_state_dict(optimizer.state_dict())
