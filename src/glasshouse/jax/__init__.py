"""JAX's names with JAX's meaning, for programs whose imports are changed: `import glasshouse.jax as
jax`, `import glasshouse.jax.numpy as jnp`, and `lax`, `nn`, `random` beside them. A name with the
same meaning in `gh` is the same object."""

from glasshouse.base import Spec as ShapeDtypeStruct
from glasshouse.base import tree
from glasshouse.capture.jit import jit
from glasshouse.capture.jit import make_graph as make_jaxpr
from glasshouse.jax import lax, nn, numpy, random
from glasshouse.jax.api import *
from glasshouse.tensor import Tensor as Array
from glasshouse.transforms import (
    custom_jvp,
    custom_vjp,
    eval_shape,
    grad,
    hessian,
    jacfwd,
    jacobian,
    jacrev,
    jvp,
    linear_transpose,
    linearize,
    value_and_grad,
    vjp,
)
