"""Captured graphs as Programs: compiled, bound to their callers, and run.

`program_compiler` makes a Program in the first run (`first_run`), `captured_program` runs it in
later ones, and `backward_program` differentiates it. `run_payloads` has the inputs and
results of a run; `tape_nodes` puts the graph on the tape. A graph comes in, a function of its
inputs goes out. Read `program_compiler`, then `captured_program`."""
