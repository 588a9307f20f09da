"""From a recording to a Program: lowering, fusion, schedule, memory plan, C, cache, source map.

Rooms from the ground up: `building` (the C compiler and its cache), `steps` (the parts of a plan),
`kernels` (their text), `lowering` (from graph to steps), `planning` (order and memory), `programs`
(found, compiled, stored and run). Read them from `programs/program.py` down."""
