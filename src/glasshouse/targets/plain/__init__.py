"""The target `plain`: kernels in C that need nothing but libc and libm."""

from glasshouse.targets.plain.target import PLAIN
