"""Ranks: groups and meshes of them, their meeting, and the placement of tensors on them.

`store` and `rendezvous` bring processes together; `membership` has the world and its groups, `mesh`
a grid of ranks, `placement` what part of a tensor each holds. `functions` are collectives on
tensors, `objects` on pickled objects. Tensors enter and leave. Read `membership`, then `functions`,
then `mesh` and `placement`."""
