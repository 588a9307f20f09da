"""Rules that see a parameter as a matrix: factored moments, preconditioners, orthogonal steps."""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from glasshouse.base import OptionError, ShapeError, bfloat16
from glasshouse.dispatch.value import cast
from glasshouse.dispatch.wide import widen
from glasshouse.ops.checks import check_integer, check_option
from glasshouse.ops.elementwise import maximum, sqrt
from glasshouse.optim.layerwise import length
from glasshouse.optim.optimizer import Optimizer, blend, non_negative, options
from glasshouse.tensor import Tensor, eye, finfo, full, linalg, moveaxis, reshape
from glasshouse.tensor import mean as mean_
from glasshouse.tensor import sum as sum_


def at_least(x: Tensor, least: float) -> Tensor:
    return maximum(x, full(x.shape, float(least), dtype=x.dtype))


class Adafactor(Optimizer):
    """Steps scaled by a mean square that is kept as a row and a column, for parameters of two axes
    or more (of their last two); at step t, with w = t^beta2_decay

        r = r + w * (mean of g^2 along rows - r), c = c + w * (mean of g^2 along columns - c)
        u = g / max(sqrt(r c / mean(r)), eps1)
        p = p * (1 - lr * weight_decay)
        p = p - min(lr, 1 / sqrt(t)) * max(eps2, rms(p)) * u / max(1, rms(u) / d)

    A vector keeps the mean square whole. `eps` is (eps1, eps2); an eps1 of None is the dtype's.

    Raises: OptionError for options out of range, DTypeError for complex parameters.
    Source: Shazeer & Stern 2018, arXiv:1804.04235, algorithms 4 and 5; options as in PyTorch.
    """

    by_parts = False
    ranges: dict[str, tuple[float, float]] = non_negative("lr weight_decay")
    ranges |= {"beta2_decay": (-math.inf, 2**-1074), "d": (1.0, math.inf)}
    decoupled = True
    takes_complex = False

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, options(locals()))

    def check_options(self, options: dict[str, Any]) -> None:
        super().check_options(options)
        eps = options["eps"]
        if not isinstance(eps, (tuple, list)) or len(eps) != 2 or not is_eps(*eps):
            expected = "eps to be (None or a number >= 0, a number >= 0)"
            raise OptionError("Adafactor", expected, repr(eps), "Pass e.g. (None, 1e-3).")

    def state_shapes(self, shape: Any) -> Any:
        if len(shape) < 2:
            return {"variance": shape}
        return {"row_var": (*shape[:-1], 1), "col_var": (*shape[:-2], 1, shape[-1])}

    def change_at(self, p: Any, grad: Any, state: Any, group: Any) -> Any:
        step = state["step"] = state.get("step", 0) + 1
        weight, (eps1, eps2) = step ** group["beta2_decay"], group["eps"]
        eps1 = finfo(p.dtype).eps if eps1 is None else eps1
        count = math.sqrt(p.size)
        square = grad * grad
        if p.ndim > 1:
            along = {"row_var": -1, "col_var": -2}
            for name, axis in along.items():
                size = mean_(square, axis=axis, keepdims=True)
                state[name] = blend(state.get(name), size, weight)
            row, column = state["row_var"], state["col_var"]
            square = row / at_least(mean_(row, axis=-2, keepdims=True), eps1) * column
        else:
            square = state["variance"] = blend(state.get("variance"), square, weight)
        update = grad / sqrt(at_least(square, eps1 * eps1))
        rate = min(float(group["lr"]), 1 / math.sqrt(step))
        scale = at_least(length(p) / count, eps2) * -rate
        return update * (scale / at_least(length(update) / (count * group["d"]), 1.0))


def is_eps(first: Any, second: Any) -> bool:
    numbers = [second] if first is None else [first, second]
    return all(isinstance(x, (int, float)) and x >= 0 for x in numbers)


