"""gh.scan: the same as its step called in a Python loop, in all that a loop can be put to."""

import functools

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.base.tree import flatten, unflatten
from glasshouse.compile.programs import program
from glasshouse.graph import record

LENGTH = 5


def unrolled(step, init, xs, reverse=False):
    """The slow clear twin."""
    leaves, treedef = flatten(xs)
    carry, outputs = init, []
    for t in reversed(range(LENGTH)) if reverse else range(LENGTH):
        carry, y = step(carry, unflatten(treedef, [x[t] for x in leaves]))
        outputs.append(y)
    outputs = outputs[::-1] if reverse else outputs
    stacked = [gh.stack(list(ys)) for ys in zip(*(flatten(y)[0] for y in outputs))]
    return carry, unflatten(flatten(outputs[0])[1], stacked)


def call_by_call(fn, *args):
    """fn of the twin: nothing of it is compiled."""
    with gh.backends.use("numpy"):
        return fn(*args)


def recurrent(w, h, x):
    h = gh.tanh(h @ w + x)
    return h, h * h


def gated(w, carry, x):
    h, c = carry
    z = x[0] @ w + h @ w.T
    c = c / (1 + gh.exp(-z)) + gh.tanh(x[1])
    h = gh.tanh(c) * gh.where(z > 0, z, z * 0.3)
    return (h, c), (h, c * c)


def swapped(w, carry, x):
    """Each carried value becomes the other; one passes the input on."""
    a, b = carry
    return (b * w.sum(), a), x


def attending(w, total, x):
    """Softmax over a constant: what is max-shifted is detached."""
    p = gh.nn.functional.softmax(x @ w, dim=-1)
    return total + p.sum(), p @ w


def nested(w, h, x):
    inner = gh.scan(lambda s, row: (gh.sin(s + row), s * row), h[0], x @ w)
    return h + inner[0], inner[1]


A = (3, 3)
STEPS = {
    "recurrent": (recurrent, (A,), A),
    "gated": (gated, (A, A), (A, A)),
    "swapped": (swapped, (A, A), A),
    "attending": (attending, ((),), A),
    "nested": (nested, (A,), A),
}


def values_of(name: str):
    step, init, xs = STEPS[name]
    rng = np.random.default_rng(0)

    def make(shape, lead=()):
        return gh.asarray(rng.normal(size=(*lead, *shape)).astype(np.float32))

    is_pair = isinstance(xs[0], tuple)
    carry = tuple(map(make, init))
    per_step = tuple(make(x, (LENGTH,)) for x in (xs if is_pair else (xs,)))
    w = make(A)

    def total(loop, w, carry, per_step):
        """A number to which every result of a loop contributes."""
        state = carry if len(carry) > 1 else carry[0]
        last, ys = loop(functools.partial(step, w), state, per_step if is_pair else per_step[0])
        parts = [*flatten(last)[0], *flatten(ys)[0]]
        return sum((p * p * (i + 1)).sum() for i, p in enumerate(parts))

    return total, w, carry, per_step


@pytest.fixture
def on(request):
    """A backend; Programs are compiled at once."""
    with flags.override(compile="always"), gh.backends.use(request.param):
        yield request.param


def same(ours, theirs, tolerance=2e-5):
    for a, b in zip(flatten(ours)[0], flatten(theirs)[0], strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=tolerance, atol=tolerance)


on_both = pytest.mark.parametrize("on", ["numpy", "lazy"], indirect=True)
each_step = pytest.mark.parametrize("name", STEPS)


@on_both
@each_step
@pytest.mark.parametrize("reverse", [False, True])
def test_results_are_those_of_a_loop(on, name, reverse):
    total, w, carry, xs = values_of(name)
    ours = total(functools.partial(gh.scan, reverse=reverse), w, carry, xs)
    twin = functools.partial(unrolled, reverse=reverse)
    same(ours, call_by_call(total, twin, w, carry, xs))


@on_both
@each_step
@pytest.mark.parametrize("recompute", [False, True])
def test_gradients_are_those_of_a_loop(on, name, recompute):
    total, *gradients = values_of(name)
    loop = functools.partial(gh.scan, recompute=recompute)
    ours = gh.grad(functools.partial(total, loop), argnums=(0, 1, 2))(*gradients)
    twin = gh.grad(functools.partial(total, unrolled), argnums=(0, 1, 2))
    same(ours, call_by_call(twin, *gradients))


@on_both
@each_step
def test_tangents_are_those_of_a_loop(on, name):
    total, w, carry, xs = values_of(name)
    tangents = (w * 0.5, tuple(c * 2 for c in carry), tuple(x * x for x in xs))
    ours = gh.jvp(functools.partial(total, gh.scan), (w, carry, xs), tangents)
    twin = functools.partial(total, unrolled)
    same(ours, call_by_call(gh.jvp, twin, (w, carry, xs), tangents), 1e-4)


