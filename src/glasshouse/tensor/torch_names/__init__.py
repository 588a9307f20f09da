"""Array functions that PyTorch has beside the standard's, under PyTorch's names.

Each is composed of functions of `standard`, `special` and `linalg`; most become methods of Tensor
(`tensor/methods.py`) and functions of `gh` (`tensor/synonyms.py`). Tensors enter and leave; results
are new tensors, never views. Read `arrange` and `joining`, then `scatter`."""
