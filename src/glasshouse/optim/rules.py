"""Gradient descent, with momentum or averages, and steps scaled by sums of squares or by signs."""

import math
from collections.abc import Iterable
from typing import Any

from glasshouse.base.errors import OptionError
from glasshouse.ops.elementwise import sqrt
from glasshouse.optim.optimizer import FRACTION, Optimizer, blend, non_negative, options
from glasshouse.tensor import Tensor, clip, full_like, sign, where


class SGD(Optimizer):
    """Gradient descent with momentum.

        g = grad + weight_decay * p
        b = momentum * b + (1 - dampening) * g      (b = g at the first step)
        p = p - lr * b, or with Nesterov p - lr * (g + momentum * b)

    Raises: OptionError for options out of range, or Nesterov without momentum or with dampening.
    Source: Sutskever et al. 2013, "On the importance of initialization and momentum in deep
        learning"; with the learning rate outside the buffer, as PyTorch has it.
    Example:
        >>> p = gh.tensor([1.0], requires_grad=True)
        >>> opt = SGD([p], lr=0.1)
        >>> (p * 2).sum().backward()
        >>> opt.step()
        >>> p.tolist()
        [0.800000011920929]
    """

    ranges: dict[str, tuple[float, float]] = non_negative("lr momentum weight_decay") | {
        "dampening": (-math.inf, math.inf)
    }
    optional: tuple[str, ...] = ("momentum_buffer",)
    counts_steps = False

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(params, options(locals()))

    def check_options(self, options: dict[str, Any]) -> None:
        super().check_options(options)
        if options["nesterov"] and (options["momentum"] == 0 or options["dampening"] != 0):
            got = f"momentum={options['momentum']}, dampening={options['dampening']}"
            fix = "Change them."
            raise OptionError("SGD", "momentum > 0 and dampening 0 with nesterov", got, fix)

    def change(self, grad: Tensor, state: dict[str, Tensor], group: dict[str, float]) -> Tensor:
        momentum = group["momentum"]
        if momentum:
            buffer, share = state.get("momentum_buffer"), 1 - group["dampening"]
            if buffer is not None:
                buffer = buffer * momentum + (grad if share == 1 else grad * share)
            buffer = state["momentum_buffer"] = grad if buffer is None else buffer
            grad = grad + buffer * momentum if group["nesterov"] else buffer
        return grad * -float(group["lr"])


class RMSprop(Optimizer):
    """Steps scaled by the running root mean square of the gradient.

        v = alpha * v + (1 - alpha) * g^2           (centered: v - a^2, a the running mean of g)
        p = p - lr * g / (sqrt(v) + eps)
        with momentum: b = momentum * b + g / (sqrt(v) + eps), p = p - lr * b

    Raises: OptionError for options out of range.
    Source: Tieleman & Hinton 2012, lecture 6.5; centered: Graves 2013, arXiv:1308.0850, eq. 38-41.
    """

    ranges: dict[str, tuple[float, float]] = non_negative("lr eps weight_decay momentum") | {
        "alpha": FRACTION
    }
    buffers: tuple[str, ...] = ("square_avg",)
    optional: tuple[str, ...] = ("momentum_buffer", "grad_avg")

    def __init__(
        self,
        params: Any,
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, options(locals()))

    def change(self, grad: Tensor, state: dict[str, Any], group: dict[str, float]) -> Tensor:
        state["step"] = state.get("step", 0) + 1
        weight = 1 - group["alpha"]
        square = state["square_avg"] = blend(state.get("square_avg"), grad * grad, weight)
        if group["centered"]:
            mean = state["grad_avg"] = blend(state.get("grad_avg"), grad, weight)
            square = square - mean * mean
        scaled = grad / (sqrt(square) + group["eps"])
        if group["momentum"]:
            if "momentum_buffer" in state:
                scaled = state["momentum_buffer"] * group["momentum"] + scaled
            state["momentum_buffer"] = scaled
        return scaled * -float(group["lr"])


