"""jax.nn's names with jax.nn's meaning; `initializers` beside them.

Activations are functions of elements. Read `activations.py`, then `initializers.py`: each of its
functions gives an initializer, a function of a key, a shape and a dtype.
"""

from glasshouse.jax.nn import initializers
from glasshouse.jax.nn.activations import *
