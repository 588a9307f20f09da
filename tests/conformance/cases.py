"""Shared by the generated conformance tests: cases from the cards, tolerances, differences."""

import functools
import importlib.util
from dataclasses import dataclass

import numpy as np

import glasshouse as gh
from glasshouse.base.dtype import as_dtype
from glasshouse.base.errors import DTypeError
from glasshouse.dispatch import primitives
from glasshouse.dispatch.value import as_value

TOLERANCE = {"float16": 4e-3, "bfloat16": 4e-2, "float32": 2e-5, "complex64": 2e-5}
BACKENDS = ["numpy", *(["torch"] if importlib.util.find_spec("torch") else [])]
PHASE = "unique_up_to_phase"  # of eigenvectors and singular vectors


@dataclass(frozen=True)
class Case:
    """One sample of one card in one dtype."""

    card: object
    number: int
    dtype: str

    @property
    def sample(self):
        return self.card.samples[self.number]

    @property
    def attrs(self):
        return self.sample.attrs

    def arrays(self):
        """The operands, the same at every call."""
        return self.sample.fill(np.random.default_rng(self.number), self.dtype)

    def bind(self, *args):
        """The card on values, arrays or numbers."""
        return self.card(*map(as_value, args), **self.attrs)

    def __repr__(self):
        return f"{self.card.name}-{self.dtype}-{self.number}"


@functools.cache
def cases(dtypes=None) -> list[Case]:
    """Every sample of every card in its dtypes (or those of them given); cards that are defined
    later are not among them."""
    results = []
    for card in primitives.values():
        for dtype in card.dtypes:
            if dtypes is not None and dtype.name not in dtypes:
                continue
            for number in range(len(card.samples)):
                case = Case(card, number, dtype.name)
                if is_valid(case):
                    results.append(case)
    return results


def cases_of(card) -> list[Case]:
    """Every sample of a card in its dtypes."""
    return [case for case in cases() if case.card is card]


def is_valid(case) -> bool:
    """Whether the card takes the sample in this dtype; fixed operands may exclude some."""
    try:
        specs = [spec_of(a) for a in case.arrays()]
        case.card.infer(*specs, **case.attrs)
    except DTypeError:
        return False
    return True


def spec_of(array):
    return gh.base.shape.Spec(array.shape, as_dtype(array.dtype))


def differentiable(dtypes=("float64",)):
    """Cases with a vjp, a tracked operand and a floating result, all in double precision."""
    results = [case for case in cases(dtypes) if case.card.vjp is not None and tracked(case)]
    return [case for case in results if is_double(case)]


def is_double(case) -> bool:
    """Whether all floating operands and results have double precision, as differences need."""
    specs = [spec_of(a) for a in case.arrays()]
    outs = outputs(case.card.infer(*specs, **case.attrs))
    exact = ("float64", "complex128")
    return all(s.dtype.name in exact for s in (*specs, *outs) if s.dtype.is_inexact)


def tracked(case) -> list[int]:
    """The operands that have a derivative."""
    arrays = case.arrays()
    outs = outputs(case.card.infer(*map(spec_of, arrays), **case.attrs))
    if not any(out.dtype.is_inexact for out in outs):
        return []
    return [
        i
        for i, a in enumerate(arrays)
        if as_dtype(a.dtype).is_inexact and a.size and case.card.vjp_rule(i) is not None
    ]


def outputs(result) -> tuple:
    return result if isinstance(result, tuple) else (result,)


def comparable(case, result, xp=np) -> list:
    """The results without what is arbitrary in them: the phases of eigen- and singular vectors.

    Instead of vectors u_k (and v_k) stand the matrices u_k u_kᴴ and u_k v_kᴴ, k in front.
    """
    ys = list(outputs(result))
    if PHASE not in case.card.traits:
        return ys
    if len(ys) == 2:
        values, u = ys
        vh = xp.conj(xp.matrix_transpose(u))
    else:
        u, values, vh = ys
    k = values.shape[-1]
    u = xp.matrix_transpose(u)[..., :k, :, None]
    mixed = u * vh[..., :k, None, :]
    return [values, mixed] if len(ys) == 2 else [u * xp.conj(xp.matrix_transpose(u)), values, mixed]


def smooth(case, result):
    """The results to differentiate."""
    return [y for y in comparable(case, result, gh) if y.dtype.is_inexact]


def scalar_of(case, weights, *args):
    """A real number that depends on every smooth result: Σ Re(conj(w) · y)."""
    total = None
    for y, w in zip(smooth(case, case.bind(*args)), weights, strict=True):
        part = gh.sum(gh.real(gh.conj(as_value(w)) * y))
        total = part if total is None else total + part
    return total


def weights_for(case, arrays):
    """Fixed random cotangents, one per smooth result."""
    rng = np.random.default_rng(99)
    return [draw(rng, y) for y in smooth(case, case.bind(*arrays))]


def draw(rng, like):
    """Random values of the shape and dtype of `like`."""
    values = rng.normal(size=like.shape)
    dtype = as_dtype(like.dtype)
    if dtype.is_complex:
        values = values + 1j * rng.normal(size=like.shape)
    return np.asarray(values).astype(dtype.np)


def numeric_gradient(fn, x, eps=1e-6):
    """dfn/dx by central differences, of all elements in one batched call of `fn`, which gives a
    real number; for complex x, d/dRe + i d/dIm."""
    units = (1, 1j) if np.iscomplexobj(x) else (1,)
    steps = np.concatenate([eps * unit * np.eye(x.size, dtype=x.dtype) for unit in units])
    steps = steps.reshape(-1, *x.shape)
    up, down = (gh.vmap(fn)(as_value(x + step)).numpy() for step in (steps, -steps))
    slopes = ((up - down) / (2 * eps)).reshape(len(units), *x.shape)
    return np.asarray(sum(unit * slope for unit, slope in zip(units, slopes, strict=True)))
