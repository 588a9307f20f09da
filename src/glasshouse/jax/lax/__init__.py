"""jax.lax's names with jax.lax's meaning: `from glasshouse.jax import lax`.

Its loops and conditions are those of `gh`. Read `primitives.py` for functions of elements, shapes
and axes, then `windows.py` for convolutions and windows.
"""

from glasshouse.jax.lax.primitives import *
from glasshouse.jax.lax.windows import *
