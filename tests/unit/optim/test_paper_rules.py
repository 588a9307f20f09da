"""Rules that PyTorch lacks, against their papers' equations; all rules resumed and captured."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import interop, optim
from glasshouse.base.errors import GradError, OptionError, ShapeError

SHAPES = [(3, 4), (5,), (2, 3, 2)]


def arrays():
    rng = np.random.default_rng(0)
    return [rng.normal(size=s) for s in SHAPES]


def gradients(step):
    rng = np.random.default_rng(100 + step)
    return [rng.normal(size=s) * 10 ** rng.uniform(-2, 1) for s in SHAPES]


def run(opt, params, steps):
    for step in steps:
        for p, g in zip(params, gradients(step), strict=True):
            p.grad = gh.asarray(g, dtype=p.dtype)
        opt.step()


def norm(x):
    return np.sqrt((x * x).sum())


# One parameter's step: (p, g, state, t from 1, options) -> p, as the papers have it.
def lion(p, g, s, t, o):
    b1, b2 = o["betas"]
    m = s.get("m", 0.0)
    update = np.sign(b1 * m + (1 - b1) * g)
    s["m"] = b2 * m + (1 - b2) * g
    return p - o["lr"] * (update + o["weight_decay"] * p)


def lars(p, g, s, t, o):
    ratio = o["trust_coefficient"] * norm(p) / (norm(g) + o["weight_decay"] * norm(p))
    s["b"] = o["momentum"] * s.get("b", 0.0) + o["lr"] * ratio * (g + o["weight_decay"] * p)
    return p - s["b"]


def lamb(p, g, s, t, o):
    b1, b2 = o["betas"]
    s["m"] = b1 * s.get("m", 0.0) + (1 - b1) * g
    s["v"] = b2 * s.get("v", 0.0) + (1 - b2) * g * g
    r = s["m"] / (1 - b1**t) / (np.sqrt(s["v"] / (1 - b2**t)) + o["eps"])
    update = r + o["weight_decay"] * p
    return p - o["lr"] * norm(p) / norm(update) * update


def novograd(p, g, s, t, o):
    b1, b2 = o["betas"]
    s["v"] = b2 * s["v"] + (1 - b2) * norm(g) ** 2 if "v" in s else norm(g) ** 2
    step = g / (np.sqrt(s["v"]) + o["eps"]) + o["weight_decay"] * p
    s["m"] = b1 * s.get("m", 0.0) + (1 - b1 if o["grad_averaging"] else 1) * step
    return p - o["lr"] * s["m"]


def sophia(p, g, s, t, o):
    b1, b2 = o["betas"]
    s["m"] = b1 * s.get("m", 0.0) + (1 - b1) * g
    if t % 3 == 1:
        s["h"] = b2 * s.get("h", 0.0) + (1 - b2) * 16 * g * g
    update = np.clip(s["m"] / np.maximum(o["rho"] * s["h"], o["eps"]), -1, 1)
    return p - o["lr"] * o["weight_decay"] * p - o["lr"] * update


def shampoo(p, g, s, t, o):
    update, k = g + o["weight_decay"] * p, p.ndim
    g = update
    for axis in range(k):
        rows = np.moveaxis(g, axis, 0).reshape(g.shape[axis], -1)
        s[axis] = s.get(axis, o["eps"] * np.eye(len(rows))) + rows @ rows.T
        if (t - 1) % o["update_every"] == 0:
            values, vectors = np.linalg.eigh(s[axis])
            s["root", axis] = vectors * values ** (-1 / (2 * k)) @ vectors.T
        update = np.moveaxis(np.tensordot(s["root", axis], update, (1, axis)), 0, axis)
    s["b"] = o["momentum"] * s.get("b", 0.0) + update
    return p - o["lr"] * s["b"]


EQUATIONS = {"Lion": lion, "LARS": lars, "LAMB": lamb, "NovoGrad": novograd, "Shampoo": shampoo}
BETAS = {"betas": (0.5, 0.7)}
CASES = [
    ("Lion", {"lr": 0.05}),
    ("Lion", {"lr": 0.05, "weight_decay": 0.2, **BETAS}),
    ("LARS", {"lr": 0.5, "eps": 0.0}),
    ("LARS", {"lr": 0.5, "eps": 0.0, "weight_decay": 0.1, "momentum": 0.3}),
    ("LARS", {"eps": 0.0, "trust_coefficient": 0.1, "momentum": 0.0}),
    ("LAMB", {"lr": 0.05}),
    ("LAMB", {"lr": 0.05, "weight_decay": 0.2, "eps": 0.1, **BETAS}),
    ("NovoGrad", {"lr": 0.05}),
    ("NovoGrad", {"lr": 0.05, "weight_decay": 0.2, "grad_averaging": True, **BETAS}),
    ("Shampoo", {"lr": 0.05}),
    ("Shampoo", {"lr": 0.05, "momentum": 0.5, "weight_decay": 0.1, "eps": 0.01}),
    ("Shampoo", {"lr": 0.05, "update_every": 4}),
]


@pytest.mark.sample(13)
@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize(("name", "options"), CASES)
def test_fifty_steps_equal_the_papers_equations(name, options, maximize):
    params = [gh.tensor(a, requires_grad=True) for a in arrays()]
    opt = getattr(optim, name)(params, **options, maximize=maximize)
    expected, states = arrays(), [{} for _ in SHAPES]
    every = opt.param_groups[0]
    for step in range(50):
        run(opt, params, [step])
        for i, g in enumerate(gradients(step)):
            g = -g if maximize else g
            expected[i] = EQUATIONS[name](expected[i], g, states[i], step + 1, every)
    for p, e in zip(params, expected, strict=True):
        np.testing.assert_allclose(p.numpy(), e, rtol=1e-7)


@pytest.mark.parametrize("options", [{"lr": 0.05}, {"lr": 0.05, "rho": 1.0, **BETAS}])
def test_sophia_equals_the_papers_equations(options):
    params = [gh.tensor(a, requires_grad=True) for a in arrays()]
    opt = optim.Sophia(params, **options)
    expected, states = arrays(), [{} for _ in SHAPES]
    for step in range(30):
        grads = gradients(step)
        for p, g in zip(params, grads, strict=True):
            p.grad = gh.asarray(g)
        if step % 6 == 0:
            opt.update_hessian(16)
        elif step % 3 == 0:
            opt.update_hessian(estimates=[gh.asarray(16 * g * g) for g in grads])
        opt.step()
        group = opt.param_groups[0]
        rows = zip(expected, grads, states, strict=True)
        expected = [sophia(p, g, s, step + 1, group) for p, g, s in rows]
    for p, e in zip(params, expected, strict=True):
        np.testing.assert_allclose(p.numpy(), e, rtol=1e-9)


def test_the_ratio_of_a_zero_parameter_is_one():
    p = gh.tensor([0.0, 0.0], requires_grad=True)
    for name in ("LARS", "LAMB"):
        opt = getattr(optim, name)([p], lr=0.5)
        p.grad = gh.asarray([1.0, -1.0])
        opt.step()
        assert np.isfinite(p.numpy()).all() and (p.numpy() != 0).all()


def test_an_axis_that_is_too_long_has_no_matrix():
    p = gh.tensor(np.ones((3, 5)), requires_grad=True)
    opt = optim.Shampoo([p], largest=4)
    p.grad = gh.ones((3, 5), dtype=gh.float64)
    opt.step()
    assert set(opt.state[p]) == {"step", "sum_0", "root_0"}


ALL = {
    "SGD": {"lr": 0.1, "momentum": 0.9},
    "Adam": {"amsgrad": True},
    "AdamW": {},
    "Adamax": {},
    "NAdam": {},
    "RAdam": {},
    "SparseAdam": {},
    "RMSprop": {"centered": True, "momentum": 0.5},
    "Adagrad": {},
    "Adadelta": {},
    "Rprop": {},
    "ASGD": {"t0": 3.0},
    "Adafactor": {},
    "Lion": {},
    "LARS": {"lr": 1.0},
    "LAMB": {},
    "NovoGrad": {},
    "Sophia": {},
    "Shampoo": {"update_every": 3},
}


@pytest.mark.parametrize("name", ALL)
def test_a_saved_optimizer_goes_on_exactly(name, tmp_path):
    params = [gh.tensor(a, dtype=gh.float32, requires_grad=True) for a in arrays()]
    opt = getattr(optim, name)(params, **ALL[name])
    run(opt, params, range(5))
    interop.save_checkpoint(tmp_path / "c", optimizer=opt)
    copies = [gh.tensor(p.numpy().copy(), requires_grad=True) for p in params]
    other = getattr(optim, name)(copies)
    interop.load_checkpoint(tmp_path / "c", optimizer=other)
    run(opt, params, range(5, 9))
    run(other, copies, range(5, 9))
    for p, q in zip(params, copies, strict=True):
        np.testing.assert_array_equal(p.numpy(), q.numpy())


@pytest.mark.sample(7)
@pytest.mark.parametrize("name", [*ALL, "Muon"])
def test_a_captured_step_gives_the_same_numbers(name):
    def train(captured):
        gh.random.seed(0)
        model = gh.nn.Linear(4, 3, bias=name != "Muon")
        options = {"Shampoo": {"eps": 0.1}}.get(name, ALL.get(name, {}))  # roots in each step
        opt = getattr(optim, name)(model.parameters(), **options)

        def step(x):
            opt.zero_grad()
            loss = ((model(x) - 1) ** 2).mean()
            loss.backward()
            opt.step()
            return loss

        fn = gh.optimize(step) if captured else step
        losses = [fn(gh.ones((2, 4))).item() for _ in range(8)]
        return losses, fn

    with gh.backends.use("numpy"):
        plain, _ = train(False)
    captured, fn = train(True)
    np.testing.assert_allclose(captured, plain, rtol=1e-5)
    assert fn.hits >= 4


def leaf(*shape):
    return gh.ones(shape, dtype=gh.float32).requires_grad_()


BAD_CALLS = [
    (lambda: optim.Rprop([leaf(1)], etas=(1.2, 0.5)), OptionError, r"etas\[0\] < 1"),
    (lambda: optim.Rprop([leaf(1)], step_sizes=1.0), OptionError, "step_sizes to be two numbers"),
    (lambda: optim.Adafactor([leaf(1)], eps=1e-3), OptionError, "eps to be"),
    (lambda: optim.Adafactor([leaf(1)], d=0.5), OptionError, "d to be a number"),
    (lambda: optim.Adafactor([leaf(1)], beta2_decay=0.1), OptionError, "beta2_decay"),
    (lambda: optim.Muon([leaf(3)]), ShapeError, r"matrices; got shape \(3,\)"),
    (lambda: optim.Muon([leaf(3, 2)], adjust_lr_fn="orginal"), OptionError, "'original'"),
    (lambda: optim.Muon([leaf(3, 2)], ns_coefficients=(1.0,)), OptionError, "three"),
    (lambda: optim.Muon([leaf(3, 2)], ns_steps=-1), OptionError, "ns_steps"),
    (lambda: optim.Adafactor([gh.tensor([1j], requires_grad=True)]), Exception, "real param"),
    (lambda: optim.LBFGS([leaf(1)]).step(), Exception, "a closure; got NoneType"),
    (lambda: optim.LBFGS([leaf(1)], line_search_fn="wolfe"), OptionError, "'strong_wolfe'"),
    (lambda: optim.LBFGS([leaf(1)], max_iter=0), OptionError, "max_iter"),
    (lambda: optim.LBFGS([{"params": leaf(1)}, {"params": leaf(1)}]), OptionError, "one group"),
    (lambda: optim.LBFGS([leaf(1)]).load_state_dict(LBFGS_STATE), Exception, "'func_evals'"),
    (lambda: optim.NAdam([leaf(1)], momentum_decay=-1), OptionError, "momentum_decay"),
    (lambda: optim.Adadelta([leaf(1)], rho=1.5), OptionError, "rho"),
    (lambda: optim.Lion([leaf(1)], betas=(1.0, 0.9)), OptionError, "betas"),
    (lambda: optim.Sophia([leaf(1)], eps=0.0), OptionError, "eps"),
    (lambda: optim.Sophia([leaf(1)]).update_hessian(), OptionError, "got none"),
    (lambda: optim.Sophia([leaf(1)]).update_hessian(2), GradError, "sampled labels"),
    (lambda: optim.Sophia([leaf(1)]).update_hessian(estimates=[]), OptionError, "1 estimates"),
    (lambda: optim.Sophia([leaf(1)]).update_hessian(estimates=[leaf(2)]), ShapeError, r"\(1,\)"),
    (lambda: optim.Shampoo([leaf(1)], update_every=0), OptionError, "update_every"),
    (lambda: optim.AdamW([leaf(1)], differentiable=True), OptionError, "differentiable False"),
    (lambda: optim.SGD([leaf(1)], foreach="yes"), OptionError, "foreach"),
    (lambda: optim.SGD([("weight", leaf(1)), leaf(1)]), OptionError, "1 of 2"),
    (lambda: optim.SGD([leaf(1)]).register_step_pre_hook(3), Exception, "a function; got 3"),
]
LBFGS_STATE = {"state": {0: {"n_iter": 1}}, "param_groups": [{"params": [0]}]}


@pytest.mark.parametrize("number", range(len(BAD_CALLS)))
def test_bad_calls(number):
    call, error, text = BAD_CALLS[number]
    with pytest.raises(error, match=text):
        call()
