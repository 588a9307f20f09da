"""Generated from the cards: forwards on every backend first, then every derivative and batching."""

import itertools
import re

import numpy as np
import pytest
from cases import (
    BACKENDS,
    TOLERANCE,
    cases,
    cases_of,
    comparable,
    differentiable,
    draw,
    is_double,
    numeric_gradient,
    outputs,
    scalar_of,
    smooth,
    spec_of,
    tracked,
    weights_for,
)

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.base.shape import Spec
from glasshouse.dispatch import Mode, Rule, primitives
from glasshouse.dispatch.value import as_value


@pytest.fixture(autouse=True)
def computed_by_references():
    """Compute by references; test_compiled_cards.py compares compiled results with these."""
    with flags.override(compile="never"):
        yield


FORM = re.compile(r"^[\w. ]+: expected .*; got .*\. \S.*\.$", re.S)
ALL = list(primitives.values())
names = [card.name for card in ALL]


def close(got, expected, dtype, factor=1.0, message=""):
    """Assert equality within the dtype's tolerance."""
    tolerance = TOLERANCE.get(dtype, 1e-10) * factor
    got, expected = (np.asarray(v) for v in (got, expected))
    if got.dtype.kind == "V" or got.dtype.name == "bfloat16":
        got, expected = got.astype(np.float32), np.asarray(expected, np.float32)
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance, err_msg=message)


# -- the cards themselves -----------------------------------------------------------------


def test_there_are_about_seventy_cards_and_a_few_of_many_processes():
    of_ranks = [card for card in ALL if card.kind == "collective"]
    assert 60 <= len(ALL) - len(of_ranks) <= 76
    assert len(of_ranks) <= 8


@pytest.mark.parametrize("card", ALL, ids=names)
def test_card_is_complete(card):
    assert card.doc.endswith(".") and card.why and card.source and card.kind and card.dtypes
    assert card.samples and card.error_samples or card.name in ("constant",)
    assert callable(card.infer) and callable(card.ref) and callable(card.batch)
    if card.vjp is not None:
        assert card.jvp is not None, "a vjp without a jvp"
        assert any(d.is_inexact for d in card.dtypes)


@pytest.mark.parametrize("card", ALL, ids=names)
def test_every_dtype_has_a_sample(card):
    assert {case.dtype for case in cases_of(card)} == {dtype.name for dtype in card.dtypes}


@pytest.mark.parametrize("card", ALL, ids=names)
def test_costs_are_counts(card):
    for case in cases_of(card):
        specs = [spec_of(a) for a in case.arrays()]
        for count in (card.flops(*specs, **case.attrs), card.bytes(*specs, **case.attrs)):
            assert isinstance(count, int) and count >= 0, case


@pytest.mark.parametrize("card", ALL, ids=names)
def test_wrong_operands_are_refused(card):
    for sample in card.error_samples:
        rng = np.random.default_rng(0)
        args = [a.fill(rng, sample.dtype) if hasattr(a, "fill") else a for a in sample.args]
        with pytest.raises(sample.error, match=re.escape(sample.text)) as caught:
            result = card(*map(as_value, args), **sample.attrs)
            outputs(result)[0].numpy()  # errors that depend on contents come when they are read
        assert FORM.match(str(caught.value)), str(caught.value)


# -- forwards ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("card", ALL, ids=names)
def test_forward(card, name):
    for case in cases_of(card):
        check_forward(case, name)


def check_forward(case, name):
    arrays = case.arrays()
    backend = gh.backends.load(name)
    with np.errstate(all="ignore"):
        expected = outputs(case.card.ref(*arrays, **case.attrs))
    data = [backend.from_numpy(a) for a in arrays]
    got = outputs(backend.kernels[case.card.name](*data, **case.attrs))
    specs = outputs(case.card.infer(*map(spec_of, arrays), **case.attrs))
    for y, spec in zip(got, specs, strict=True):
        assert backend.spec_of(y) == spec, f"{case!r} on {name}: inferred {spec}"
    got = comparable(case, tuple(map(backend.to_numpy, got)))
    for y, e in zip(got, comparable(case, expected), strict=True):
        close(y, e, case.dtype, message=f"{case!r} on {name}")


# -- gradients -----------------------------------------------------------------------------


@pytest.mark.parametrize("case", differentiable(("float64", "complex128")), ids=repr)
def test_vjp_is_the_difference_quotient(case):
    arrays = case.arrays()
    weights = weights_for(case, arrays)
    for i in tracked(case):

        def fn(x, i=i):
            return scalar_of(case, weights, *arrays[:i], x, *arrays[i + 1 :])

        got = gh.grad(fn)(as_value(arrays[i])).numpy()
        numeric = numeric_gradient(fn, arrays[i])
        np.testing.assert_allclose(got, numeric, rtol=2e-5, atol=2e-6, err_msg=case.card.name)


