"""The target `plain c`: which lowerers it has, in which order, and how its kernels are built.

Fused kernels, pooling and scattering are the CPU's lowerers: their text is C whose OpenMP is in
pragmas, which this dialect leaves out. Products and convolutions are plain loops."""

from glasshouse.targets import Dialect, Target
from glasshouse.targets.cpu import FusedLowerer, HostLowerer, ScatterKernels, WindowKernels
from plain_c.convolutions import PlainConvolutions
from plain_c.products import PlainProducts

PLAIN_C = Target(
    "plain c",
    [PlainProducts(), PlainConvolutions(), WindowKernels(), ScatterKernels()],
    fused=FusedLowerer(),
    host=HostLowerer(),
    dialect=Dialect(options=("-fno-openmp",), openmp=False),
)
