"""Optimizers around another: look-ahead, and steps of several batches."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from glasshouse.autograd import no_grad
from glasshouse.base.errors import CheckpointError
from glasshouse.dispatch.scope import phase
from glasshouse.ops.checks import check_integer, check_range, check_type
from glasshouse.optim.checks import describe_dict, loss_of
from glasshouse.optim.optimizer import Optimizer, evaluate_step
from glasshouse.tensor import asarray
from glasshouse.tensor.gradients import sharded_as


class OptimizerWrapper(Optimizer):
    """An optimizer whose groups and state are another's, so that schedules work on either.
    `own_state` returns its own state, and `load_own_state` restores it."""

    def __init__(self, optimizer: Optimizer) -> None:
        check_type(self.where, optimizer, Optimizer, "an optimizer", "Pass e.g. an AdamW.")
        self.inner = optimizer
        self.defaults: dict[Any, Any] = optimizer.defaults
        # Whether the rule may update parts of a parameter apart.
        self.by_parts: bool = optimizer.by_parts
        self.hooks: dict[str, OrderedDict[Any, Any]] = {}
        self.count: int = 0

    @property
    def param_groups(self) -> list[dict[Any, Any]]:
        return self.inner.param_groups

    @param_groups.setter
    def param_groups(self, groups: list[dict[Any, Any]]) -> None:
        self.inner.param_groups = groups

    @property
    def state(self) -> dict[Any, Any]:
        return self.inner.state

    @state.setter
    def state(self, state: dict[Any, Any]) -> None:
        self.inner.state = state

    def add_param_group(self, group: Any) -> None:
        self.inner.add_param_group(group)

    def own_state(self) -> dict[Any, Any]:
        """State of the wrapper alone, saved beside the inner optimizer's."""
        return {"count": self.count}

    def load_own_state(self, state: dict[Any, Any]) -> None:
        """Restore the result of `own_state`."""
        self.count = check_integer(self.where, "count", state["count"])

    def state_dict(self) -> dict[str, Any]:
        state = {**self.inner.state_dict(), self.where: self.own_state()}
        return self.passed_through("state_dict_post", state)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        current, saved_state = self.own_state(), state_dict
        saved_state = saved_state.get(self.where) if isinstance(saved_state, dict) else None
        if not isinstance(saved_state, dict) or current.keys() != saved_state.keys():
            expected = f"{self.where!r} with {sorted(current)}"
            fix = "Pass what state_dict() of the same wrapper returned."
            raise CheckpointError(self.where, expected, describe_dict(saved_state), fix)
        before = self.inner.state_dict()
        self.inner.load_state_dict({k: v for k, v in state_dict.items() if k != self.where})
        try:
            self.load_own_state(saved_state)
        except Exception:
            self.inner.load_state_dict(before)
            raise

    def __repr__(self) -> str:
        return f"{self.where}({self.inner!r})"


class Lookahead(OptimizerWrapper):
    """Every k steps of an optimizer, the parameters go back towards slow ones, which follow them:

        slow = slow + alpha * (p - slow), p = slow

    Raises: OptionError for k below 1, or alpha outside [0, 1].
    Source: Zhang et al. 2019, arXiv:1907.08610, algorithm 1.
    Example:
        >>> p = gh.tensor([1.0], requires_grad=True)
        >>> opt = Lookahead(gh.optim.SGD([p], lr=0.25), k=2, alpha=0.5)
        >>> for _ in range(2):
        ...     opt.zero_grad()
        ...     p.sum().backward()
        ...     opt.step()
        >>> p.tolist()
        [0.75]
    """

    count: Any

    def __init__(self, optimizer: Optimizer, k: int = 5, alpha: float = 0.5) -> None:
        super().__init__(optimizer)
        self.k: int = check_integer("Lookahead", "k", k, 1)
        self.alpha: float = check_range("Lookahead", "alpha", alpha, 0, 1)
        self.slow: dict[Any, Any] = {}

    def advance(self, closure: Callable[[], Any] | None = None) -> Any:
        for p in self.parameters():
            if p not in self.slow:
                self.slow[p] = p.detach()
        loss = self.inner.step(closure)
        self.count += 1
        if self.count % self.k == 0:
            with no_grad(), phase("optimizer"):
                for p, slow in self.slow.items():
                    p.in_place("Lookahead", slow + (p - slow) * self.alpha)
                    self.slow[p] = p.detach()
            evaluate_step()
        return loss

    def own_state(self) -> dict[str, Any]:
        params = self.parameters()
        slow = {i: self.slow[p] for i, p in enumerate(params) if p in self.slow}
        return {"count": self.count, "slow": slow}

    def load_own_state(self, state: dict[str, Any]) -> None:
        params = dict(enumerate(self.parameters()))
        slow = {int(i): x for i, x in state["slow"].items()}
        unlike = [i for i, x in slow.items() if i not in params or params[i].shape != x.shape]
        if unlike:
            expected = "slow weights of the shapes of its parameters"
            fix = "Load it into an optimizer of the same model."
            raise CheckpointError("Lookahead", expected, f"others for {unlike}", fix)
        super().load_own_state(state)
        self.slow = {params[i]: asarray(x, dtype=params[i].dtype) for i, x in slow.items()}


class GradientAccumulation(OptimizerWrapper):
    """Steps of an optimizer with the mean gradient of `steps` batches. The loop stays as it is: of
    its calls of `step` every `steps`-th updates, and `zero_grad` drops gradients only after those.

    Raises: OptionError for steps below 1.
    Example:
        >>> p = gh.tensor([1.0], requires_grad=True)
        >>> opt = GradientAccumulation(gh.optim.SGD([p], lr=0.5), steps=2)
        >>> for factor in (1.0, 3.0):
        ...     opt.zero_grad()
        ...     (p * factor).sum().backward()
        ...     opt.step()
        >>> p.tolist()
        [0.0]
    """

    count: Any

    def __init__(self, optimizer: Optimizer, steps: int) -> None:
        super().__init__(optimizer)
        self.steps: int = check_integer("GradientAccumulation", "steps", steps, 1)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients, or set them to zeros, if the last step used them."""
        if self.count % self.steps == 0:
            self.inner.zero_grad(set_to_none)

    def advance(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = loss_of("GradientAccumulation.step", closure)
        self.count += 1
        if self.count % self.steps:
            evaluate_step()
            return loss
        for p in self.parameters():
            if p.grad is not None:
                mean = p.grad.detach() * (1 / self.steps)
                p.grad = sharded_as(mean, p.grad)
        self.inner.step()
        return loss