@pytest.mark.parametrize("case", differentiable(("float64", "complex128")), ids=repr)
def test_jvp_is_the_difference_quotient(case):
    """Along random tangents of all operands at once."""
    arrays, places = case.arrays(), tracked(case)
    rng = np.random.default_rng(4)
    tangents = [draw(rng, a) if i in places else None for i, a in enumerate(arrays)]

    def fn(*xs):
        full = list(arrays)
        for i, x in zip(places, xs, strict=True):
            full[i] = x
        return tuple(smooth(case, case.bind(*full)))

    def moved(by):
        return fn(*[arrays[i] + by * tangents[i] for i in places])

    primals = tuple(as_value(arrays[i]) for i in places)
    got = gh.jvp(fn, primals, tuple(as_value(tangents[i]) for i in places))[1]
    eps = 1e-6
    for t, up, down in zip(got, moved(eps), moved(-eps), strict=True):
        quotient = (up.numpy() - down.numpy()) / (2 * eps)
        np.testing.assert_allclose(
            t.numpy(), quotient, rtol=2e-5, atol=2e-6, err_msg=case.card.name
        )


@pytest.mark.parametrize("case", differentiable(("float64", "complex128")), ids=repr)
def test_jvp_agrees_with_vjp(case):
    """<w, J t> == <Jᵀ w, t> for random w and t, all operands at once."""
    arrays, places = case.arrays(), tracked(case)
    weights = weights_for(case, arrays)
    rng = np.random.default_rng(5)
    tangents = [draw(rng, arrays[i]) for i in places]

    def fn(*xs):
        full = list(arrays)
        for i, x in zip(places, xs, strict=True):
            full[i] = x
        return scalar_of(case, weights, *full)

    primals = tuple(as_value(arrays[i]) for i in places)
    forward = gh.jvp(fn, primals, tuple(map(as_value, tangents)))[1].item()
    grads = gh.grad(fn, argnums=tuple(range(len(places))))(*primals)
    reverse = sum(
        np.sum((np.conj(g.numpy()) * t).real) for g, t in zip(grads, tangents, strict=True)
    )
    assert forward == pytest.approx(reverse, rel=1e-8, abs=1e-9), case.card.name


@pytest.mark.parametrize("case", differentiable(("float64", "complex128")), ids=repr)
def test_second_derivative_is_the_difference_quotient(case):
    arrays, places = case.arrays(), tracked(case)
    weights = weights_for(case, arrays)
    rng = np.random.default_rng(6)
    directions = [draw(rng, arrays[i]) for i in places]

    def slope(*xs):
        """The gradient along `directions`, which is nonlinear in every operand."""

        def fn(*inner):
            full = list(arrays)
            for i, x in zip(places, inner, strict=True):
                full[i] = x
            return scalar_of(case, weights, *full)

        grads = gh.grad(fn, argnums=tuple(range(len(places))))(*xs)
        parts = zip(grads, directions, strict=True)
        return sum((gh.sum(gh.real(gh.conj(as_value(d)) * g)) for g, d in parts), gh.asarray(0.0))

    for k, i in enumerate(places):

        def along(x, k=k):
            return slope(*[as_value(x if j == k else arrays[p]) for j, p in enumerate(places)])

        got = gh.grad(along)(as_value(arrays[i])).numpy()
        numeric = numeric_gradient(along, arrays[i], eps=1e-5)
        np.testing.assert_allclose(got, numeric, rtol=1e-4, atol=1e-4, err_msg=case.card.name)


def empty():
    """Differentiable cases in which some floating operand has no elements."""
    results = [c for c in cases(("float64",)) if c.card.vjp is not None and is_double(c)]
    return [c for c in results if any(a.size == 0 and a.dtype.kind == "f" for a in c.arrays())]


@pytest.mark.parametrize("case", empty(), ids=repr)
def test_gradients_with_respect_to_nothing(case):
    arrays = [gh.asarray(a) for a in case.arrays()]
    for i, x in enumerate(arrays):
        if x.dtype.is_inexact and case.card.vjp_rule(i) is not None:
            x.requires_grad_()
    sum((gh.sum(y) for y in smooth(case, case.bind(*arrays))), gh.asarray(0.0)).backward()
    for x in arrays:
        assert not x.requires_grad or x.grad.spec == x.spec, case.card.name


