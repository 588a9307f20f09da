"""The array functions of the library by one name each, from which JAX's are made.

Nothing is defined here: functions of the standard come first, then those with names of PyTorch.
Read `numpy/arrays.py`, which uses them.
"""

from glasshouse.tensor.linalg import eigvals, solve_triangular
from glasshouse.tensor.special import *
from glasshouse.tensor.standard.arithmetic import *
from glasshouse.tensor.standard.contract import *
from glasshouse.tensor.standard.creation import *
from glasshouse.tensor.standard.elementwise import *
from glasshouse.tensor.standard.index import *
from glasshouse.tensor.standard.manipulate import *
from glasshouse.tensor.standard.namespace import *
from glasshouse.tensor.standard.reduce import *
from glasshouse.tensor.standard.search import *
from glasshouse.tensor.synonyms import *
from glasshouse.tensor.torch_names.arrange import *
from glasshouse.tensor.torch_names.counts import *
from glasshouse.tensor.torch_names.joining import *
from glasshouse.tensor.torch_names.creation import *
from glasshouse.tensor.torch_names.matrices import *
from glasshouse.tensor.torch_names.products import *
from glasshouse.tensor.torch_names.scans import *
from glasshouse.tensor.torch_names.scatter import *
from glasshouse.tensor.torch_names.statistics import *
