"""The interpreter: runs a function's bytecode on real values once, and learns to do it again.

`tracer` is the loop over instructions. It is made of parts that own what is learned: `frame_stack`,
`heap` (known objects), `effects` (what later calls repeat), `varying` and `operands` here, the
guards in `guards/guard_set`. `front` is the interface of a library of tensors. A function and its
arguments come in; a graph, guards and a log of writes go out. Read `tracer`, `heap`, then
`front`."""
