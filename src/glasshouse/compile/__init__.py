"""From a recording to a Program: lowering, fusion, schedule, memory plan, C, cache, source map.

Rooms from the ground up: `building` (the C compiler and its cache), `steps` (what a plan is made
of), `kernels` (their text), `lowering` (from graph to steps), `planning` (order and memory),
`programs` (what is found, compiled, stored and run). Read them from `programs/program.py` down."""
