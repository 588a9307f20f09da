"""Ranks: groups and meshes of them, their meeting, and the placement of tensors on them.

`store` and `rendezvous` bring processes together; `membership` has the world and its groups, `mesh`
a grid of ranks, `placement` the part of a tensor that each holds. `functions` are collectives on
tensors, `objects` on pickled objects. Inputs and outputs are tensors. Read `membership`, then
`functions`, then `mesh` and `placement`."""
