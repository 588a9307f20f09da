"""Every sample of every card on the default backend, compiled: one Program for all of a kind.

Results are compared with the cards' references, derivatives and batched calls with what references
make of the same calls, which `test_cards.py` compares with difference quotients and loops."""

import numpy as np
import pytest
from cases import (
    Case,
    cases,
    comparable,
    differentiable,
    draw,
    outputs,
    scalar_of,
    smooth,
    tracked,
    weights_for,
)
from test_cards import batchable, close, stacked

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.compile.lowering.missing_kernels import ALWAYS_WRITTEN
from glasshouse.dispatch import primitives
from glasshouse.dispatch.value import as_value

KINDS = sorted({card.kind for card in primitives.values()})


def forward(case: Case) -> list:
    return list(outputs(case.bind(*case.arrays())))


def partial_at(case: Case):
    """(the smooth results as one number, of the tracked operands; those operands)."""
    arrays, places = case.arrays(), tracked(case)
    weights = weights_for(case, arrays)

    def fn(*xs):
        full = list(arrays)
        for i, x in zip(places, xs, strict=True):
            full[i] = x
        return scalar_of(case, weights, *full)

    return fn, [as_value(arrays[i]) for i in places]


def gradient(case: Case) -> list:
    fn, xs = partial_at(case)
    return list(gh.grad(fn, argnums=tuple(range(len(xs))))(*xs))


def tangent(case: Case) -> list:
    fn, xs = partial_at(case)
    rng = np.random.default_rng(4)
    return [gh.jvp(fn, tuple(xs), tuple(as_value(draw(rng, x)) for x in xs))[1]]


def second_derivative(case: Case) -> list:
    """Of the gradient along random directions."""
    fn, xs = partial_at(case)
    numbers = tuple(range(len(xs)))
    rng = np.random.default_rng(6)
    directions = [as_value(draw(rng, x)) for x in xs]

    def along(*xs):
        grads = zip(gh.grad(fn, argnums=numbers)(*xs), directions, strict=True)
        return sum((gh.sum(gh.real(gh.conj(d) * g)) for g, d in grads), gh.asarray(0.0))

    return list(gh.grad(along, argnums=numbers)(*xs))


def batched(case: Case) -> list:
    """All operands batched."""
    args, _ = stacked(case, (True,) * len(case.arrays()), 3)
    got = outputs(gh.vmap(case.bind)(*map(as_value, args)))
    return smooth(case, got) or list(got)


def batched_gradient(case: Case) -> list:
    places, weights = tracked(case), weights_for(case, case.arrays())
    at = tuple(i in places for i in range(len(case.arrays())))
    args, _ = stacked(case, at, 2)
    one = gh.grad(lambda *xs: scalar_of(case, weights, *xs), argnums=tuple(places))
    return list(gh.vmap(one, in_axes=tuple(0 if b else None for b in at))(*map(as_value, args)))


WAYS = {
    gradient: differentiable(("float64", "complex128")),
    tangent: differentiable(("float64", "complex128")),
    second_derivative: differentiable(("float64", "complex128")),
    batched: batchable(),
    batched_gradient: differentiable(),
}


def compiled(way, chosen: list[Case]) -> list[list[np.ndarray]]:
    """The arrays that each case gives in one Program."""
    with gh.backends.use("lazy") as backend, flags.override(compile="always"):
        backend.evaluate()
        before = backend.fallbacks.copy()
        results = [way(case) for case in chosen]
        gh.eval(*(y for ys in results for y in ys))
        report = backend.fallbacks.since(before)
    assert "program" not in report and not report.uncompiled, str(report)
    for fallback in report.rows:  # what kernels compute is computed by kernels
        assert fallback.card not in ALWAYS_WRITTEN or "complex" in fallback.reason, str(fallback)
    return [[y.numpy() for y in ys] for ys in results]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_forward(kind):
    chosen = [case for case in cases() if case.card.kind == kind]
    for case, got in zip(chosen, compiled(forward, chosen), strict=True):
        with np.errstate(all="ignore"):
            expected = outputs(case.card.ref(*case.arrays(), **case.attrs))
        for y, e in zip(got, expected, strict=True):
            assert y.dtype == np.asarray(e).dtype and y.shape == np.shape(e), repr(case)
        pairs = zip(comparable(case, tuple(got)), comparable(case, expected), strict=True)
        for y, e in pairs:
            close(y, e, case.dtype, message=repr(case))


OF_KINDS = [
    (way, kind) for way, all_cases in WAYS.items() for kind in KINDS
    if any(case.card.kind == kind for case in all_cases)
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("way", "kind"), OF_KINDS, ids=lambda x: getattr(x, "__name__", x))
def test_derivatives_and_batching(way, kind):
    chosen = [case for case in WAYS[way] if case.card.kind == kind]
    results = compiled(way, chosen)
    with gh.backends.use("lazy"), flags.override(compile="never"):
        for case, got in zip(chosen, results, strict=True):
            for y, expected in zip(got, way(case), strict=True):
                close(y, expected.numpy(), case.dtype, 100, f"{way.__name__} of {case!r}")
