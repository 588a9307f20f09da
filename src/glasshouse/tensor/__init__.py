"""Tensors and the array functions: compositions of primitives, named as in the Array API."""

from glasshouse.tensor import fft, linalg, random, special
from glasshouse.tensor.contract import *
from glasshouse.tensor.creation import *
from glasshouse.tensor.elementwise import *
from glasshouse.tensor.index import *
from glasshouse.tensor.manipulate import *
from glasshouse.tensor.methods import Tensor
from glasshouse.tensor.namespace import *
from glasshouse.tensor.printing import set_print_options
from glasshouse.tensor.reduce import *
from glasshouse.tensor.reduce import cumulative_prod as cumprod
from glasshouse.tensor.reduce import cumulative_sum as cumsum
from glasshouse.tensor.search import *
