"""ZeRO: the ranks of data parallel share out optimizer state (1), gradients (2), parameters (3).

`rows` gathers and cuts several tensors by one collective; `units` are parts of a model that gather
their parameters when they are called; `zero` makes an optimizer for each rank's share. A model and
an optimizer enter, an optimizer with the same interface leaves. Read `zero`, then `units`."""
