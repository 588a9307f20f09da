"""The target `cpu`: kernels in C with OpenMP, products and convolutions through oneDNN."""

from glasshouse.targets.cpu.target import CPU
