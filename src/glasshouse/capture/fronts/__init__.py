"""Front ends: the tensors, modules and optimizers of a library in a trace.

`glasshouse_front` is our own, made of `tensor_front` (tensors) and `module_front` (layers,
contexts). `network_front` is shared by all libraries. `registry` loads others with their
library: PyTorch's is in `glasshouse.torch`. Read `glasshouse_front` first."""
