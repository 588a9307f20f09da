"""Ten programs after ideas of JAX's documentation, on both libraries: the text of a program is the
same, the modules that it gets are JAX's or ours. Losses are compared after the last step, and times
of `STEPS` steps, in turn, as ratios: ours over JAX's, compiled once before; without JAX
ours run alone. Others on the machine slow both: a ratio is the median of rounds in turn. JAX takes
all cores that it sees; `taskset -c 0` gives both sides one."""

import statistics
import time
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
from harness import parse_arguments, save, show

import glasshouse.jax as ours

STEPS, ROUNDS = 100, 5


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def trained(lib, loss, params, rate: float, steps: int):
    """(a step of gradient descent on a tree, its first state)."""
    jax = lib.jax

    @jax.jit
    def step(params):
        value, slopes = jax.value_and_grad(loss)(params)
        return value, jax.tree.map(lambda p, g: p - rate * g, params, slopes)

    return step, params


def perceptron(lib):
    """A perceptron of two layers on 512 digits of 64 pixels, by value_and_grad and tree.map."""
    jnp = lib.jnp
    x, labels = jnp.asarray(numbers(512, 64)), np.arange(512) % 10
    hot = jnp.asarray(np.eye(10, dtype=np.float32)[labels])
    params = {"w1": jnp.asarray(numbers(64, 128) * 0.1), "b1": jnp.zeros(128)}
    params |= {"w2": jnp.asarray(numbers(128, 10, seed=1) * 0.1), "b2": jnp.zeros(10)}

    def loss(p):
        hidden = lib.jax.nn.relu(x @ p["w1"] + p["b1"])
        logits = hidden @ p["w2"] + p["b2"]
        return -jnp.mean(jnp.sum(lib.jax.nn.log_softmax(logits) * hot, axis=1))

    return trained(lib, loss, params, 0.5, STEPS)


def equation(lib):
    """A neural differential equation: Runge-Kutta steps in a scan, and its gradient."""
    jnp, lax = lib.jnp, lib.lax
    start, goal = jnp.asarray(numbers(32, 2)), jnp.asarray(numbers(32, 2, seed=1))
    params = {"a": jnp.asarray(numbers(2, 16) * 0.5), "b": jnp.asarray(numbers(16, 2) * 0.5)}

    def loss(p):
        def field(y):
            return jnp.tanh(y @ p["a"]) @ p["b"]

        def step(y, _):
            k1 = field(y)
            k2 = field(y + 0.05 * k1)
            k3 = field(y + 0.05 * k2)
            k4 = field(y + 0.1 * k3)
            return y + (k1 + 2 * k2 + 2 * k3 + k4) * (0.1 / 6), None

        end, _ = lax.scan(step, start, None, length=20)
        return jnp.mean(jnp.square(end - goal))

    return trained(lib, loss, params, 0.1, STEPS)


def recurrent(lib):
    """A recurrent network by a scan over 30 steps."""
    jnp, lax = lib.jnp, lib.lax
    x, goal = jnp.asarray(numbers(30, 16, 8)), jnp.asarray(numbers(16, 32, seed=1) * 0.3)
    params = {"w": jnp.asarray(numbers(32, 32) * 0.1), "u": jnp.asarray(numbers(8, 32) * 0.3)}

    def loss(p):
        def step(h, row):
            h = jnp.tanh(h @ p["w"] + row @ p["u"])
            return h, h

        last, every = lax.scan(step, jnp.zeros((16, 32)), x)
        return jnp.mean(jnp.square(last - goal)) + 0.01 * jnp.mean(jnp.square(every))

    return trained(lib, loss, params, 0.5, STEPS)


def process(lib):
    """Regression with a Gaussian process: its evidence by a solution written as conjugate
    gradients."""
    jnp, lax = lib.jnp, lib.lax
    x = jnp.asarray(np.linspace(-2, 2, 60, dtype=np.float32))
    y = jnp.sin(3 * x)
    params = {"length": jnp.asarray(np.float32(0.0)), "noise": jnp.asarray(np.float32(-1.0))}

    def loss(p):
        gaps = (x[:, None] - x[None, :]) / jnp.exp(p["length"])
        k = jnp.exp(-0.5 * gaps * gaps) + jnp.exp(2 * p["noise"]) * jnp.eye(60)

        def step(_, state):
            a, r, d, old = state
            kd = k @ d
            rate = old / (d @ kd)
            a, r = a + rate * d, r - rate * kd
            new = r @ r
            return a, r, r + new / old * d, new

        zero = jnp.zeros(60)
        a = lax.fori_loop(0, 12, step, (zero, y, y, y @ y))[0]
        return 0.5 * (y @ a) / 60 + 0.01 * p["noise"] ** 2 + 0.01 * p["length"] ** 2

    return trained(lib, loss, params, 0.05, STEPS)


