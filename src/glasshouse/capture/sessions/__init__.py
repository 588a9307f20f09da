"""The capture of one call, and what later calls find.

`dispatching` takes a call that no entry answers; `session` traces it, compiles the graph and
installs an entry; `entries` are what a function keeps. `config` has the settings and counters,
`export` one graph of a whole function, `reproduce` a script of a compiler's failure. Read
`dispatching`, then `session`."""
