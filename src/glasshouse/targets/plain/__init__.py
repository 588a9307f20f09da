"""The targets of folders of C: `plain`, whose kernels need nothing but libc and libm, and `onednn`.

    target.py         lowerers: those of `cpu` that need no library, twins, and oneDNN's
    products.py       products of matrices
    convolutions.py   convolutions and their gradients

Read `products.py` and its header first."""

from glasshouse.targets.plain.target import ONEDNN, PLAIN
