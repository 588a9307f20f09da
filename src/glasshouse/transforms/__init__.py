"""Function transforms: derivatives, batching and checkpointing, freely nested."""

from glasshouse.transforms.checkpoint import checkpoint
from glasshouse.transforms.custom import custom_jvp, custom_vjp, stop_gradient
from glasshouse.transforms.forward import jvp
from glasshouse.transforms.jacobian import hessian, hvp, jacfwd, jacobian, jacrev
from glasshouse.transforms.linear import eval_shape, linear_transpose, linearize
from glasshouse.transforms.loops import cond, fori_loop, switch, while_loop
from glasshouse.transforms.reverse import grad, value_and_grad, vjp
from glasshouse.transforms.scan import scan
from glasshouse.transforms.vmap import vmap

__all__ = ["checkpoint", "cond", "custom_jvp", "custom_vjp", "eval_shape",
           "fori_loop", "grad", "hessian", "hvp", "jacfwd", "jacobian", "jacrev",
           "jvp", "linear_transpose", "linearize", "scan", "stop_gradient", "switch",
           "value_and_grad", "vjp", "vmap", "while_loop"]  # fmt: skip
