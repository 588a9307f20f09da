"""Stochastic gradient descent."""

from glasshouse.base.errors import OptionError
from glasshouse.optim.optimizer import NON_NEGATIVE, Optimizer, options


class SGD(Optimizer):
    """Gradient descent with momentum.
    g = grad + weight_decay * p
    b = momentum * b + (1 - dampening) * g          (b = g at the first step)
    p = p - lr * b,  or with Nesterov  p - lr * (g + momentum * b)
    Raises: OptionError for options out of range, or Nesterov without momentum or with dampening.
    Source: Sutskever et al. 2013, "On the importance of initialization and momentum in deep
    learning"; with the learning rate outside the buffer, as PyTorch has it.
    Example: >>> p = gh.tensor([1.0], requires_grad=True)
             >>> opt = SGD([p], lr=0.1)
             >>> (p * 2).sum().backward()
             >>> opt.step()
             >>> p.tolist()
             [0.800000011920929]"""

    ranges = {"lr": NON_NEGATIVE, "momentum": NON_NEGATIVE,
              "dampening": (float("-inf"), float("inf")), "weight_decay": NON_NEGATIVE}  # fmt: skip
    optional = ("momentum_buffer",)
    counts_steps = False

    def __init__(self, params, lr: float = 1e-3, momentum: float = 0.0, dampening: float = 0.0,
                 weight_decay: float = 0.0, nesterov: bool = False, *,
                 maximize: bool = False):  # fmt: skip
        super().__init__(params, options(locals()))

    def check_options(self, options):
        super().check_options(options)
        if options["nesterov"] and (options["momentum"] == 0 or options["dampening"] != 0):
            raise OptionError("SGD", "momentum > 0 and dampening 0 with nesterov",
                              f"momentum={options['momentum']}, "
                              f"dampening={options['dampening']}", "Change them.")  # fmt: skip

    def change(self, grad, state, group):
        momentum = group["momentum"]
        if momentum:
            buffer, kept = state.get("momentum_buffer"), 1 - group["dampening"]
            if buffer is not None:
                buffer = buffer * momentum + (grad if kept == 1 else grad * kept)
            buffer = state["momentum_buffer"] = grad if buffer is None else buffer
            grad = grad + buffer * momentum if group["nesterov"] else buffer
        return grad * -float(group["lr"])
