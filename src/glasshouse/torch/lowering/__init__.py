"""From a graph of torch.fx to a Program on PyTorch's own memory.

`interpreter` runs a graph once through the table of `aten` and records primitives; `variant` is the
Program for one set of sizes. `results` lays results out as PyTorch does; `host` runs operators
without an entry. `lowering_cache` has lowered graphs on disk. A graph and tensors come in, tensors
go out. Read `interpreter`, then `variant`."""
