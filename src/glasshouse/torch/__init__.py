"""PyTorch programs on our engine: `torch.compile(model, backend="glasshouse")`.

The operators of ATen that PyTorch's graphs are made of are compositions of cards, in `aten`, one
short function each. `lowering` runs a graph of torch.fx through that table and records a Program;
`runtime` calls it on torch's own memory; `backend` is what torch.compile finds."""

from glasshouse.torch import accelerate_names as accelerate_names
