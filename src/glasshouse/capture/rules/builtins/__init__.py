"""Rules for Python's own functions, classes and methods: tables of rule(t, fn, args, kwargs, then).

`builtin_rules` has the tables of functions and classes; the rules that need more than a few lines
stand in files beside it. `methods` calls methods of builtin types; `container_methods`,
`set_methods` and `polyfilled_methods` have those of containers. Read `builtin_rules`
first."""
