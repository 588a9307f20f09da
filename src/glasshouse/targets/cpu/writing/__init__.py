"""Shared parts of the cpu's lowerers: handwritten kernels' texts, layouts, product epilogues.

`handwritten` puts headers and a step's text together, `layouts` says how operands have to lie,
`epilogues` finds a bias and a relu that can be done with a product. Nodes enter, claims and texts
leave. Read `handwritten`, then `epilogues`."""
