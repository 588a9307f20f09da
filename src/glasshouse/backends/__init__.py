"""Plug-ins that compute primitives, one folder each, loaded by name; and how to choose one."""

from glasshouse.dispatch.backend import TensorBackend, available, current, load
from glasshouse.dispatch.backend import use_backend as use
