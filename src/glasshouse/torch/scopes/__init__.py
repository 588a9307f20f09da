"""Where a thread is in a model of PyTorch's, in which pass, and under which modes.

`module_scope` names the module of a call and of a node of torch.fx; `passes` follows forward and
backward passes; `mode_readers` and `state_modes` read and set gradients, autocast and the like.
Read `module_scope`, then `passes`."""
