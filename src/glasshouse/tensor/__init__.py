"""Tensors and the array functions: compositions of primitives, named as in the Array API."""

from glasshouse.tensor import calling, fft, linalg, random, special
from glasshouse.tensor.standard.contract import *
from glasshouse.tensor.standard.creation import *
from glasshouse.tensor.standard.creation import tensor
from glasshouse.tensor.standard.elementwise import *
from glasshouse.tensor.standard.index import *
from glasshouse.tensor.standard.manipulate import *
from glasshouse.tensor.methods import Tensor
from glasshouse.tensor.standard.namespace import *
from glasshouse.tensor.printing import set_print_options
from glasshouse.tensor.standard.reduce import *
from glasshouse.tensor.standard.reduce import cumulative_prod as cumprod
from glasshouse.tensor.standard.reduce import cumulative_sum as cumsum
from glasshouse.tensor.standard.search import *
