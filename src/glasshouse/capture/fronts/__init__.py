"""Front ends: what a library's tensors, modules and optimizers mean to a trace.

`glasshouse_front` is that of our own, made of `tensor_front` (tensors) and `module_front` (layers,
contexts); `network_front` is what those of all libraries share. `registry` loads others with their
library: PyTorch's is in `glasshouse.torch`. Read `glasshouse_front` first."""