def chain(lib):
    """A Markov chain with given proposals, 200 moves of 64 walkers in a fori_loop; the loss is the
    mean energy."""
    jnp, lax = lib.jnp, lib.lax
    moves, luck = jnp.asarray(numbers(200, 64) * 0.5), jnp.asarray(np.abs(np.sin(numbers(200, 64))))

    def energy(x):
        return 0.25 * x**4 - x**2

    @lib.jax.jit
    def step(x):
        def move(i, x):
            new = x + moves[i]
            taken = luck[i] < jnp.exp(energy(x) - energy(new))
            return jnp.where(taken, new, x)

        x = lax.fori_loop(0, 200, move, x)
        return jnp.mean(energy(x)), x

    return step, jnp.zeros(64)


def per_sample(lib):
    """Gradients of each sample by vmap, clipped and averaged."""
    jnp, jax = lib.jnp, lib.jax
    x, y = jnp.asarray(numbers(128, 20)), jnp.asarray(numbers(128, seed=1))

    def one(w, x, y):
        return jnp.square(jnp.tanh(x @ w["a"]) @ w["b"] - y)

    @jax.jit
    def step(w):
        losses, slopes = jax.vmap(jax.value_and_grad(one), in_axes=(None, 0, 0))(w, x, y)
        squares = sum(
            jnp.sum(jnp.square(g.reshape((128, -1))), axis=1) for g in jax.tree.leaves(slopes)
        )
        scale = jnp.minimum(1.0, 1.0 / jnp.sqrt(squares + 1e-6))

        def update(w, g):
            return w - 0.1 * jnp.tensordot(scale, g, 1) / 128

        return jnp.mean(losses), jax.tree.map(update, w, slopes)

    return step, {"a": jnp.asarray(numbers(20, 16) * 0.3), "b": jnp.asarray(numbers(16) * 0.3)}


def clipped(lib):
    """A custom backward pass that clips gradients between layers."""
    jnp, jax = lib.jnp, lib.jax
    x, y = jnp.asarray(numbers(64, 32)), jnp.asarray(numbers(64, 1, seed=1))

    @jax.custom_vjp
    def clip(x):
        return x

    clip.defvjp(lambda x: (x, None), lambda _, g: (jnp.clip(g, -0.01, 0.01),))
    params = [jnp.asarray(numbers(32, 32, seed=i) * 0.2) for i in range(3)]
    params.append(jnp.asarray(numbers(32, 1) * 0.2))

    def loss(p):
        h = x
        for w in p[:-1]:
            h = clip(jnp.tanh(h @ w))
        return jnp.mean(jnp.square(h @ p[-1] - y))

    return trained(lib, loss, params, 0.1, STEPS)


def newton(lib):
    """Newton's method without matrices: Hessian-vector products in conjugate gradients."""
    jnp, jax, lax = lib.jnp, lib.jax, lib.lax
    x, y = jnp.asarray(numbers(200, 30)), jnp.asarray((numbers(200, seed=1) > 0).astype(np.float32))

    def loss(w):
        z = x @ w
        return jnp.mean(jnp.logaddexp(z, 0.0) - y * z) + 0.01 * (w @ w)

    @jax.jit
    def step(w):
        value, slope = jax.value_and_grad(loss)(w)

        def product(v):
            return jax.jvp(jax.grad(loss), (w,), (v,))[1]

        def solve(_, state):
            a, r, d, old = state
            hd = product(d)
            rate = old / (d @ hd + 1e-20)
            a, r = a + rate * d, r - rate * hd
            new = r @ r
            return a, r, r + new / (old + 1e-20) * d, new

        zero = jnp.zeros(30)
        a = lax.fori_loop(0, 10, solve, (zero, slope, slope, slope @ slope))[0]
        return value, w - 0.1 * a

    return step, jnp.zeros(30)


