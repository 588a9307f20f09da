"""LoRA: low-rank adapters beside the weights of a trained model, of which they alone are trained.

An adapted layer keeps its class, its parameters and their names; the adapter is its child `lora`,
whose part a hook adds to the result."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from glasshouse.autograd import no_grad
from glasshouse.base.errors import CheckpointError, DTypeError, OptionError, suggest, type_name
from glasshouse.dispatch.value import reshape
from glasshouse.nn import init
from glasshouse.nn.checks import check_positive, check_probability
from glasshouse.nn.conv import Conv, ConvTranspose
from glasshouse.nn.functional.activation import dropout
from glasshouse.nn.functional.conv import convolve
from glasshouse.nn.functional.linear import embedding, linear
from glasshouse.nn.linear import Embedding, Linear, TransposedLinear, add_parameters
from glasshouse.nn.module import Module, Parameter
from glasshouse.nn.quantized.integers import IntegerLayer
from glasshouse.ops.checks import check_type
from glasshouse.tensor import Tensor, matmul, matrix_transpose

TURNED = (Embedding, TransposedLinear)  # the inputs are the rows of their weights
KINDS = (Linear, *TURNED, Conv)


class LowRankAdapter(Module):
    """alpha / rank · B A beside a layer's weight, which it is added to as a matrix (O, rest).

    Shapes: A (rank, rest), B (O, rank); of an Embedding A (rank, V) and B (D, rank).
    Source: Hu et al. 2021, arXiv:2106.09685.
    """

    _shown = ("rank", "alpha", "dropout")

    def __init__(self, layer: Module, rank: int, alpha: float, dropout: float) -> None:
        super().__init__()
        self.rank = rank
        self.alpha = alpha
        self.dropout = dropout
        self.is_table: bool = isinstance(layer, Embedding)
        self.merged: bool = False
        self.is_turned: bool = isinstance(layer, TURNED)
        rows, rest = layer.weight.shape[0], layer.weight.size // layer.weight.shape[0]
        outer, inner = (rest, rows) if self.is_turned else (rows, rest)
        add_parameters(self, None, layer.weight.dtype, A=(rank, inner), B=(outer, rank))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the initial values again; their product is 0."""
        first, second = (self.B, self.A) if self.is_table else (self.A, self.B)
        init.normal_(first) if self.is_table else init.kaiming_uniform_(first, a=5**0.5)
        init.zeros_(second)

    @property
    def scale(self) -> float:
        """alpha / rank."""
        return self.alpha / self.rank

    def delta(self, layer: Any) -> Tensor:
        """The low-rank update `scale * B A` of the layer's weight, in its shape."""
        product = matmul(self.B, self.A) * self.scale
        return reshape(matrix_transpose(product) if self.is_turned else product, layer.weight.shape)

    def add(self, layer: Any, args: Any, result: Any) -> Any:
        """Forward hook: the layer's result plus the adapter's part, None once merged."""
        if self.merged:
            return None
        return result + self.part(layer, args[0]) * self.scale

    def part(self, layer: Any, input: Tensor) -> Tensor:
        rate = self.dropout if self.training else 0.0
        if self.is_table:
            rows = embedding(input, matrix_transpose(self.A), layer.padding_idx)
            return linear(dropout(rows, rate), self.B)
        x = dropout(input, rate)
        if isinstance(layer, (Linear, TransposedLinear)):
            return linear(linear(x, self.A), self.B)
        return self.convolved(layer, x)

    def convolved(self, layer: Any, x: Tensor) -> Tensor:
        """A convolution with A in place of the layer's weight, then one of size 1 with B."""
        x, padding = layer.padded(x)
        n, ones = layer.n, (1,) * layer.n
        if layer.groups > 1:  # no kernel of low rank sees all channels of a group alone
            weight = self.delta(layer) / self.scale
            options = (layer.stride, padding, layer.dilation, layer.groups)
            return convolve("lora", n, x, weight, None, *options)
        inner = reshape(self.A, (self.rank, *layer.weight.shape[1:]))
        x = convolve("lora", n, x, inner, None, layer.stride, padding, layer.dilation, 1)
        outer = reshape(self.B, (*self.B.shape, *ones))
        return convolve("lora", n, x, outer, None, ones, 0, ones, 1)


def adapted(model: Module) -> list[tuple[str, Module]]:
    """(dotted name, layer) of the layers with adapters."""
    return [
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module._modules.get("lora"), LowRankAdapter)
    ]


