"""The text of fused kernels in C, and the kernels compiled from it.

`c_text` writes types, numbers and cards; `loops` and `reductions` are parts of a kernel;
`kernel_writer`, `expr_writer` and `emit_c` put its text together, `kernel_pattern` finds equal
ones, `kernel_cache` compiles each text once. Steps enter, C functions leave. Read `c_text`, then
`emit_c`."""
