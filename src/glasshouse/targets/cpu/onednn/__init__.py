"""Products and convolutions through oneDNN.

`library` has its C API and `call.c`, which runs a primitive; `lowerer` makes a primitive a step;
`convolutions`, `products` and `symmetric_products` are lowerers; `tiled_reorders` and `transposes`
copy faster than oneDNN's own reorders. Nodes enter, steps leave. Read `library`, then `lowerer`,
then `products`."""
