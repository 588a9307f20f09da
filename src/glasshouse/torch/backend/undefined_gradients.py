"""Undefined gradients: those of results that the user's loss does not depend on.

Autograd passes zeros for them to the backward graph. For a language model that returns its scores
beside its loss, these zeros are as large as the scores. Here the graph is lowered without them."""

from collections.abc import Callable
from typing import Any

import torch

from glasshouse.torch.patches.aot import is_compiled


class WithoutZeros:
    """A compiled graph whose backward graph gets None for an undefined gradient."""

    def __init__(self, compiled: Callable[..., Any]) -> None:
        self.compiled = compiled
        self.made_by: type[Any] | None = None  # the class of the results' node of autograd

    def __call__(self, *args: Any) -> list[torch.Tensor]:
        results = self.compiled(*args)
        for x in results:
            node = x.grad_fn if isinstance(x, torch.Tensor) else None
            if node is None:
                continue
            if self.made_by is None and is_compiled(node) and all(x is not arg for arg in args):
                self.made_by = type(node)
            if type(node) is self.made_by:
                node.set_materialize_grads(False)
                break
        return results


def sizes_vary(inputs: list[torch.Tensor]) -> bool:
    """Whether a graph is made for inputs whose sizes are symbols."""
    return any(
        not isinstance(n, int)
        for x in inputs
        for n in (x.shape if isinstance(x, torch.Tensor) else (x,))
    )
