"""The parts of a plan: buffers, views of memory, expressions, steps and kinds of work.

`view` says where an element lies, `expr` what a fused kernel computes, `steps` has buffers and
fused kernels, `emitted` what a step is once written, `work` what its time is predicted from.
Plain data, without a graph or a machine. Read `view`, then `expr`, then `steps`."""
