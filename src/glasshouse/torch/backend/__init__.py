"""The backend of `torch.compile(backend="glasshouse")`.

`entry_point` takes graphs of TorchDynamo and AOTAutograd; `partition` chooses the values that the
forward pass keeps; `runtime` calls a Program per set of sizes; `graph_cache` keeps graphs on disk.
`trace_hooks` and `lean_trace` are about the time in which TorchDynamo traces. Read `entry_point`,
then `runtime`."""
