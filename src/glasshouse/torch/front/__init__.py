"""Capture's front end for PyTorch: gh.optimize on a PyTorch program.

`torch_front` is the front end. `names` lists which functions are nodes and which are not, `nodes`
makes nodes, `calls` and `functions` handle the others. `tensors`, `modules` and `state` guard the
values that a captured call relies on; `compilers` makes Programs of the graphs. Calls of a trace
come in, nodes and guards go out. Read `torch_front`, then `names`."""
