"""Kernels that are written by hand, a lowerer each; their C functions are in `../headers`.

Products (`bf16x6`, `amx`, `loop_products`, `fixed_products`, `widened_products`), convolutions
(`winograd`, `depthwise`, `bf16x6_convolutions`, `weight_gradients`), `windows`, `along_axis` and
`scatter`.
Nodes enter, steps leave. Read `scatter`, then `windows`, then `winograd`."""
