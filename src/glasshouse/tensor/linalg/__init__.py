"""Linear algebra: `gh.linalg`, the Array API's extension and PyTorch's additions.

`standard` has the extension, `more` PyTorch's additions, `indefinite` factors of symmetric matrices
that need not be positive definite. Stacks of matrices enter and leave. Read `standard`, then
`more`."""

from glasshouse.tensor.linalg.indefinite import ldl_factor, ldl_factor_ex, ldl_solve
from glasshouse.tensor.linalg.more import *
from glasshouse.tensor.linalg.standard import *
