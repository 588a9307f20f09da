"""PyTorch programs on our engine and under our tools, in rooms from the ground up.

`patches`, every private name of PyTorch; `tensors`, `scopes`; `aten`, the operators that PyTorch's
graphs are made of, as compositions of cards, and `formulas` of what fused ones compute; `lowering`,
from a graph to a Program; `observe`, eager code under counter and profiler; `ahead`, steps without
running them; `backend`, what `torch.compile(model, backend="glasshouse")` finds; `front`,
gh.optimize on PyTorch programs."""

from glasshouse.torch import accelerate_names as accelerate_names
