"""PyTorch's trees: functions on nested containers of values."""

from typing import Any

from glasshouse.torch.patches.names import private

TREES = "torch.utils._pytree"
tree_map: Any = private(f"{TREES}:tree_map", "2.6", "apply a function to all values in containers")
tree_map_only: Any = private(
    f"{TREES}:tree_map_only", "2.6", "apply a function to the tensors in containers"
)
tree_leaves: Any = private(f"{TREES}:tree_leaves", "2.6", "list all values in containers")
tree_flatten: Any = private(
    f"{TREES}:tree_flatten", "2.6", "list values, and how containers hold them"
)
tree_unflatten: Any = private(
    f"{TREES}:tree_unflatten", "2.6", "put values back in their containers"
)
