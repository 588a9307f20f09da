"""Recomputation: the request for it, and the passes that rewrite a graph of both passes to do it.

`request` lists the values to recompute; `values` names the values of a graph; `recompute`
computes cheap values where they are read, `rerun` whole modules; a graph enters and an equivalent
one leaves. `analyze/planner` plans the requests. Read `request`, then `recompute`, then
`rerun`."""
