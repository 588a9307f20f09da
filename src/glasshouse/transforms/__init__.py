"""Function transforms: derivatives, batching and checkpointing, freely nested."""

from glasshouse.transforms.checkpoint import checkpoint
from glasshouse.transforms.forward import jvp
from glasshouse.transforms.jacobian import hessian, hvp, jacfwd, jacobian, jacrev
from glasshouse.transforms.reverse import grad, value_and_grad, vjp
from glasshouse.transforms.scan import scan
from glasshouse.transforms.vmap import vmap

__all__ = ["checkpoint", "grad", "hessian", "hvp", "jacfwd", "jacobian", "jacrev", "jvp", "scan",
           "value_and_grad", "vjp", "vmap"]  # fmt: skip
