"""Frames of the interpreter, and the iterators that it steps itself.

A `Frame` (`frame`) has a stack, locals, cells and blocks of Vars. A generator that the interpreter
began becomes one of Python's own in `generator_remainder`, an iterator in `iterator_places` and
`polyfill_natives`. `surroundings` is the context (modes, grad) that a frame runs in. Read `frame`
first."""
