"""Linear algebra: `gh.linalg`, the Array API's extension and what PyTorch has beside it."""

from glasshouse.tensor.linalg.indefinite import ldl_factor, ldl_factor_ex, ldl_solve
from glasshouse.tensor.linalg.more import *
from glasshouse.tensor.linalg.standard import *
