"""Layers that several ranks compute together, each with a part of weights or of the sequence.

`styles` shares out layers, by `patterns` of module names; `layout` places their inputs and outputs;
`vocabulary` has embeddings and cross-entropy in parts, `context` attention over a sequence in
parts. A model enters and leaves with the parameters of one rank. Read `styles`, then
`vocabulary`."""
