"""The interpreter: runs a function's bytecode on real values once, and learns to do it again.

`tracer` is the loop over instructions and holds all that is learned; `front` is the interface of a
library of tensors. A function and its arguments come in; a graph, guards and a log of writes
go out. Read `tracer`, then `front`, then `call_nodes`."""
