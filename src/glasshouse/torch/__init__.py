"""PyTorch programs on our engine and under our tools, in rooms from the ground up.

`patches`, every private name of PyTorch; `tensors`, layouts and memory; `scopes`, modules, passes
and modes; `aten`, PyTorch's operators as compositions of cards, and `formulas`, costs of operators
outside of Programs; `lowering`, from a graph to a Program; `observe`, eager code under counter and
profiler; `ahead`, steps analysed without running them; `backend`, the backend of
`torch.compile(model, backend="glasshouse")`; `front`, gh.optimize on PyTorch programs."""

from glasshouse.torch import accelerate_names as accelerate_names
