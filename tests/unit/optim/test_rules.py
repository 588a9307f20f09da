"""Each rule against PyTorch's for 50 steps: values, state_dict, resuming on either side."""

import itertools

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import interop, optim

SHAPES = [(3, 4), (5,), (), (2, 3, 2)]
FLAGS = {"weight_decay": [0.0, 0.1], "maximize": [False, True]}
MOMENTS = {"betas": [(0.9, 0.999), (0.3, 0.6)], "eps": [1e-8, 0.1]}


def product(**choices):
    """Every combination of options, as dicts."""
    return [
        dict(zip(choices, values, strict=True)) for values in itertools.product(*choices.values())
    ]


# The options of each rule: all combinations of each row.
TABLE = {
    "Adamax": [{"lr": [0.05], **MOMENTS}, {"lr": [0.05], **FLAGS}],
    "NAdam": [
        {"lr": [0.05], "momentum_decay": [4e-3, 0.1], "maximize": [False, True]},
        {"lr": [0.05], **MOMENTS},
        {"lr": [0.05], "weight_decay": [0.1], "decoupled_weight_decay": [False, True]},
    ],
    "RAdam": [
        {"lr": [0.05], **MOMENTS},
        {"lr": [0.05], "betas": [(0.9, 0.6)]},
        {"lr": [0.05], "decoupled_weight_decay": [False, True], **FLAGS},
    ],
    "Adadelta": [{"rho": [0.9, 0.5], "eps": [1e-6, 1e-2]}, {"lr": [0.1], **FLAGS}],
    "Rprop": [
        {"lr": [0.05], "etas": [(0.5, 1.2), (0.3, 2.0)], "step_sizes": [(1e-6, 50), (1e-2, 0.1)]}
        | {"maximize": [False, True]}
    ],
    "ASGD": [
        {"lr": [0.05], "lambd": [1e-4, 0.1], "alpha": [0.75, 0.5]},
        {"lr": [0.05], "t0": [5.0], **FLAGS},
    ],
    "Adafactor": [
        {"lr": [0.05], "beta2_decay": [-0.8, -0.3], "eps": [(None, 1e-3), (1e-3, 0.1)]},
        {"lr": [0.5], "d": [1.0, 2.0]},
        {"lr": [0.01], **FLAGS},
    ],
    "SGD": [{"lr": [0.05], "momentum": [0.9], "nesterov": [False, True], **FLAGS}],
    "Adam": [{"lr": [0.05], "amsgrad": [False, True], **FLAGS}],
    "AdamW": [{"lr": [0.05], "amsgrad": [False, True], **FLAGS}],
    "RMSprop": [{"lr": [0.05], "centered": [False, True], "momentum": [0.0, 0.9]}],
    "Adagrad": [{"lr": [0.05], "lr_decay": [0.0, 0.1], **FLAGS}],
}
CASES = [
    pytest.param(name, options, id=f"{name}-{i}")
    for name, rows in TABLE.items()
    for i, options in enumerate([{}] + [o for row in rows for o in product(**row)])
]
LAST = [(name, product(**rows[-1])[-1]) for name, rows in TABLE.items()]


@pytest.fixture
def torch():
    """PyTorch with float64 as default, so that its numbers of state are as exact as ours."""
    torch = pytest.importorskip("torch")
    torch.set_default_dtype(torch.float64)
    yield torch
    torch.set_default_dtype(torch.float32)


def arrays(seed=0, shapes=SHAPES):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=s) for s in shapes]


def gradients(step, shapes=SHAPES):
    """Gradients of a step; the second parameter has none at step 3."""
    rng = np.random.default_rng(100 + step)
    grads = [rng.normal(size=s) * 10 ** rng.uniform(-2, 1) for s in shapes]
    return [None if (i, step) == (1, 3) else g for i, g in enumerate(grads)]


def step_ours(opt, params, step):
    for p, g in zip(params, gradients(step, [p.shape for p in params]), strict=True):
        p.grad = None if g is None else gh.asarray(g, dtype=p.dtype)
    opt.step()


def step_torch(torch, opt, params, step):
    for p, g in zip(params, gradients(step, [p.shape for p in params]), strict=True):
        p.grad = None if g is None else torch.tensor(g, dtype=p.dtype)
    opt.step()