class Muon(Optimizer):
    """Momentum made nearly orthogonal, for matrices; other parameters need another rule.

        b = momentum * b + (1 - momentum) * g
        u = newton_schulz(g + momentum * (b - g)), without Nesterov newton_schulz(b)
        p = p * (1 - lr * weight_decay) - lr * s * u

    s is sqrt(max(1, rows / columns)) with `adjust_lr_fn` None or "original", and
    0.2 * sqrt(max(rows, columns)) with "match_rms_adamw".

    Raises: OptionError for options out of range, ShapeError for a parameter that is not a matrix,
        DTypeError for complex parameters.
    Source: Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks"; scale for
        AdamW's rates: Liu et al. 2025, arXiv:2502.16982.
    """

    by_parts = False
    ranges: dict[str, tuple[float, float]] = non_negative("lr weight_decay momentum eps")
    buffers: tuple[str, ...] = ("momentum_buffer",)
    counts_steps = False
    decoupled = True
    takes_complex = False

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        super().__init__(params, options(locals()))

    def check_options(self, options: dict[str, float]) -> None:
        super().check_options(options)
        check_integer("Muon", "ns_steps", options["ns_steps"])
        check_option(
            "Muon", "adjust_lr_fn", options["adjust_lr_fn"], (None, "original", "match_rms_adamw")
        )
        if not isinstance(options["ns_coefficients"], (tuple, list)) or (
            len(options["ns_coefficients"]) != 3
        ):
            expected = "three ns_coefficients"
            raise OptionError("Muon", expected, repr(options["ns_coefficients"]), "Pass a, b, c.")
        for p in options["params"]:
            if p.ndim != 2:
                fix = "Give the others to AdamW."
                raise ShapeError("Muon", "matrices", f"shape {p.shape}", fix)

    def change(self, grad: Any, state: Any, group: Any) -> Any:
        momentum = group["momentum"]
        mean = blend(state.get("momentum_buffer"), grad, 1 - momentum)
        state["momentum_buffer"] = mean
        update = blend(grad, mean, momentum) if group["nesterov"] else mean
        update = newton_schulz(update, group["ns_coefficients"], group["ns_steps"], group["eps"])
        rows, columns = grad.shape
        scale = math.sqrt(max(1, rows / columns))
        if group["adjust_lr_fn"] == "match_rms_adamw":
            scale = 0.2 * math.sqrt(max(rows, columns))
        return cast(update, grad.dtype) * (-float(group["lr"]) * scale)


def newton_schulz(
    x: Any,
    coefficients: tuple[float, ...] = (3.4445, -4.775, 2.0315),
    steps: int = 5,
    eps: float = 1e-7,
) -> Any:
    """A matrix with the singular vectors of `x` and singular values near 1, in bfloat16:

        x = x / max(||x||, eps), then `steps` times x = a x + (b (x x^T) + c (x x^T)^2) x

    Of a wide matrix, two steps are made at once: the x x^T of the second is p (x x^T) p, where
    p = a I + b (x x^T) + c (x x^T)^2 is the factor of the first.

    Shapes: (m, n) -> (m, n).
    Source: Jordan et al. 2024, as Muon.
    """
    is_tall = x.shape[0] > x.shape[1]
    x = cast(x.mT if is_tall else x, bfloat16)
    size = cast(length(widen(x)), bfloat16)
    x = x / at_least(size, eps)
    rows, columns = x.shape
    while steps > 0:
        count = 2 if steps > 1 and columns >= 2 * rows else 1
        x = steps_at_once(x, coefficients, count)
        steps -= count
    return x.mT if is_tall else x


def steps_at_once(x: Any, coefficients: Any, count: int) -> Any:
    """`count` steps of Newton-Schulz, with one product of x and its transpose for all."""
    a, b, c = coefficients
    gram, whole = x @ x.mT, None
    for remaining in reversed(range(count)):
        factor = Factor.of(widen(gram) * b + widen(gram @ gram) * c, a, x.dtype)
        whole = factor if whole is None else factor.after(whole)
        if remaining:
            gram = factor.times(factor.times(gram))
    return x if whole is None else whole.times(x)


