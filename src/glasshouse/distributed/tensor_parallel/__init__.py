"""Layers that several ranks compute together, each with a part of weights or of the sequence.

`styles` says how a layer is shared out, by `patterns` of module names; `layout` what enters and
leaves it; `vocabulary` has embeddings and cross-entropy in parts, `context` attention over a
sequence in parts. A model enters and leaves with the parameters of one rank. Read `styles`, then
`vocabulary`."""