def both(torch, name, options, dtype="float64", shapes=SHAPES):
    ours = [gh.tensor(a, dtype=dtype, requires_grad=True) for a in arrays(shapes=shapes)]
    kind = getattr(torch, dtype)
    theirs = [torch.tensor(a, dtype=kind, requires_grad=True) for a in arrays(shapes=shapes)]
    result = getattr(optim, name)(ours, **options)
    return ours, result, theirs, getattr(torch.optim, name)(theirs, **options)


def close(ours, theirs, rtol=1e-9, atol=1e-11):
    for p, t in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(p.numpy(), t.detach().numpy(), rtol=rtol, atol=atol)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_fifty_steps_equal_pytorchs(torch, name, options):
    ours, opt, theirs, torch_opt = both(torch, name, options)
    for step in range(50):
        step_ours(opt, ours, step)
        step_torch(torch, torch_opt, theirs, step)
    close(ours, theirs)


def shapes_of(state):
    """Names and shapes of a state dict, whose numbers are PyTorch's 0-d tensors."""
    return {
        number: {name: np.shape(x) for name, x in entry.items() if x is not None}
        for number, entry in state["state"].items()
    }


@pytest.mark.parametrize(("name", "options"), LAST)
def test_state_dicts_have_pytorchs_names_and_shapes(torch, name, options):
    ours, opt, theirs, torch_opt = both(torch, name, options)
    step_ours(opt, ours, 0)
    step_torch(torch, torch_opt, theirs, 0)
    own, other = opt.state_dict(), torch_opt.state_dict()
    assert shapes_of(own) == shapes_of(other)
    for mine, group in zip(own["param_groups"], other["param_groups"], strict=True):
        assert mine.keys() == group.keys()
        assert {k: v for k, v in mine.items() if k != "max_iter"} == group