class Factor(NamedTuple):
    """The matrix share * I + rest, whose rest has a trace of 0: bfloat16 rounds only the rest."""

    share: Tensor
    rest: Tensor

    @classmethod
    def of(cls, matrix: Any, share: Any, dtype: Any) -> "Factor":
        """share * I + matrix."""
        one = eye(matrix.shape[0], dtype=matrix.dtype)
        mean = sum_(matrix * one) / matrix.shape[0]
        return cls(share + mean, cast(matrix - one * mean, dtype))

    def times(self, x: Any) -> Any:
        """This matrix @ x."""
        return cast(widen(x) * self.share + widen(self.rest @ x), x.dtype)

    def after(self, other: "Factor") -> "Factor":
        """This matrix @ the other one."""
        mixed = widen(other.rest) * self.share + widen(self.rest) * other.share
        product = mixed + widen(self.rest @ other.rest)
        return self.of(product, self.share * other.share, self.rest.dtype)


class Shampoo(Optimizer):
    """Gradients multiplied along each axis by a root of the sum of their outer products:

        H_i = H_i + G_i G_i^T                       (H_i = eps * I at first; G_i has axis i as rows)
        p = p - lr * (g times H_i^(-1 / (2 k)) along each of the k axes)

    Axes longer than `largest` have no matrix, and do not count in k. Roots are computed
    every `update_every` steps. With momentum, the product is averaged as in SGD.

    Raises: OptionError for options out of range, DTypeError for complex parameters.
    Source: Gupta, Koren, Singer 2018, arXiv:1802.09568, algorithm 2.
    """

    by_parts = False
    ranges: dict[str, tuple[float, float]] = non_negative("lr momentum weight_decay") | {
        "eps": (2**-1022, math.inf)
    }
    optional: tuple[str, ...] = ("momentum_buffer",)
    takes_complex = False

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-1,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        eps: float = 1e-4,
        update_every: int = 1,
        largest: int = 1024,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, options(locals()))

    def check_options(self, options: dict[str, float]) -> None:
        super().check_options(options)
        for name in ("update_every", "largest"):
            check_integer("Shampoo", name, options[name], 1)

    def optional_shapes(self, shape: Any) -> Any:
        names = [(name, n) for name in ("sum", "root") for n in enumerate(shape)]
        matrices = {f"{name}_{axis}": (n, n) for name, (axis, n) in names}
        return {**super().optional_shapes(shape), **matrices}

    def change(self, grad: Tensor, state: dict[str, Any], group: dict[str, float]) -> Tensor:
        step = state["step"] = state.get("step", 0) + 1
        axes = [i for i, n in enumerate(grad.shape) if n <= group["largest"]]
        update = grad
        for axis in axes:
            n = grad.shape[axis]
            rows = reshape(moveaxis(grad, axis, 0), (n, -1))
            before = state.get(f"sum_{axis}")
            before = eye(n, dtype=grad.dtype) * group["eps"] if before is None else before
            total = state[f"sum_{axis}"] = before + rows @ rows.mT
            if group["update_every"] == 1 or (step - 1) % group["update_every"] == 0:
                state[f"root_{axis}"] = inverse_root(total, 2 * len(axes), group["eps"])
            turned = moveaxis(update, axis, 0)
            product = state[f"root_{axis}"] @ reshape(turned, (n, -1))
            update = moveaxis(reshape(product, turned.shape), 0, axis)
        if group["momentum"]:
            before = state.get("momentum_buffer")
            update = update if before is None else before * group["momentum"] + update
            state["momentum_buffer"] = update
        return update * -float(group["lr"])


def inverse_root(matrix: Tensor, order: int, least: float) -> Tensor:
    """matrix^(-1 / order) of a symmetric matrix whose eigenvalues are `least` or more.

    Shapes: (n, n) -> (n, n).
    """
    values, vectors = linalg.eigh(matrix)
    return (vectors * at_least(values, least) ** (-1 / order)) @ vectors.mT