def convolution(lib):
    """A small convolutional network by lax.conv_general_dilated."""
    jnp, jax, lax = lib.jnp, lib.jax, lib.lax
    x, labels = jnp.asarray(numbers(32, 1, 16, 16)), np.arange(32) % 10
    hot = jnp.asarray(np.eye(10, dtype=np.float32)[labels])
    params = {
        "c1": jnp.asarray(numbers(8, 1, 3, 3) * 0.3),
        "c2": jnp.asarray(numbers(16, 8, 3, 3) * 0.1),
    }
    params["w"] = jnp.asarray(numbers(256, 10) * 0.1)

    def loss(p):
        h = jax.nn.relu(lax.conv_general_dilated(x, p["c1"], (2, 2), "SAME"))
        h = jax.nn.relu(lax.conv_general_dilated(h, p["c2"], (2, 2), "SAME"))
        logits = jnp.reshape(h, (32, -1)) @ p["w"]
        return -jnp.mean(jnp.sum(jax.nn.log_softmax(logits) * hot, axis=1))

    return trained(lib, loss, params, 0.05, STEPS)


def implicit(lib):
    """A root by a while_loop, and its derivative by the implicit function theorem."""
    jnp, jax, lax = lib.jnp, lib.jax, lib.lax
    goal = jnp.asarray(np.linspace(0.5, 1.5, 64, dtype=np.float32))

    def cosine(a, z):
        return z - a * jnp.cos(z)

    @jax.custom_vjp
    def root(a):
        def going(state):
            z, gap, count = state
            return (jnp.max(jnp.abs(gap)) > 1e-6) & (count < 50)

        def move(state):
            z, _, count = state
            gap = cosine(a, z) / (1 + a * jnp.sin(z))
            return z - gap, gap, count + 1

        return lax.while_loop(going, move, (a * 0, a * 0 + 1, jnp.asarray(0)))[0]

    def forward(a):
        z = root(a)
        return z, (a, z)

    def backward(saved, g):
        a, z = saved
        return (g * jnp.cos(z) / (1 + a * jnp.sin(z)),)

    root.defvjp(forward, backward)

    def loss(a):
        return jnp.mean(jnp.square(root(a) - goal))

    return trained(lib, loss, jnp.asarray(np.full(64, 0.7, np.float32)), 1.0, STEPS)


PROGRAMS = [perceptron, equation, recurrent, process, chain, per_sample, clipped, newton,
            convolution, implicit]  # fmt: skip


def libraries() -> dict:
    """The modules that a program gets, of ours, and of JAX where it is."""
    sides = {"ours": SimpleNamespace(jax=ours, jnp=ours.numpy, lax=ours.lax)}
    if find_spec("jax"):
        theirs = import_module("jax")
        numpy, lax = import_module("jax.numpy"), import_module("jax.lax")
        sides["jax"] = SimpleNamespace(jax=theirs, jnp=numpy, lax=lax)
    return sides


def run(step, state, steps: int) -> tuple[float, float]:
    """(seconds, the last loss) of so many steps."""
    begin = time.perf_counter()
    for _ in range(steps):
        value, state = step(state)
    loss = float(value)
    return time.perf_counter() - begin, loss


def compared(program, sides: dict, steps: int, rounds: int) -> dict:
    """Losses and times of a program on each side, and ours over JAX's."""
    results = {side: program(lib) for side, lib in sides.items()}
    losses = {side: run(*both, steps)[1] for side, both in results.items()}
    times: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(rounds):
        for side, both in results.items():
            times[side].append(run(*both, steps)[0] / steps)
    result = {"losses": losses, "step_s": {s: statistics.median(x) for s, x in times.items()}}
    if "jax" in sides:
        pairs = zip(times["ours"], times["jax"], strict=True)
        result["ratio"] = statistics.median(a / b for a, b in pairs)
        result["off"] = abs(losses["ours"] / losses["jax"] - 1)
    return result


def main() -> None:
    options = parse_arguments(__doc__)
    steps, rounds = (3, 1) if options.smoke else (STEPS, ROUNDS)
    sides, results, rows = libraries(), {}, []
    for program in PROGRAMS:
        one = results[program.__name__] = compared(program, sides, steps, rounds)
        each = [f"{one['step_s'][side] * 1e6:.0f} µs" for side in sides]
        last = [f"{one['off']:.2%}", f"{one['ratio']:.2f}"] if "jax" in sides else []
        rows.append([program.__name__, f"{one['losses']['ours']:.5f}", *each, *last])
    head = ["program", "loss", *sides, "off JAX's", "ours over JAX"][: len(rows[0])]
    show("Programs of JAX", head, rows, f"{steps} steps, median of {rounds} rounds in turn")
    print(save("jax_programs", results, options))


if __name__ == "__main__":
    main()
