"""The target `plain`: kernels in C that need nothing but libc and libm.

    target.py         its lowerers: those of `cpu` that need no library, and twins
    products.py       products of matrices
    convolutions.py   convolutions and their gradients

Read `products.py` and its header first."""

from glasshouse.targets.plain.target import PLAIN