@on_both
@each_step
def test_second_derivatives_are_those_of_a_loop(on, name):
    total, w, carry, xs = values_of(name)

    def curvature(loop):
        first = gh.grad(lambda w, xs: total(loop, w, carry, xs), argnums=(0, 1))
        return gh.grad(lambda w: sum((g * g).sum() for g in flatten(first(w, xs))[0]))(w)

    same(curvature(gh.scan), call_by_call(curvature, unrolled), 2e-3)


@on_both
@each_step
def test_a_batch_is_one_loop(on, name):
    total, w, carry, xs = values_of(name)
    many = gh.stack([w, w * 2, -w])

    def one(loop, w, x):
        return gh.grad(functools.partial(total, loop))(w, carry, (x, *xs[1:]))

    shifts = gh.stack([xs[0], xs[0] + 1, xs[0] * 2])
    ours = gh.vmap(functools.partial(one, gh.scan))(many, shifts)
    rows = [call_by_call(one, unrolled, many[i], shifts[i]).numpy() for i in range(3)]
    same(ours, gh.asarray(np.stack(rows)), 1e-3)


@pytest.mark.parametrize("directions", [1, 4])
def test_what_a_batch_does_not_reach_is_computed_once(directions):
    """Tangents in several directions: the loop's values, and those beside the tangents, cost what
    they cost for one direction."""
    rng = np.random.default_rng(0)
    w, h = gh.asarray(rng.normal(size=(4, 4))), gh.asarray(rng.normal(size=(4, 1)))
    tangents = gh.asarray(rng.normal(size=(directions, 4, 1)))

    def along(loop, t):
        def last(h):
            carry, value = loop(
                lambda h, x: (gh.tanh(w @ h + x), h * x), h, gh.arange(LENGTH) * 0.1
            )
            return gh.concat([carry, value.sum(0)])

        return gh.jvp(last, (h,), (t,))[1]

    with gh.FlopCounter() as counter:
        ours = gh.vmap(functools.partial(along, gh.scan))(tangents)
    assert counter.total() == (2 + directions) * LENGTH * 2 * 16
    rows = [call_by_call(along, unrolled, t).numpy() for t in tangents]
    same(ours, gh.asarray(np.stack(rows)), 1e-9)


def test_a_hessian_through_a_loop_computes_its_values_a_few_times_whatever_the_directions():
    """Products of a step: one forward, one backward. Each loop and that of its tangents have one
    more for their values, and one for each direction."""
    rng = np.random.default_rng(0)
    w, h = gh.asarray(rng.normal(size=(4, 4))), gh.asarray(rng.normal(size=4))

    def total(loop, h):
        carry, value = loop(lambda h, x: (gh.tanh(w @ h + x), h * x), h, gh.arange(LENGTH) * 0.1)
        return (carry**2).sum() + value.sum()

    with gh.FlopCounter() as counter:
        ours = gh.hessian(functools.partial(total, gh.scan))(h)
    assert counter.total() == (4 + 2 * h.size) * LENGTH * 2 * 16
    same(ours, call_by_call(gh.hessian(functools.partial(total, unrolled)), h), 1e-9)


def test_a_batch_reaches_what_is_carried_by_way_of_other_steps():
    """a gets its batch from b, which gets it from c, which is batched."""

    def last(loop, c):
        def step(carry, x):
            a, b, c, d = carry
            return (a + b, b * 2 + c, c, d + x), (a * d, d)

        carry = gh.ones(3), gh.ones(3), c, gh.zeros(3)
        (a, b, c, d), (value, ds) = loop(step, carry, gh.ones((LENGTH, 3)))
        return a * d + b + c, value, ds

    many = gh.asarray([[1.0, 2.0, 3.0], [0.5, -1.0, 0.0]])
    ours = gh.vmap(functools.partial(last, gh.scan))(many)
    for i in range(2):
        for got, expected in zip(ours, call_by_call(last, unrolled, many[i]), strict=True):
            same(got[i], expected, 1e-6)


@each_step
def test_a_loop_runs_in_kernels(name):
    total, w, carry, xs = values_of(name)
    with flags.override(compile="always", strict=True), gh.backends.use("lazy"):  # else refused
        gh.eval(gh.grad(functools.partial(total, gh.scan))(w, carry, xs))


def test_a_loop_of_much_work_is_compiled_though_few_calls_are_recorded(monkeypatch):
    monkeypatch.setattr(flags, "compile", "auto")
    gh.backends.current().evaluate()
    w = gh.zeros((100, 100))
    last, _ = gh.scan(lambda h, _: (gh.tanh(h @ w), None), gh.zeros((100, 100)), length=2000)
    entry = program.entry_of(record.describe(record.recorder.pending))
    last.numpy()
    assert entry.program is not None


@pytest.mark.slow
def test_the_tape_goes_through_a_loop():
    total, w, carry, xs = values_of("gated")
    for loop in (gh.scan, unrolled):
        w.requires_grad_()
        w.grad = None
        total(loop, w, carry, xs).backward()
        if loop is gh.scan:
            ours = w.grad
    same(ours, w.grad)


