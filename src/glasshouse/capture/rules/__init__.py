"""Rules for instructions, operations, builtins and methods: rule(trace, function, arguments).

`opcodes` has a rule per instruction; `operators`, `attributes`, `subscripts`, `containers` and
`iteration` are Python's protocols, `numbers` is arithmetic on numbers that differ from call to
call; `calls` decides whether a call is inlined, folded, put into the graph, or breaks it;
`builtins` has tables of functions with separate rules. Each computes the real result, adds the
guards that it relies on, and logs its writes. Read `constants`, then `operators`."""
