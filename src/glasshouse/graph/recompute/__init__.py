"""Recomputation: the request for it, and the passes that rewrite a graph of both passes to do it.

`request` says what backward may compute again; `values` names the values of a graph; `recompute`
computes cheap values where they are read, `rerun` whole modules; a graph enters and one that
computes the same leaves. What to ask for is planned in `analyze/planner`. Read `request`, then
`recompute`, then `rerun`."""
