"""L-BFGS: steps along an estimate of Newton's direction, with a line search."""

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from glasshouse.autograd import enable_grad, no_grad
from glasshouse.base import CheckpointError, DTypeError, OptionError, real_dtype, type_name
from glasshouse.dispatch import phase, reshape
from glasshouse.ops.cast import bitcast
from glasshouse.ops.checks import check_integer, check_option
from glasshouse.optim.checks import check_gradient
from glasshouse.optim.optimizer import Optimizer, non_negative, options
from glasshouse.tensor import Tensor, asarray, concat, zeros
from glasshouse.tensor import max as max_
from glasshouse.tensor import sum as sum_

ENOUGH, FLAT = 1e-4, 0.9  # Nocedal & Wright, sec. 3.1: c1, and c2 for Newton's directions
LEAST_CURVATURE = 1e-10  # of a pair that is kept; PyTorch's
NUMBERS = ("t", "H_diag", "prev_loss")
VECTORS = ("d", "prev_flat_grad")
LISTS = ("old_dirs", "old_stps")


class Point(NamedTuple):
    """A point along the direction: how far, the loss, the gradient, its part along it."""

    t: float
    loss: float
    grad: Any
    slope: float


def dot(a: Any, b: Any) -> float:
    return sum_(a * b).item()


def largest(x: Any) -> float:
    return max_(abs(x)).item()


def cubic_minimum(a: Point, b: Point, low: float, high: float) -> float:
    """Where the cubic through two points with their slopes is least, within [low, high].

    Source: Nocedal & Wright, "Numerical Optimization", eq. 3.59.
    """
    a, b = (a, b) if a.t <= b.t else (b, a)
    middle = (low + high) / 2
    if a.t == b.t:
        return middle
    first = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t)
    square = first * first - a.slope * b.slope
    if not square >= 0:
        return middle
    root = math.sqrt(square)
    below = b.slope - a.slope + 2 * root
    if below == 0:
        return middle
    least = b.t - (b.t - a.t) * ((b.slope + root - first) / below)
    return min(max(least, low), high)


class LineSearch:
    """Looks for a point with the strong Wolfe conditions: the loss has fallen enough, and the slope
    is nearly flat.

    Source: Nocedal & Wright, "Numerical Optimization", algorithms 3.5 and 3.6.
    """

    def __init__(
        self, evaluate: Callable[..., Any], start: Point, size: float, tolerance: float, most: int
    ) -> None:
        self.evaluate = evaluate
        self.start = start
        self.size = size
        self.tolerance = tolerance
        self.most = most
        self.count: int = 0

    def at(self, t: float) -> Point:
        self.count += 1
        return self.evaluate(t)

    @property
    def is_over(self) -> bool:
        return self.count > self.most

    def is_high(self, point: Point) -> bool:
        return point.loss > self.start.loss + ENOUGH * point.t * self.start.slope

    def is_flat(self, point: Point) -> bool:
        return abs(point.slope) <= -FLAT * self.start.slope

    def run(self, t: float) -> Point:
        """The point found, or the best one."""
        points = self.bracket(t)
        return points[0] if len(points) == 1 else self.zoom(points)

    def bracket(self, t: float) -> list[Point]:
        """A point that is good enough, or two with one between them."""
        before, point = self.start, self.at(t)
        while not self.is_over:
            if self.is_high(point) or (self.count > 2 and point.loss >= before.loss):
                return [before, point]
            if self.is_flat(point):
                return [point]
            if point.slope >= 0:
                return [before, point]
            reach = point.t + 0.01 * (point.t - before.t), point.t * 10
            further = cubic_minimum(before, point, *reach)
            before, point = point, self.at(further)
        return [self.start, point]

    def zoom(self, points: list[Point]) -> Point:
        """The best point between two, which come closer and closer."""
        low, high = sorted(points, key=lambda point: point.loss)
        is_slow = False
        while not self.is_over and abs(high.t - low.t) * self.size >= self.tolerance:
            t, is_slow = self.between(low, high, is_slow)
            point = self.at(t)
            if self.is_high(point) or point.loss >= low.loss:
                high = point
                low, high = (low, high) if low.loss <= high.loss else (high, low)
                continue
            is_done = self.is_flat(point)
            if not is_done and point.slope * (high.t - low.t) >= 0:
                high = low
            low = point
            if is_done:
                break
        return low

    def between(self, low: Point, high: Point, is_slow: bool) -> tuple[float, bool]:
        """The next point to try, and whether it is close to one end: no two in a row are."""
        least, most = sorted((low.t, high.t))
        t = cubic_minimum(low, high, least, most)
        margin = 0.1 * (most - least)
        if min(most - t, t - least) >= margin:
            return t, False
        if not is_slow and least < t < most:
            return t, True
        return (most - margin if abs(t - most) < abs(t - least) else least + margin), False


