"""PyTorch's tensors as our engine sees them: dtypes, sizes, layouts, memory.

`layout` says how a tensor lies in memory, `access` reads and makes tensors in C (`tensor_call.c`),
`guard` checks the guards of captured calls on them (`tensor_guard.c`). `storage_parts` makes our
memory resizable; `system_heap` models the C library's allocator. Tensors come in, specs and
payloads go out. Read `dtypes`, then `layout`."""
