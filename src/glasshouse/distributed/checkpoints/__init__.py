"""Checkpoints of several ranks: each writes its own part, and any number of ranks reads them.

`named_state` names the state of model and optimizer without ranks, `boxes` which part of a tensor a
file holds; `checkpoint` writes folders, `resume` reads them. State enters and leaves by names,
through safetensors files. Read `boxes`, then `checkpoint`, then `resume`."""
