"""Special functions: `gh.special`, composed of cards.

`functions` has the public ones; `gamma`, `bessel` and `error_functions` are formulas by family,
mostly in float64; `series` has the coefficients of their Chebyshev series. Tensors enter and leave,
rounded to the dtype of the arguments. Read `functions`, then `gamma`."""

from glasshouse.tensor.special.functions import *
