"""Programs: found by the structure of a recording, compiled if need be, stored, and run.

`recording` is what backends that record share; `program` finds a Program, `code` and `store` keep
what it needs, `executable` runs it, `between_ranks` its collectives; `replay` makes calls again in
C. A recording and payloads enter, payloads leave. Read `program`, then `executable`, then
`replay`."""