def attach(
    model: Module,
    targets: str | Sequence[str] = "*",
    rank: int = 8,
    alpha: float | None = None,
    dropout: float = 0.0,
) -> list[str]:
    """Give adapters to the layers whose dotted names match, and switch the gradients of all other
    parameters off; returns the names. A pattern ("*.attention.*") or several; "*" takes every
    Linear, Embedding and convolution. alpha is the rank unless given.

        y = layer(x) + alpha / rank · B A dropout(x)

    Raises: OptionError where nothing matches, for a layer that has an adapter or computes in
        integers, a rank below 1 or a dropout outside [0, 1]; DTypeError where only layers of other
        kinds match.
    Source: Hu et al. 2021, arXiv:2106.09685.
    Example:
        >>> net = gh.nn.Sequential(gh.nn.Linear(4, 4), gh.nn.ReLU(), gh.nn.Linear(4, 2))
        >>> attach(net, "2", rank=1)
        ['2']
        >>> [name for name, p in net.named_parameters() if p.requires_grad]
        ['2.lora.A', '2.lora.B']
    """
    where = "lora.attach"
    check_type(where, model, Module, "a Module", "Pass the model.")
    check_positive(where, rank=rank)
    check_probability(where, dropout)
    patterns = [targets] if isinstance(targets, str) else list(targets)
    named = list(model.named_modules())
    hits = [(n, m) for n, m in named if any(fnmatchcase(n, p) for p in patterns)]
    layers = [(n, m) for n, m in hits if isinstance(m, KINDS) and not isinstance(m, ConvTranspose)]
    if not layers and hits:
        got = ", ".join(sorted({type_name(m) for _, m in hits}))
        raise DTypeError(where, "Linear, Embedding or convolution layers", got, "Name others.")
    if not layers:
        names = [n for n, m in named if isinstance(m, KINDS)]
        fix = suggest(patterns[0] if patterns else "", names) if names else "It has no such layer."
        raise OptionError(where, "patterns of names of layers", patterns, fix)
    for name, layer in layers:
        if "lora" in layer._modules:
            raise OptionError(where, "layers without adapters", name, "Call detach first.")
        if isinstance(layer, IntegerLayer):
            fix = 'Quantise with "int8" or "int4", whose products are of floats.'
            raise OptionError(where, "layers that gradients pass", repr(layer), fix)
    model.requires_grad_(False)
    for _, module in adapted(model):
        module.lora.requires_grad_(True)
    for _, layer in layers:
        layer.lora = LowRankAdapter(layer, rank, rank if alpha is None else alpha, dropout)
        layer.lora.train(layer.training)
        layer.register_forward_hook(layer.lora.add)
    return [name for name, _ in layers]


def merge(model: Module) -> None:
    """Add the adapters' parts to the weights; from now on the layers compute with these alone.

    Raises: OptionError for a model without adapters, or where a weight is another layer's too.
    """
    move(model, True)


def unmerge(model: Module) -> None:
    """Take the adapters' parts out of the weights again."""
    move(model, False)


def move(model: Module, merged: bool) -> None:
    where = "lora.merge" if merged else "lora.unmerge"
    layers = checked_layers(where, model)
    check_own_weights(where, model)
    with no_grad():
        for layer in layers:
            if layer.lora.merged != merged:
                delta = layer.lora.delta(layer)
                layer.weight.copy_(layer.weight + delta if merged else layer.weight - delta)
                layer.lora.merged = merged


def check_own_weights(where: str, model: Module) -> None:
    """Raise OptionError where the weight of an adapted layer is another layer's too, which would
    change with it."""
    owners: dict[int, list[str]] = {}
    for name, p in model.named_parameters(remove_duplicate=False):
        owners.setdefault(id(p), []).append(name)
    for name, layer in adapted(model):
        names = owners.get(id(layer.weight), ["packed numbers"])
        if names == ["packed numbers"]:
            fix = "Keep the adapters beside the weights, or merge them before gh.quantize."
            raise OptionError(where, f"weights of {name!r} that are floats", names[0], fix)
        if len(names) > 1:
            expected = f"a weight that only {name!r} has"
            fix = "Attach adapters to other layers, or keep them beside the weights."
            raise OptionError(where, expected, " and ".join(names), fix)


def detach(model: Module) -> None:
    """Remove the adapters; merged updates stay in the weights. All parameters have gradients
    again."""
    for layer in checked_layers("lora.detach", model):
        for handle, hook in list(layer._forward_hooks.items()):
            if getattr(hook.function, "__self__", None) is layer.lora:
                handle.remove()
        del layer.lora
    model.requires_grad_(True)


def checked_layers(where: str, model: Module) -> list[Module]:
    layers = [layer for _, layer in adapted(model)]
    if not layers:
        got = type_name(model)
        raise OptionError(where, "a model with adapters", got, "Call lora.attach first.")
    return layers


def parameters(model: Module) -> list[Parameter]:
    """The parameters of all adapters: those to be trained."""
    return [p for _, layer in adapted(model) for p in layer.lora.parameters()]


def state_dict(model: Module) -> dict[Any, Any]:
    """The state of the adapters alone, by dotted name."""
    state: dict[Any, Any] = {}
    for name, layer in adapted(model):
        layer.lora.state_dict(state, prefix=f"{name}.lora." if name else "lora.")
    return state


def load_state_dict(model: Module, state: dict[Any, Any]) -> None:
    """Load the state of the adapters alone.

    Raises: CheckpointError for missing, unexpected or misshapen tensors.
    """
    now = state_dict(model)
    if now.keys() != dict(state).keys():
        missing, unexpected = (sorted(now.keys() - state.keys()), sorted(state.keys() - now.keys()))
        expected = "the names of this model's adapters"
        got = f"missing {missing}, unexpected {unexpected}"
        fix = "Attach adapters to the same layers first."
        raise CheckpointError("lora.load_state_dict", expected, got, fix)
    model.load_state_dict(state, strict=False)
