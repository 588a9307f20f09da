"""The interpreter: runs a function's bytecode on real values once, and records how to repeat it.

`tracer` is the loop over instructions. Its parts own the state of a trace: `frame_stack`,
`heap` (known objects), `effects` (writes to repeat later), `varying` and `operands` here, the
guards in `guards/guard_set`. `front` is the interface of a library of tensors. A function and its
arguments come in; a graph, guards and a log of writes go out. Read `tracer`, `heap`, then
`front`."""