class Adagrad(Optimizer):
    """Steps scaled by the root of the sum of all squared gradients; after t steps

        s = s + g^2
        p = p - lr / (1 + (t - 1) * lr_decay) * g / (sqrt(s) + eps)

    Raises: OptionError for options out of range.
    Source: Duchi, Hazan, Singer 2011, "Adaptive subgradient methods", JMLR 12, sec. 1.1.
    """

    ranges: dict[str, tuple[float, float]] = non_negative(
        "lr lr_decay weight_decay initial_accumulator_value eps"
    )
    buffers: tuple[str, ...] = ("sum",)

    def __init__(
        self,
        params: Any,
        lr: float = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(params, options(locals()))

    def change(self, grad: Tensor, state: dict[str, Any], group: dict[str, float]) -> Tensor:
        step = state["step"] = state.get("step", 0) + 1
        total = state.get("sum", group["initial_accumulator_value"])
        total = state["sum"] = grad * grad + total if "sum" in state or total else grad * grad
        rate = float(group["lr"]) / (1 + (step - 1) * group["lr_decay"])
        return grad / (sqrt(total) + group["eps"]) * -rate


class Adadelta(Optimizer):
    """Steps scaled by the running sizes of gradients and of the steps themselves.

        v = rho * v + (1 - rho) * g^2
        d = sqrt(u + eps) / sqrt(v + eps) * g
        u = rho * u + (1 - rho) * d^2
        p = p - lr * d

    Raises: OptionError for options out of range.
    Source: Zeiler 2012, arXiv:1212.5701, algorithm 1.
    """

    ranges: dict[str, tuple[float, float]] = non_negative("lr eps weight_decay") | {
        "rho": (0.0, 1.0 + 2**-52)
    }
    buffers: tuple[str, ...] = ("square_avg", "acc_delta")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, options(locals()))

    def change(self, grad: Any, state: Any, group: Any) -> Any:
        state["step"] = state.get("step", 0) + 1
        weight, eps, before = 1 - group["rho"], group["eps"], state.get("acc_delta")
        square = state["square_avg"] = blend(state.get("square_avg"), grad * grad, weight)
        size = eps**0.5 if before is None else sqrt(before + eps)
        delta = grad / sqrt(square + eps) * size
        state["acc_delta"] = blend(before, delta * delta, weight)
        return delta * -float(group["lr"])


class Rprop(Optimizer):
    """Steps whose size each element has for itself, by the sign of the gradient alone. The size
    grows by the second of `etas` where the sign stayed, and shrinks by the first where it changed;
    there, the element rests for a step.

    Raises: OptionError unless 0 < etas[0] < 1 < etas[1].
    Source: Riedmiller & Braun 1993, "A direct adaptive method for faster backpropagation learning".
    """

    ranges: dict[str, tuple[float, float]] = non_negative("lr etas step_sizes")
    pairs: tuple[str, ...] = ("etas", "step_sizes")
    buffers: tuple[str, ...] = ("prev", "step_size")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50.0),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, options(locals()))

    def check_options(self, options: dict[str, Any]) -> None:
        super().check_options(options)
        shrinking, growing = options["etas"]
        if not 0 < shrinking < 1 < growing:
            fix = "Pass e.g. (0.5, 1.2)."
            raise OptionError("Rprop", "0 < etas[0] < 1 < etas[1]", options["etas"], fix)

    def change(self, grad: Any, state: Any, group: Any) -> Any:
        state["step"] = state.get("step", 0) + 1
        (shrinking, growing), bounds = group["etas"], group["step_sizes"]
        if "prev" in state:
            agreement = grad * state["prev"]
            size = state["step_size"]
            size = where(agreement > 0, size * growing, size)
            size = clip(where(agreement < 0, size * shrinking, size), *bounds)
            grad = where(agreement < 0, 0.0, grad)
        else:
            size = full_like(grad, min(max(float(group["lr"]), bounds[0]), bounds[1]))
        state["prev"], state["step_size"] = grad, size
        return -(sign(grad) * size)


class ASGD(Optimizer):
    """Gradient descent with a rate that falls, and the average `ax` of the parameters; at step t

        p = p * (1 - lambd * eta) - eta * g
        ax = ax + mu * (p - ax)
        eta = lr / (1 + lambd * lr * t)^alpha, mu = 1 / max(1, t - t0)

    Raises: OptionError for options out of range.
    Source: Polyak & Juditsky 1992, "Acceleration of stochastic approximation by averaging"; Xu
        2011, arXiv:1107.2490, sec. 2.
    """

    ranges: dict[str, tuple[float, float]] = non_negative("lr weight_decay lambd alpha t0")
    buffers: tuple[str, ...] = ("ax",)
    numbers: tuple[str, ...] = ("eta", "mu")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0.0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        super().__init__(params, options(locals()))

    def change_at(self, p: Any, grad: Any, state: Any, group: Any) -> Any:
        step = state["step"] = state.get("step", 0) + 1
        lr, lambd = float(group["lr"]), group["lambd"]
        rate, weight = state.get("eta", lr), state.get("mu", 1.0)
        change = (p * lambd + grad) * -rate
        state["ax"] = blend(state.get("ax"), p + change, weight)
        state["eta"] = lr / (1 + lambd * lr * step) ** group["alpha"]
        state["mu"] = 1 / max(1, step - group["t0"])
        return change
