"""CPython's bytecode, and the C of the frame hook.

`instructions` decodes a code object, says which locals an instruction still needs, and writes code
that starts in the middle of a function. `native` is the frame hook; `tracebacks` and `lines` find
the user's lines; `skipped` names the modules that are never interpreted. Nothing here knows traces:
code objects come in, lists of instructions and code objects go out. Read `instructions` first."""
