"""The position of a thread in a PyTorch model: its module, its pass and its modes.

`module_scope` names the module of a call and of a node of torch.fx; `passes` follows forward and
backward passes; `mode_readers` and `state_modes` read and set gradients, autocast and the like.
Read `module_scope`, then `passes`."""
