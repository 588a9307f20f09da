"""From a graph to steps: who computes a node, which values get memory, and what is fused.

`target` is what a Program is compiled for, with its `lowerer`s in order; `lower` asks them and
picks layouts, `fuse` joins kernels, `source_map` leads back to recorded calls, `missing_kernels`
says what no kernel computes. A graph enters, steps leave. Read `lowerer`, then `lower`, then
`fuse`."""
