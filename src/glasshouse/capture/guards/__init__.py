"""Guards: the conditions that a trace relied on, and their checks in later calls.

Rules read the user's world through `class_reads`, `identity` and `outcomes`, which add guards to
one program (`program`); C checks it in each call, and it prints as Python. `reasons` says why
guards refused a call. `read_audit` changes each value that was read: its guard must refuse. Vars
come in, guards go out. Read `program`, then `class_reads`."""