@pytest.mark.parametrize(("name", "options"), LAST)
def test_a_state_goes_on_on_the_other_side(torch, name, options):
    ours, opt, theirs, torch_opt = both(torch, name, options)
    for step in range(6):
        step_ours(opt, ours, step)
        step_torch(torch, torch_opt, theirs, step)
    _, fresh, _, torch_fresh = both(torch, name, {})
    copies = [gh.tensor(t.detach().numpy().copy(), requires_grad=True) for t in theirs]
    torch_copies = [torch.tensor(p.numpy(), requires_grad=True) for p in ours]
    fresh = getattr(optim, name)(copies)
    fresh.load_state_dict(interop.state_dict_from_torch(torch_opt.state_dict()))
    torch_fresh = getattr(torch.optim, name)(torch_copies)
    torch_fresh.load_state_dict(interop.state_dict_to_torch(opt.state_dict()))
    for step in range(6, 12):
        step_ours(opt, ours, step)
        step_ours(fresh, copies, step)
        step_torch(torch, torch_fresh, torch_copies, step)
    close(ours, torch_copies)
    for p, q in zip(ours, copies, strict=True):
        np.testing.assert_allclose(p.numpy(), q.numpy(), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", ["Adamax", "NAdam", "RAdam", "Adadelta", "ASGD", "Adafactor"])
def test_float32_equals_pytorchs(torch, name):
    ours, opt, theirs, torch_opt = both(torch, name, {}, "float32")
    for step in range(20):
        step_ours(opt, ours, step)
        step_torch(torch, torch_opt, theirs, step)
    assert all(p.dtype == gh.float32 for p in ours)
    close(ours, theirs, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", ["Adamax", "NAdam", "RAdam", "Adadelta", "Rprop", "ASGD"])
def test_complex_parameters_equal_pytorchs(torch, name):
    rng = np.random.default_rng(0)
    start, *grads = rng.normal(size=(6, 4)) + 1j * rng.normal(size=(6, 4))
    p, twin = gh.tensor(start, requires_grad=True), torch.tensor(start, requires_grad=True)
    opt, torch_opt = (getattr(o, name)([x]) for o, x in ((optim, p), (torch.optim, twin)))
    for g in grads:
        p.grad, twin.grad = gh.asarray(g), torch.tensor(g)
        opt.step()
        torch_opt.step()
    np.testing.assert_allclose(p.numpy(), twin.detach().numpy(), rtol=1e-10)
    assert shapes_of(opt.state_dict()) == shapes_of(torch_opt.state_dict())
    other = getattr(optim, name)([p])
    other.load_state_dict(interop.state_dict_from_torch(torch_opt.state_dict()))
    assert shapes_of(other.state_dict()) == shapes_of(opt.state_dict())


@pytest.mark.parametrize(
    "options",
    [{}, {"nesterov": False, "weight_decay": 0.0}, {"adjust_lr_fn": "match_rms_adamw"}],
)
def test_muon_equals_pytorchs_as_far_as_bfloat16_does(torch, options):
    shapes = [(4, 8), (8, 4), (5, 5)]
    ours, opt, theirs, torch_opt = both(torch, "Muon", {"lr": 0.1, **options}, "float32", shapes)
    for step in range(20):
        step_ours(opt, ours, step)
        step_torch(torch, torch_opt, theirs, step)
    close(ours, theirs, rtol=0.05, atol=0.05)  # of 20 steps of 0.1 in each direction
    assert shapes_of(opt.state_dict()) == shapes_of(torch_opt.state_dict())


def orthogonal(x, a, b, c, steps):
    """Newton-Schulz in the dtype of x, as Muon's authors write it."""
    y = x.T if x.shape[0] > x.shape[1] else x
    y = y / np.linalg.norm(y)
    for _ in range(steps):
        gram = y @ y.T
        y = a * y + (b * gram + c * gram @ gram) @ y
    return y.T if x.shape[0] > x.shape[1] else y


def test_muon_in_float64_equals_its_equations(monkeypatch):
    monkeypatch.setattr(optim.matrices, "bfloat16", gh.float64)
    coefficients, momentum, decay, lr = (3.0, -4.0, 2.0), 0.9, 0.2, 0.1
    shapes = [(4, 8), (8, 4)]
    values = arrays(shapes=shapes)
    params = [gh.tensor(a, requires_grad=True) for a in values]
    opt = optim.Muon(params, lr, decay, momentum, ns_coefficients=coefficients, ns_steps=3)
    means = [0, 0]
    for step in range(10):
        step_ours(opt, params, step)
        for i, g in enumerate(gradients(step, shapes)):
            if g is None:
                continue
            means[i] = means[i] * momentum + (1 - momentum) * g
            update = orthogonal(momentum * means[i] + (1 - momentum) * g, *coefficients, 3)
            scale = max(1, g.shape[0] / g.shape[1]) ** 0.5
            values[i] = values[i] * (1 - lr * decay) - lr * scale * update
    for p, a in zip(params, values, strict=True):
        np.testing.assert_allclose(p.numpy(), a, rtol=1e-9)


@pytest.mark.parametrize("maximize", [False, True])
def test_sparse_adam_equals_pytorchs_on_rows_that_were_looked_up(torch, maximize):
    table, rng = np.random.default_rng(0).normal(size=(6, 3)), np.random.default_rng(1)
    p, t = gh.tensor(table, requires_grad=True), torch.tensor(table, requires_grad=True)
    opt = optim.SparseAdam([p], lr=0.1, maximize=maximize)
    torch_opt = torch.optim.SparseAdam([t], lr=0.1, maximize=maximize)
    for _ in range(50):
        rows = rng.integers(0, 5, size=4)  # row 5 is never looked up
        opt.zero_grad()
        torch_opt.zero_grad()
        (gh.take(p, gh.asarray(rows), axis=0) ** 2).sum().backward()
        embedded = torch.nn.functional.embedding(torch.tensor(rows), t, sparse=True)
        (embedded**2).sum().backward()
        opt.step()
        torch_opt.step()
    close([p], [t])
    np.testing.assert_array_equal(p.numpy()[5], table[5])
    assert shapes_of(opt.state_dict()) == shapes_of(torch_opt.state_dict())


# -- L-BFGS ------------------------------------------------------------------------------------
def rosenbrock(x, y):
    return ((1 - x) ** 2 + 100 * (y[1:] - x**2) ** 2).sum() + (y[0] - 2) ** 2


LBFGS_CASES = [
    {"line_search_fn": "strong_wolfe"},
    {"line_search_fn": "strong_wolfe", "max_iter": 4, "history_size": 3},
    {"line_search_fn": "strong_wolfe", "max_iter": 10, "max_eval": 3},
    {"line_search_fn": "strong_wolfe", "history_size": 1, "lr": 0.1},
    {"lr": 1e-3, "max_iter": 5},
    {"lr": 1e-3, "max_iter": 7, "history_size": 2, "max_eval": 4},
]


def lbfgs_steps(opt, params, steps):
    losses = []

    def closure():
        opt.zero_grad()
        loss = rosenbrock(*params)
        loss.backward()
        return loss

    for _ in range(steps):
        losses.append(opt.step(closure).item())
    return losses


@pytest.mark.parametrize("options", LBFGS_CASES)
def test_lbfgs_equals_pytorchs(torch, options):
    start = arrays(shapes=[(3,), (4,)])
    ours = [gh.tensor(a, requires_grad=True) for a in start]
    theirs = [torch.tensor(a, requires_grad=True) for a in start]
    opt, torch_opt = optim.LBFGS(ours, **options), torch.optim.LBFGS(theirs, **options)
    losses = lbfgs_steps(opt, ours, 3)
    np.testing.assert_allclose(losses, lbfgs_steps(torch_opt, theirs, 3), rtol=1e-6)
    close(ours, theirs, rtol=1e-6, atol=1e-8)
    own, other = opt.state[ours[0]], torch_opt.state[theirs[0]]
    assert own.keys() | {"al"} == other.keys() | {"al"}
    assert (own["n_iter"], own["func_evals"]) == (other["n_iter"], other["func_evals"])


def test_lbfgs_goes_on_from_a_state_of_either_side(torch):
    start, options = arrays(shapes=[(3,), (4,)]), {"line_search_fn": "strong_wolfe", "max_iter": 3}
    ours = [gh.tensor(a, requires_grad=True) for a in start]
    opt = optim.LBFGS(ours, **options)
    lbfgs_steps(opt, ours, 2)
    saved = opt.state_dict()
    copies = [gh.tensor(p.numpy().copy(), requires_grad=True) for p in ours]
    theirs = [torch.tensor(p.numpy(), requires_grad=True) for p in ours]
    other, torch_opt = optim.LBFGS(copies), torch.optim.LBFGS(theirs)
    other.load_state_dict(saved)
    torch_opt.load_state_dict(interop.state_dict_to_torch(saved))
    losses = lbfgs_steps(opt, ours, 2)
    assert lbfgs_steps(other, copies, 2) == losses
    np.testing.assert_allclose(lbfgs_steps(torch_opt, theirs, 2), losses, rtol=1e-6)
    other.load_state_dict(interop.state_dict_from_torch(torch_opt.state_dict()))
    assert other.state[copies[0]]["n_iter"] == torch_opt.state[theirs[0]]["n_iter"]


def test_lbfgs_of_complex_parameters_equals_pytorchs(torch):
    rng = np.random.default_rng(0)
    start, goal = rng.normal(size=(2, 3)) + 1j * rng.normal(size=(2, 3))
    z, t = gh.tensor(start, requires_grad=True), torch.tensor(start, requires_grad=True)
    opt = optim.LBFGS([z], max_iter=4, line_search_fn="strong_wolfe")
    torch_opt = torch.optim.LBFGS([t], max_iter=4, line_search_fn="strong_wolfe")

    def closure_of(o, x, target):
        def closure():
            o.zero_grad()
            loss = (abs(x - target) ** 4).sum()
            loss.backward()
            return loss

        return closure

    opt.step(closure_of(opt, z, gh.asarray(goal)))
    torch_opt.step(closure_of(torch_opt, t, torch.tensor(goal)))
    np.testing.assert_allclose(z.numpy(), t.detach().numpy(), rtol=1e-6)


@pytest.mark.parametrize("kind", ["even", "decaying"])
def test_two_steps_of_newton_schulz_at_once_are_as_exact_as_pytorchs(torch, kind):
    x = np.random.default_rng(0).standard_normal((128, 256))
    if kind == "decaying":
        left, _, right = np.linalg.svd(x, full_matrices=False)
        x = left * np.logspace(0, -4, 128) @ right
    coefficients = (3.4445, -4.775, 2.0315)
    exact = orthogonal(x, *coefficients, 5)
    ours = optim.matrices.newton_schulz(gh.asarray(x, dtype=gh.float32), coefficients)
    single = torch.optim._muon._zeropower_via_newtonschulz
    theirs = single(torch.tensor(x, dtype=torch.float32), coefficients, 5, 1e-7)
    error = np.linalg.norm(ours.astype("float64").numpy() - exact)
    assert error < np.linalg.norm(theirs.double().numpy() - exact)