class LBFGS(Optimizer):
    """Up to `max_iter` steps along -H g, where H g is the product of the gradient with an estimate
    of the inverse Hessian, made of the last `history_size` differences of parameters and gradients.

    Without `line_search_fn` a step has length lr (the first: min(1, 1 / sum |g|) * lr); with
    "strong_wolfe" a line search starts there. `step(closure)` needs the closure, which computes
    loss and gradients again, and may call it `max_eval` times (by default 5/4 of max_iter).

    Raises: OptionError for options out of range or several groups, DTypeError without a closure.
    Source: Liu & Nocedal 1989, "On the limited memory BFGS method"; Nocedal & Wright, "Numerical
        Optimization", algorithm 7.4.
    Example:
        >>> p = gh.tensor([3.0, -2.0], requires_grad=True)
        >>> opt = LBFGS([p], line_search_fn="strong_wolfe")
        >>> def closure():
        ...     opt.zero_grad()
        ...     loss = ((p - gh.asarray([1.0, 2.0])) ** 2).sum()
        ...     loss.backward()
        ...     return loss
        >>> opt.step(closure).item(), closure().item() < 1e-6
        (20.0, True)
    """

    by_parts = False
    ranges: dict[str, tuple[float, float]] = non_negative("lr tolerance_grad tolerance_change")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1.0,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        super().__init__(params, options(locals()))

    def check_options(self, options: dict[str, Any]) -> None:
        super().check_options(options)
        check_option("LBFGS", "line_search_fn", options["line_search_fn"], (None, "strong_wolfe"))
        for name in ("max_iter", "history_size"):
            options[name] = check_integer("LBFGS", name, options[name], 1)
        if options["max_eval"] is None:
            options["max_eval"] = options["max_iter"] * 5 // 4
        options["max_eval"] = check_integer("LBFGS", "max_eval", options["max_eval"], 1)

    def add_checked(self, group: dict[str, list[Tensor]]) -> None:
        if self.param_groups:
            raise OptionError("LBFGS", "one group of parameters", "a second", "Make it one.")
        super().add_checked(group)

    # -- parameters as one vector ----------------------------------------------------------
    def flat_gradient(self) -> Any:
        """The gradients of all parameters as one vector, real and imaginary parts side by side."""
        parts = []
        for p in self.parameters():
            grad = zeros(p.shape, dtype=p.dtype) if p.grad is None else p.grad.detach()
            grad = bitcast(grad, dtype=real_dtype(p.dtype)) if p.dtype.is_complex else grad
            parts.append(reshape(grad, (grad.size,)))
        return concat(parts)

    def move(self, origin: list[Any], t: float, direction: Any) -> None:
        """Set the parameters to origin + t * direction."""
        at = 0
        for p, x in zip(self.parameters(), origin, strict=True):
            shape = (*p.shape, 2) if p.dtype.is_complex else p.shape
            size = math.prod(shape)
            part = reshape(direction[at : at + size], shape) * t
            p.in_place("LBFGS", x + (bitcast(part, dtype=p.dtype) if p.dtype.is_complex else part))
            at += size

    def evaluated(self, closure: Callable[[], Any]) -> tuple[Any, ...]:
        """(loss, gradient as a vector) at the parameters as they are."""
        with enable_grad():
            loss = closure()
        for p in self.parameters():
            if p.grad is not None:
                check_gradient("LBFGS", p)
        return loss, self.flat_gradient()

    # -- the step --------------------------------------------------------------------------
    def advance(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step, without the hooks before and after it; returns the loss."""
        if not callable(closure):
            got = type_name(closure)
            raise DTypeError("LBFGS", "a closure", got, "Pass a function that returns the loss.")
        with no_grad(), phase("optimizer"):
            first = self.parameters()[0]
            state = dict(self.state.get(first, {"func_evals": 0, "n_iter": 0}))
            loss, grad = self.evaluated(closure)
            state["func_evals"] += 1
            if largest(grad) > self.param_groups[0]["tolerance_grad"]:
                self.iterate(closure, state, float(loss), grad)
            self.state[first] = state
        return loss

    def iterate(
        self, closure: Callable[[], Any], state: dict[Any, Any], loss: float, grad: Any
    ) -> None:
        """Up to max_iter steps from where the loss and gradient are these."""
        group, evaluations = self.param_groups[0], 1
        lr, tolerance = float(group["lr"]), group["tolerance_change"]
        for number in range(1, group["max_iter"] + 1):
            is_last = number == group["max_iter"]
            state["n_iter"] += 1
            direction = state["d"] = self.direction(state, grad)
            is_first = state["n_iter"] == 1
            t = min(1.0, 1.0 / sum_(abs(grad)).item()) * lr if is_first else lr
            state.update(prev_flat_grad=grad, prev_loss=loss, t=t)
            start = Point(0.0, loss, grad, dot(grad, direction))
            if start.slope > -tolerance:
                return
            origin = [p.detach() for p in self.parameters()]
            if group["line_search_fn"]:
                evaluate = self.along(closure, origin, direction)
                most = group["max_eval"] - evaluations
                search = LineSearch(evaluate, start, largest(direction), tolerance, most)
                t, loss, grad, _ = search.run(t)
                state["t"], count = t, search.count
                self.move(origin, t, direction)
            else:
                self.move(origin, t, direction)
                count = 0 if is_last else 1
                if not is_last:
                    value, grad = self.evaluated(closure)
                    loss = float(value)
            evaluations += count
            state["func_evals"] += count
            if is_last or evaluations >= group["max_eval"]:
                return
            if largest(grad) <= group["tolerance_grad"]:
                return
            is_still = largest(direction) * abs(t) <= tolerance
            if is_still or abs(loss - state["prev_loss"]) < tolerance:
                return

    def along(
        self, closure: Callable[[], Any], origin: list[Any], direction: Any
    ) -> Callable[..., Any]:
        """The function from t to the point there."""

        def evaluate(t: float) -> Point:
            self.move(origin, t, direction)
            loss, grad = self.evaluated(closure)
            return Point(t, float(loss), grad, dot(grad, direction))

        return evaluate

    def direction(self, state: dict[Any, Any], grad: Any) -> Any:
        """-H g, after the last step has entered H."""
        if state["n_iter"] == 1:
            state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1.0)
            return -grad
        change, step = grad - state["prev_flat_grad"], state["d"] * state["t"]
        curvature = dot(change, step)
        if curvature > LEAST_CURVATURE:
            older = self.param_groups[0]["history_size"] - 1
            for name, new in (("old_dirs", change), ("old_stps", step), ("ro", 1 / curvature)):
                state[name] = [*(state[name][-older:] if older else ()), new]
            state["H_diag"] = curvature / dot(change, change)
        changes, steps, inverses = state["old_dirs"], state["old_stps"], state["ro"]
        q, weights = -grad, []
        for y, s, rho in zip(changes[::-1], steps[::-1], inverses[::-1], strict=True):
            weights.append(dot(s, q) * rho)
            q = q - y * weights[-1]
        q = q * state["H_diag"]
        for y, s, rho in zip(changes, steps, inverses, strict=True):
            q = q + s * (weights.pop() - dot(y, q) * rho)
        return q

    # -- saving ----------------------------------------------------------------------------
    def saved_state(self, p: Any, entry: Any) -> Any:
        return {name: list(x) if isinstance(x, list) else x for name, x in entry.items()}

    def checked_state(self, number: Any, p: Any, entry: Any) -> Any:
        needed = {"func_evals", "n_iter"}
        names = {*NUMBERS, *VECTORS, *LISTS, "ro"}
        entry = {k: v for k, v in entry.items() if k != "al"} if isinstance(entry, dict) else {}
        if number != 0 or not needed <= entry.keys() <= needed | names:
            expected = f"the state of parameter 0 alone, with {sorted(needed)}"
            got = f"that of parameter {number} with {sorted(map(str, entry))}"
            fix = "Load it into the optimizer it came from."
            raise CheckpointError("LBFGS", expected, got, fix)
        out: dict[str, Any] = {name: int(entry[name]) for name in ("func_evals", "n_iter")}
        for name in entry.keys() - needed:
            value = entry[name]
            if name in LISTS:
                out[name] = [self.checked_vector(name, p, x) for x in value]
            elif name == "ro":
                out[name] = [float(x) for x in value]
            elif value is not None:
                is_number = name in NUMBERS
                out[name] = float(value) if is_number else self.checked_vector(name, p, value)
        return out

    def checked_vector(self, name: str, p: Tensor, value: Any) -> Any:
        size = sum(q.size * (2 if q.dtype.is_complex else 1) for q in self.parameters())
        if np.shape(value) != (size,):
            fix = "Load it into an optimizer of the same model."
            raise CheckpointError("LBFGS", f"{name!r} of shape {(size,)}", np.shape(value), fix)
        return asarray(value, dtype=real_dtype(p.dtype)).detach()