def test_what_a_step_closes_over_may_be_a_scalar_that_varies():
    def scaled(factor):
        return gh.scan(lambda c, x: (c * factor + x, None), gh.asarray(1.0), gh.ones(3))[0].item()

    assert [scaled(0.1), scaled(0.2)] == pytest.approx([1.111, 1.248])


def test_a_loop_without_values_has_a_length():
    last, ys = gh.scan(lambda c, _: (c * 2, c), gh.asarray(1), length=6)
    assert (last.item(), ys.tolist()) == (64, [1, 2, 4, 8, 16, 32])


def test_a_loop_of_no_steps_gives_what_it_began_with():
    last, ys = gh.scan(lambda c, x: (c + x, c), gh.asarray(2.0), gh.zeros((0,)))
    assert last.item() == 2 and ys.shape == (0,)


def test_autocast_goes_on_inside():
    w, x = gh.ones((4, 4)), gh.ones((3, 4, 4))
    with gh.autocast("bfloat16"):
        _, ys = gh.scan(lambda c, x: (c, x @ w), gh.asarray(0.0), x)
    assert ys.dtype is gh.bfloat16


def test_detached_values_stop_gradients():
    def total(w):
        return gh.scan(lambda c, x: (c + w.detach() * x * w, None), gh.asarray(0.0), gh.ones(3))[0]

    assert gh.grad(total)(gh.asarray(2.0)).item() == 6


def test_work_is_counted_as_in_a_loop():
    total, w, carry, xs = values_of("recurrent")
    counts = []
    for loop in (gh.scan, unrolled):
        with gh.FlopCounter() as counter:
            gh.eval(
                *flatten(gh.grad(functools.partial(total, loop), argnums=(0, 1))(w, carry, xs))[0]
            )
        counts.append(counter.by_phase())
    assert counts[0] == counts[1]
    assert counts[0]["backward"] == 2 * counts[0]["forward"] > 0


def test_what_is_computed_again_is_counted_apart():
    total, w, carry, xs = values_of("recurrent")
    with gh.FlopCounter() as counter:
        gh.eval(
            gh.grad(functools.partial(total, functools.partial(gh.scan, recompute=True)))(
                w, carry, xs
            )
        )
    forward = counter.total(phase="forward")
    assert counter.by_phase(column="executed")["recompute"] == forward
    assert counter.total() == 3 * forward


def test_a_users_function_replaces_a_card_inside_too():
    def tanh(x):
        return np.full_like(x, 3)

    with gh.backends.use("lazy") as backend, backend.replace("tanh", tanh):
        last, _ = gh.scan(lambda c, x: (gh.tanh(c + x), None), gh.asarray(0.0), gh.ones(2))
        assert last.item() == 3


@on_both
def test_random_numbers_differ_from_step_to_step(on):
    def draw(s, _):
        return s, gh.random.uniform((4,))

    def outer(s, _):
        return gh.scan(draw, s, length=3)

    gh.random.seed(0)
    samples = gh.scan(outer, (), length=3)[1]
    assert len(set(samples.numpy().ravel().tolist())) == 36


@on_both
def test_dropout_is_the_same_backwards(on):
    def total(x, recompute):
        gh.random.seed(0)
        drop = functools.partial(gh.nn.functional.dropout, p=0.5)
        _, ys = gh.scan(lambda s, _: (s, drop(x)), (), length=4, recompute=recompute)
        return ys.sum()

    x = gh.ones((8, 8))
    for recompute in (False, True):
        value, grad = gh.value_and_grad(functools.partial(total, recompute=recompute))(x)
        assert value.item() == grad.sum().item()
        assert len(set(grad.numpy().ravel().tolist())) > 2


def test_captured_code_has_a_loop():
    total, w, carry, xs = values_of("gated")

    @gh.optimize
    def step(w):
        return gh.grad(functools.partial(total, gh.scan))(w, carry, xs)

    same(step(w), gh.grad(functools.partial(total, unrolled))(w, carry, xs))


BAD = {
    "carry": (lambda c, x: (c[None], x), ShapeError := gh.ShapeError, "carries"),
    "dtype": (lambda c, x: (c.to(gh.float64), x), gh.DTypeError, "carries"),
    "tree": (lambda c, x: ((c, c), x), ShapeError, "structured"),
    "result": (lambda c, x: c, gh.DTypeError, "return carry, y"),
    "contents": (lambda c, x: (c if c.sum() > 0 else x, x), gh.TransformError, "gh.where"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_step_is_refused(name):
    step, error, text = BAD[name]
    with pytest.raises(error, match=text):
        gh.scan(step, gh.ones(2), gh.ones((3, 2)))


@pytest.mark.parametrize("options", [{}, {"xs": (gh.ones(2), gh.ones(3))}, {"xs": gh.asarray(1.0)}])
def test_steps_have_to_have_one_number(options):
    with pytest.raises(gh.ShapeError, match="one length along axis 0"):
        gh.scan(lambda c, x: (c, x), gh.ones(2), **options)
