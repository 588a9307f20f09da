"""Steps of PyTorch models ahead of time: memory, FLOPs and time without running them.

`eager` is a step as PyTorch itself runs it, `compiled` one on our engine, `captured` one that
`gh.optimize` captures whole; all run on tensors without contents (`no_contents`), Programs planned
but not run (`planned`). `node_trace` and `node_costs` are for tables of layers. A model and a batch
come in, an analysis goes out. Read `eager`, then `compiled`."""
