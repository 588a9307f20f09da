"""The capture of one call, and the entries for later calls.

`dispatching` takes a call that no entry answers; `session` traces it, compiles the graph and
installs an entry; `entries` has the entries of a function. `config` has the settings and counters,
`export` one graph of a whole function, `reproduce` a script of a compiler's failure. Read
`dispatching`, then `session`."""
