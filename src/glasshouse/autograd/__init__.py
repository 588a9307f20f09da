"""Reverse-mode gradients: the tape, the backward walk, user-defined functions."""

from glasshouse.autograd.backward import backward, grad
from glasshouse.autograd.function import Function
from glasshouse.autograd.offload import saved_on_host
from glasshouse.autograd.tape import (
    enable_grad,
    is_grad_enabled,
    no_grad,
    saved_tensors_hooks,
    set_grad_enabled,
)
