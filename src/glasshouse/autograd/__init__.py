"""Reverse-mode gradients: the tape, the backward walk, user-defined functions."""

from glasshouse.autograd.backward import backward, grad
from glasshouse.autograd.function import Function
from glasshouse.autograd.offload import saved_on_host
from glasshouse.autograd.tape import *
