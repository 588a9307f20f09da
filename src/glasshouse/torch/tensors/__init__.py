"""PyTorch's tensors as our engine sees them: dtypes, sizes, layouts, memory.

`layout` says how a tensor lies in memory, `access` reads and makes tensors in C (`tensor_call.c`),
`guard` compares them with what a captured call relied on (`tensor_guard.c`). `storage_parts` and
`system_heap` are about memory that PyTorch may resize or takes from the system. Tensors come in,
specs and payloads go out. Read `dtypes`, then `layout`."""
