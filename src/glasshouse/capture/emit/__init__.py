"""The replacement of a captured function: Python code that repeats the trace.

`replacement` writes it: it checks nothing, reads inputs (`expressions`), runs the graph, does the
logged writes, and ends (`continuation`): it returns, raises, or has Python run the step that broke
the graph and then calls a resume function. A finished trace comes in, a code object goes out. Read
`replacement` first."""
