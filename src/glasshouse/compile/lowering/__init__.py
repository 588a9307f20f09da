"""From a graph to steps: lowerers of nodes, memory for values, and fusion.

`target` is what a Program is compiled for, with its `lowerer`s in order; `lower` asks them and
picks layouts, `fuse` joins kernels, `source_map` leads back to recorded calls, `missing_kernels`
says what no kernel computes. A graph enters, steps leave. Read `lowerer`, then `lower`, then
`fuse`."""
