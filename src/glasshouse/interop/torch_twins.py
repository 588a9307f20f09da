"""The benchmark's models in PyTorch: their own source, run with `torch.nn` where it imports ours.

So both frameworks train the same lines, and one set of weights fits both. Each function takes the
options of its model here and returns a `torch.nn.Module`."""

import builtins
import functools
import importlib.util
from types import SimpleNamespace

from glasshouse.interop.torch import import_torch


@functools.cache
def names_in_torch(module: str) -> dict:
    """What the source of a module of models defines if PyTorch stands where it imports Glasshouse's
    layers and array functions; errors and checks stay ours."""
    torch, values = import_torch(), SimpleNamespace(as_value=lambda x, where: x)
    instead = {"glasshouse": torch, "glasshouse.nn.functional": torch.nn.functional,
               "glasshouse.tensor": torch, "glasshouse.tensor.creation": torch,
               "glasshouse.dispatch.value": values}  # fmt: skip

    def import_instead(name: str, *rest):
        return instead[name] if name in instead else builtins.__import__(name, *rest)

    names = {"__name__": f"torch twin of {module}",
             "__builtins__": {**vars(builtins), "__import__": import_instead}}  # fmt: skip
    exec(importlib.util.find_spec(module).loader.get_code(module), names)
    return names


def twin(module: str, name: str):
    """The function that makes the twin of a model: `name` in a module of models."""

    def make(**options):
        return names_in_torch(f"glasshouse.{module}")[name](**options)

    make.__name__, make.__doc__ = name, f"The twin of `gh.{module}.{name}`."
    return make


alexnet = twin("vision.models.alexnet", "alexnet")
vgg16 = twin("vision.models.vgg", "vgg16")
resnet18 = twin("vision.models.resnet", "resnet18")
resnet50 = twin("vision.models.resnet", "resnet50")
vit_b_16 = twin("vision.models.vit", "vit_b_16")
bert = twin("text.models", "BertLike")
asr = twin("speech.models", "AsrTransformer")

TWINS = {"alexnet": alexnet, "vgg16": vgg16, "resnet18": resnet18, "resnet50": resnet50,
         "vit_b_16": vit_b_16, "bert": bert, "asr": asr}  # fmt: skip
