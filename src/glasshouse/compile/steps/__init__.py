"""The parts of a plan: buffers, views of memory, expressions, steps and kinds of work.

`view` has the places of elements, `expr` the computation of a fused kernel, `steps` buffers and
fused kernels, `emitted` steps with their code, `work` the numbers that predict their time. Plain
data, without a graph or a machine. Read `view`, then `expr`, then `steps`."""
