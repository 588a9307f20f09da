"""FLOPs of PyTorch's operators that no Program has, for the counter and the analysis.

`fused.py` has the table `FORMULAS`, `cost_of`, which enters a formula in it, and fused forms;
`products.py` has sparse, packed, quantised and grouped products. Importing this fills the table.
Read `fused` first."""

from glasshouse.torch.formulas.fused import FORMULAS
from glasshouse.torch.formulas.products import SPARSE, stored
