"""Weights that a hook computes before each forward, from parameters with other names: weight and
spectral norm as older programs have them. New ones use `parametrizations`."""

from typing import Any

from glasshouse.autograd import no_grad
from glasshouse.base.errors import OptionError, suggest
from glasshouse.nn.checks import check_positive
from glasshouse.nn.functional.norm import normalize
from glasshouse.nn.module import Module, Parameter
from glasshouse.nn.utils import parametrizations
from glasshouse.tensor import Tensor, matmul

__all__ = ["remove_spectral_norm", "remove_weight_norm", "spectral_norm", "weight_norm"]


class Recomputed:
    """A hook before forward that sets the attribute `name` of the module to `compute(module)`."""

    name: str

    def compute(self, module: Module) -> Any:
        raise NotImplementedError(f"{type(self).__name__}: expected compute; got none. Define it.")

    def __call__(self, module: Module, inputs: tuple[Any, ...]) -> None:
        setattr(module, self.name, self.compute(module))

    def attach(self, where: str, module: Module) -> Tensor:
        """Register the hook, and take the parameter away, which is returned."""
        taken_parameter = check_parameter(where, module, self.name)
        del module._parameters[self.name]
        module.register_forward_pre_hook(self)
        return taken_parameter

    @classmethod
    def detach(cls, where: str, module: Module, name: str) -> Any:
        """The hook of this class for `name`, no longer registered."""
        for handle, hook in module._forward_pre_hooks.items():
            if isinstance(hook.function, cls) and hook.function.name == name:
                handle.remove()
                return hook.function
        names = [hook.name for hook in recomputed_by(module) if isinstance(hook, cls)]
        fix = suggest(name, names)
        raise OptionError(where, f"a parameter under {cls.__name__}", repr(name), fix)


def recomputed_by(module: Module) -> list[Recomputed]:
    """The hooks of a module that compute weights."""
    hooks = (hook.function for hook in module._forward_pre_hooks.values())
    return [hook for hook in hooks if isinstance(hook, Recomputed)]


def check_parameter(where: str, module: Module, name: str) -> Parameter:
    if module._parameters.get(name) is None:
        expected = f"the name of a parameter of {type(module).__name__}"
        raise OptionError(where, expected, repr(name), suggest(name, module._parameters))
    return module._parameters[name]


def restore(module: Module, name: str, value: Tensor, *gone: str) -> Module:
    """`module` with this value as parameter `name`, without the tensors it was computed from."""
    for other in gone:
        delattr(module, other)
    module.__dict__.pop(name, None)
    module.register_parameter(name, Parameter(value.detach()))
    return module


class RecomputedWeightNorm(Recomputed):
    """g · v / ‖v‖ of the parameters `name`_g and `name`_v."""

    name: str
    dim: int | None

    def __init__(self, name: str, dim: int | None) -> None:
        self.name, self.dim = name, None if dim == -1 else dim

    def compute(self, module: Module) -> Any:
        g, v = getattr(module, f"{self.name}_g"), getattr(module, f"{self.name}_v")
        return parametrizations.scaled_direction(v, g, self.dim)


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """`module` with weight g · v / ‖v‖ of the parameters weight_g and weight_v.

    Raises: OptionError for a name that is none of its parameters, or has a weight norm.
    Source: Salimans & Kingma 2016, arXiv:1602.07868, eq. 2.
    Example:
        >>> sorted(weight_norm(gh.nn.Linear(3, 2)).state_dict())
        ['bias', 'weight_g', 'weight_v']
    """
    hook = RecomputedWeightNorm(name, dim)
    weight = hook.attach("weight_norm", module)
    with no_grad():
        g = parametrizations.norm_but(weight, hook.dim)
    module.register_parameter(f"{name}_g", Parameter(g))
    module.register_parameter(f"{name}_v", Parameter(weight.detach()))
    hook(module, ())
    return module


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """`module` with a plain parameter again, of the present value.

    Raises: OptionError for a parameter without weight norm.
    """
    hook = RecomputedWeightNorm.detach("remove_weight_norm", module, name)
    return restore(module, name, hook.compute(module), f"{name}_g", f"{name}_v")


class RecomputedSpectralNorm(Recomputed):
    """weight / σ of the parameter `name`_orig; the buffers `name`_u and `name`_v are its singular
    vectors, which move on in each forward while training."""

    def __init__(self, name: str, n_power_iterations: int, dim: int, eps: float) -> None:
        check_positive("spectral_norm", n_power_iterations=n_power_iterations)
        self.name = name
        self.n_power_iterations = n_power_iterations
        self.dim = dim
        self.eps = eps

    def compute(self, module: Module) -> Any:
        return self.normed(module, module.training)

    def normed(self, module: Module, moves: bool) -> Any:
        weight = getattr(module, f"{self.name}_orig")
        u, v = getattr(module, f"{self.name}_u"), getattr(module, f"{self.name}_v")
        matrix = parametrizations.as_rows(weight, self.dim)
        if moves:
            fixed = matrix.detach()
            with no_grad():
                for _ in range(self.n_power_iterations):
                    v.copy_(normalize(matmul(u, fixed), dim=0, eps=self.eps))
                    u.copy_(normalize(matmul(fixed, v), dim=0, eps=self.eps))
        return weight / parametrizations.largest_value(matrix, u.detach(), v.detach())


def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Module:
    """`module` with weight weight_orig / σ, σ being the largest singular value.

    Raises: OptionError for a name that is none of its parameters, or no iterations.
    Source: Miyato et al. 2018, arXiv:1802.05957, algorithm 1.
    Example:
        >>> sorted(spectral_norm(gh.nn.Linear(3, 2)).state_dict())
        ['bias', 'weight_orig', 'weight_u', 'weight_v']
    """
    hook = RecomputedSpectralNorm(
        name, n_power_iterations, parametrizations.default_dim(module, dim), eps
    )
    weight = hook.attach("spectral_norm", module)
    matrix = parametrizations.as_rows(weight.detach(), hook.dim)
    module.register_parameter(f"{name}_orig", weight)
    setattr(module, name, weight.detach())
    module.register_buffer(f"{name}_u", parametrizations.unit_vector(matrix.shape[0], matrix, eps))
    module.register_buffer(f"{name}_v", parametrizations.unit_vector(matrix.shape[1], matrix, eps))
    return module


def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """`module` with a plain parameter again, of the present value.

    Raises: OptionError for a parameter without spectral norm.
    """
    hook = RecomputedSpectralNorm.detach("remove_spectral_norm", module, name)
    value = hook.normed(module, False)
    return restore(module, name, value, *(f"{name}_{part}" for part in ("orig", "u", "v")))
