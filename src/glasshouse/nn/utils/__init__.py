"""PyTorch's `torch.nn.utils`, under its name: gradients, parametrizations, pruning, sequences.

Modules and their parameters go in, and are changed. Read `parametrize.py`, on which
`parametrizations.py`, `prune.py` and `recomputed.py` stand; `clip_grad.py`; `rnn.py`."""

from glasshouse.nn.utils import parametrizations, parametrize, prune, rnn, stateless
from glasshouse.nn.utils.clip_grad import *
from glasshouse.nn.utils.fusion import *
from glasshouse.nn.utils.init import skip_init
from glasshouse.nn.utils.recomputed import *
from glasshouse.nn.utils.convert_parameters import parameters_to_vector, vector_to_parameters
