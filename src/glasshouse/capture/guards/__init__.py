"""Guards: the conditions that a trace relied on, and their checks in later calls.

Rules add guards to the set of their trace (`guard_set`), on classes (`class_reads`) and on outcomes
of expressions (`outcomes`), too. They become one program (`program`); C checks it in each call, and
it prints as Python. `reasons` says why guards refused a call. `read_audit` changes each value that
was read: its guard must refuse. Vars come in, guards go out. Read `program`, then `class_reads`."""
