"""The values that the interpreter computes with, and their origins.

A `Var` (`var`) is a real value with its origin. `plain` reads classes and objects
without running the user's code; `signatures` and `arities` bind arguments; `polyfills` are builtins
written in Python, so that calls out of them are seen. Python objects come in, Vars go out. Read
`var`, then `plain`."""
