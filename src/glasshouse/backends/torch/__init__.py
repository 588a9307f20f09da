"""PyTorch's kernels as a backend, on the CPU or a CUDA device. Its autograd is not used."""

from glasshouse.backends.torch.backend import Backend

__all__ = ["Backend"]