@pytest.mark.parametrize("case", differentiable(), ids=repr)
def test_gradient_while_recording_is_the_gradient(case):
    class Record(Mode):
        def __init__(self):
            self.calls = []

        def process(self, primitive, args, attrs, below):
            self.calls.append(primitive.name)
            return below(primitive, args, attrs)

    arrays, i = case.arrays(), tracked(case)[0]
    weights = weights_for(case, arrays)

    def fn(x):
        return scalar_of(case, weights, *arrays[:i], x, *arrays[i + 1 :])

    plain = gh.grad(fn)(as_value(arrays[i])).numpy()
    with Record() as outside:
        recorded = gh.grad(fn)(as_value(arrays[i])).numpy()

    def recorded_inside(x):
        with Record():
            return fn(x)

    np.testing.assert_array_equal(recorded, plain)
    np.testing.assert_array_equal(gh.grad(recorded_inside)(as_value(arrays[i])).numpy(), plain)
    assert case.card.name in outside.calls


# -- batching ------------------------------------------------------------------------------


def batchable():
    chosen = ("float64", "int64", "bool", "uint32", "complex128")
    return [c for c in cases(chosen) if c.arrays() and c.dtype in chosen]


def stacked(case, batched, size):
    """Operands with a batch axis where `batched`, and the operands of each example."""
    fills = [case.sample.fill(np.random.default_rng(50 + k), case.dtype) for k in range(size)]
    first = case.arrays()
    if case.card.kind == "index":  # indices and shapes stay valid, whatever the draw
        fills = [
            [f if b else a for f, a, b in zip(fill, first, batched, strict=True)] for fill in fills
        ]
    args = [np.stack([f[i] for f in fills]) if b else first[i] for i, b in enumerate(batched)]
    examples = [[f[i] if b else first[i] for i, b in enumerate(batched)] for f in fills]
    return args, examples


@pytest.mark.parametrize("case", batchable(), ids=repr)
def test_vmap_is_the_loop(case):
    n = len(case.arrays())
    for batched in itertools.product((False, True), repeat=n):
        if not any(batched):
            continue
        args, examples = stacked(case, batched, 3)
        axes = tuple(0 if b else None for b in batched)
        got = outputs(gh.vmap(lambda *xs: case.bind(*xs), in_axes=axes)(*map(as_value, args)))
        got = comparable(case, tuple(y.numpy() for y in got))
        loop = [outputs(case.bind(*example)) for example in examples]
        loop = [comparable(case, tuple(y.numpy() for y in one)) for one in loop]
        for y, expected in zip(got, zip(*loop, strict=True), strict=True):
            close(y, np.stack(expected), case.dtype, 10, f"{case.card.name} batched {batched}")


@pytest.mark.parametrize("case", differentiable(), ids=repr)
def test_gradient_under_vmap_is_the_loop(case):
    places = tracked(case)
    weights = weights_for(case, case.arrays())
    batched = tuple(i in places for i in range(len(case.arrays())))
    args, examples = stacked(case, batched, 2)
    axes = tuple(0 if b else None for b in batched)
    gradient = gh.grad(lambda *xs: scalar_of(case, weights, *xs), argnums=tuple(places))
    got = gh.vmap(gradient, in_axes=axes)(*map(as_value, args))
    loop = [gradient(*map(as_value, example)) for example in examples]
    for k, g in enumerate(got):
        expected = np.stack([one[k].numpy() for one in loop])
        np.testing.assert_allclose(
            g.numpy(), expected, rtol=1e-8, atol=1e-9, err_msg=case.card.name
        )


# -- what is kept for backward --------------------------------------------------------------


@pytest.mark.parametrize("case", differentiable(), ids=repr)
def test_rules_get_specs_for_what_they_do_not_read(case):
    """The tape keeps just the operands that some needed rule names without an underscore."""
    arrays = [as_value(a) for a in case.arrays()]
    places = tracked(case)
    for i in places:
        arrays[i].requires_grad_()
    result = outputs(case.bind(*arrays))
    node = next(y.tape_entry for y in result if y.tape_entry is not None)
    needs = tuple(a.tape_entry is not None for a in arrays)
    rules = [case.card.vjp_rule(i) for i in places]
    assert all(isinstance(rule, Rule) for rule in rules)
    for i, saved in enumerate(node.saved):
        read = any(rule.reads_operand(i) for rule in rules)
        assert (saved is not None) == read, f"{case.card.name}: operand {i}"
        if not read:
            assert isinstance(node.revive(saved, node.call.specs[i], None, False), Spec)
    assert (node.saved_out[0] is not None) == any(rule.reads_y for rule in rules)
    assert case.card.kept(needs)[1] == tuple(s is not None for s in node.saved)
