"""Programs: found by the structure of a recording, compiled if need be, stored, and run.

`recording` is the base of backends that record; `program` finds a Program, `code` and `store` keep
its data, `executable` runs it in its `run_memory`, where results of parameters stay from run to
run, `between_ranks` its collectives; `binding` says where callers have inputs and results;
`replay` makes calls again in C. A recording and payloads enter, payloads leave. Read `program`,
then `executable`, then `binding`."""
