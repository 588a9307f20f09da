"""From a graph to steps: lowerers of nodes, memory for values, and fusion.

`target` has the `lowerer`s of a Program in order; `lower` asks them and picks layouts, `fuse` joins
kernels, `source_map` leads back to recorded calls, `missing_kernels` explains steps of the host. A
graph enters, steps leave. Read `lowerer`, then `lower`, then `fuse`."""
