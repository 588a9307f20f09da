"""Modules: structure, attributes, state."""

import collections
import copy

import xp

from . import built, built_of, case, leaf, t

nn = xp.nn


class Basic(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.scale = 2.0

    def forward(self, x):
        return xp.nn.functional.relu(self.linear(x)) * self.scale


class Method(nn.Module):
    """A module whose forward calls methods and submodules."""

    def __init__(self):
        super().__init__()
        self.a, self.b = Basic(), Basic()

    def both(self, x):
        return self.a(x) + self.b(x)

    @staticmethod
    def shifted(x):
        return x + 1

    @classmethod
    def named(cls, x):
        return x * len(cls.__name__)

    @property
    def factor(self):
        return 3

    def forward(self, x):
        return self.named(self.shifted(self.both(x))) * self.factor


class Derived(Basic):
    def __init__(self):
        super().__init__()
        self.more = nn.Linear(4, 4)

    def forward(self, x):
        return self.more(super().forward(x))


class Lists(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.Tanh()])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Switch(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.drop = nn.Linear(4, 4), nn.Dropout(0.0)

    def forward(self, x):
        x = self.drop(self.linear(x))
        return x if self.training else x * 2


class Tables(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.ModuleDict({"first": nn.Linear(4, 4), "second": nn.ReLU()})

    def forward(self, x):
        for name, layer in self.table.items():
            x = layer(x) + len(name)
        return self.table["first"](x) if "first" in self.table else x


class Weights(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(xp.ones(4))
        self.register_buffer("mean", xp.zeros(4))

    def forward(self, x):
        return x * self.weight - self.mean


class Optional(nn.Module):
    def __init__(self, layer=None):
        super().__init__()
        self.layer, self.fn, self.mode = layer, xp.sin, "sin"

    def forward(self, x):
        if self.layer is not None:
            x = self.layer(x)
        return self.fn(x) if self.mode == "sin" and self.fn is xp.sin else x


class Counting(nn.Module):
    """Writes to itself."""

    def __init__(self):
        super().__init__()
        self.linear, self.last = nn.Linear(4, 4), None

    def forward(self, x):
        self.last = self.linear(x)
        self.flag = True
        return self.last + 1


class Running(nn.Module):
    """A buffer that is written in each call."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", xp.zeros(4))

    def forward(self, x):
        self.mean = self.mean * 0.9 + x.mean(0) * 0.1
        return x - self.mean


class Dense(nn.Module):
    """Concatenates what came before."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4 * (i + 1), 4) for i in range(3)])

    def forward(self, x):
        parts = [x]
        for layer in self.layers:
            parts.append(layer(xp.concat(parts, 1)))
        return xp.concat(parts, 1)


class Attributes(nn.Module):
    """Attributes of many kinds."""

    kind = "class"

    def __init__(self):
        super().__init__()
        self.sizes, self.names = [1, 2, 3], {"a": 4}
        self.layers = [nn.Linear(4, 4), nn.Linear(4, 4)]
        self.pair = (nn.Linear(4, 4), nn.ReLU())

    def forward(self, x):
        x = x * self.sizes[1] + self.names["a"] + len(self.kind)
        for layer in self.layers:
            x = layer(x)
        first, second = self.pair
        return second(first(x))


def using(make, fn):
    """A function over a module that it makes."""

    def build():
        model = make()
        return lambda x: fn(model, x)

    build.__name__ = fn.__name__
    build.__module__ = fn.__module__
    return build


def over(make, *args):
    """Have fn(model, x) be called with a model made for each call."""

    def register(fn):
        built(*(args or (t(2, 4),)))(using(make, fn))
        return fn

    return register


def sequential():
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.Sigmoid())


for kind in (Basic, Method, Derived, Lists, Switch, Tables, Weights, Optional, Counting, Running):
    built(t(2, 4))(kind)


@over(sequential)
def a_sequential(model, x):
    return model(x)


@over(sequential)
def layers_of_a_sequential(model, x):
    for layer in model:
        x = layer(x)
    return x


@over(sequential)
def a_sequential_by_index(model, x):
    return model[-1](model[0](x))


@over(sequential)
def a_slice_of_a_sequential(model, x):
    return model[1:3](x)


@over(sequential)
def a_sequential_backwards(model, x):
    for layer in model[::-1]:
        x = layer(x)
    return x


@over(sequential)
def length_of_a_sequential(model, x):
    return model(x) * len(model)


@over(Lists)
def a_module_list_by_index(model, x):
    return model.layers[2](model.layers[0](x))


@over(Lists)
def a_module_list_backwards(model, x):
    for layer in model.layers[::-1]:
        x = layer(x)
    return x


@over(Lists)
def a_module_list_reversed(model, x):
    for layer in reversed(model.layers):
        x = layer(x)
    return x


@over(Lists)
def a_slice_of_a_module_list(model, x):
    for layer in model.layers[:2]:
        x = layer(x)
    return x


@over(Lists)
def enumerates_a_module_list(model, x):
    for i, layer in enumerate(model.layers):
        x = layer(x) + i
    return x * len(model.layers)


@over(Lists)
def zips_a_module_list(model, x):
    for layer, by in zip(model.layers, (1, 2, 3, 4), strict=True):
        x = layer(x) * by
    return x


@over(Tables)
def a_module_dict_by_name(model, x):
    return model.table["second"](model.table["first"](x))


@over(Tables)
def keys_and_values_of_a_module_dict(model, x):
    for layer in model.table.values():
        x = layer(x)
    return x * len([*model.table.keys()])


@over(Basic)
def forward_called_directly(model, x):
    return model.forward(x)


@over(Method)
def forward_of_a_submodule_called_directly(model, x):
    return model.a.forward(x) + model.b.forward(x)


@over(Basic)
def call_called_directly(model, x):
    return model.__call__(x)


@over(Basic)
def forward_of_the_class(model, x):
    return Basic.forward(model, x)


@over(lambda: nn.Linear(4, 4))
def forward_of_a_layer_called_directly(model, x):
    return model.forward(x) * 2


@over(Method)
def a_method_of_a_module(model, x):
    return model.both(x)


@over(Method)
def children_of_a_module(model, x):
    for child in model.children():
        x = child(x)
    return x


@over(Method)
def named_children_of_a_module(model, x):
    for name, child in model.named_children():
        x = child(x) + len(name)
    return x


@over(Method)
def named_modules_of_a_module(model, x):
    for name, part in model.named_modules():
        if isinstance(part, nn.Linear):
            x = part(x) * len(name)
    return x


@over(Method)
def modules_of_a_module(model, x):
    return x * sum(isinstance(part, Basic) for part in model.modules())


@over(Method)
def parameters_of_a_module(model, x):
    for parameter in model.parameters():
        x = x + parameter.sum()
    return x


@over(Method)
def named_parameters_of_a_module(model, x):
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            x = x + parameter
    return x


@over(Weights)
def buffers_of_a_module(model, x):
    for buffer in model.buffers():
        x = x + buffer
    return x


@over(Basic)
def dtype_of_the_first_parameter(model, x):
    return x.to(next(model.parameters()).dtype) + 1


@over(Method)
def parameters_are_counted(model, x):
    return x * sum(p.numel() for p in model.parameters())


@over(Weights)
def a_parameter_is_read(model, x):
    return x @ model.weight + model.mean.sum()


@over(Weights)
def isinstance_of_a_parameter(model, x):
    return x + 1 if isinstance(model.weight, nn.Parameter) else x


@over(Basic)
def training_is_asked(model, x):
    return model(x) + (1 if model.training else 2)


def in_evaluation():
    return Switch().eval()


@over(in_evaluation)
def evaluation_mode(model, x):
    return model(x) * (1 if model.training else 3)


@over(Basic)
def hasattr_of_a_module(model, x):
    return model(x) if hasattr(model, "linear") and not hasattr(model, "nothing") else x


@over(Basic)
def getattr_of_a_module(model, x):
    return getattr(model, "linear")(x) + getattr(model, "nothing", 2)  # noqa: B009


@over(Basic)
def setattr_of_a_module(model, x):
    model.scale = 3.0
    return model(x)


@over(Attributes)
def attributes_of_many_kinds(model, x):
    return model(x)


@over(Dense)
def concatenates_features(model, x):
    return model(x)


@over(Optional)
def a_missing_layer(model, x):
    return model(x)


@over(lambda: Optional(nn.Linear(4, 4)))
def a_layer_from_an_argument(model, x):
    return model(x)


@over(Counting)
def a_module_that_writes_itself(model, x):
    return model(x) + model.last


@over(Running)
def a_buffer_is_written(model, x):
    return model(x)


@over(lambda: [nn.Linear(4, 4), nn.ReLU()])
def a_list_of_layers(layers, x):
    for layer in layers:
        x = layer(x)
    return x


@over(lambda: {"a": nn.Linear(4, 4), "b": nn.ReLU()})
def a_dict_of_layers(layers, x):
    return layers["b"](layers["a"](x))


@over(lambda: [nn.Parameter(xp.ones(4)), nn.Parameter(xp.zeros(4))])
def a_list_of_parameters(weights, x):
    return x * weights[0] + weights[1]


@over(lambda: nn.ParameterList([nn.Parameter(xp.ones(4)), nn.Parameter(xp.zeros(4))]))
def a_parameter_list(weights, x):
    for weight in weights:
        x = x + weight
    return x


@over(lambda: nn.Sequential(collections.OrderedDict(a=nn.Linear(4, 4), b=nn.Tanh())))
def a_sequential_of_names(model, x):
    return model.b(model.a(x))


@over(lambda: nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Linear(4, 4)))
def nested_sequentials(model, x):
    return model(x) + model[0][0](x)


@over(Basic)
def a_module_twice(model, x):
    return model(model(x))


@over(lambda: nn.Dropout(0.5).eval())
def dropout_in_evaluation(model, x):
    return model(x) + 1


@over(lambda: nn.LayerNorm(4))
def layer_normalization(model, x):
    return model(x) * 2


@over(lambda: nn.BatchNorm1d(4))
def batch_normalization(model, x):
    return model(x) * 2


@over(lambda: nn.BatchNorm1d(4).eval())
def batch_normalization_in_evaluation(model, x):
    return model(x) * 2


@over(lambda: nn.Conv2d(1, 2, 3), t(1, 1, 5, 5))
def a_convolution(model, x):
    return xp.nn.functional.relu(model(x))


@over(lambda: nn.Embedding(10, 4))
def an_embedding(model, x):
    return model(xp.arange(4)) + x[0]


@over(lambda: nn.MultiheadAttention(4, 2, batch_first=True), t(1, 3, 4))
def attention(model, x):
    return model(x, x, x)[0]


@over(lambda: nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True), t(1, 3, 4))
def a_transformer_layer(model, x):
    return model(x)


@over(lambda: nn.CrossEntropyLoss(), t(4))
def a_loss_module(model, x):
    return model(x.reshape((1, 4)), xp.asarray([1]))


@case(t(2, 4))
def a_relu_made_inside(x):
    return nn.ReLU()(x) + nn.Sigmoid()(x)


@case(t(2, 4))
def a_layer_without_weights_made_inside(x):
    return nn.Sequential(nn.ReLU(), nn.Softmax(-1))(x)


@case(t(2, 4), t(2, 4))
def a_loss_made_inside(x, y):
    return nn.MSELoss()(x, y) + nn.L1Loss()(x, y)


@case(t(2, 4))
def a_user_module_made_inside(x):
    return Optional()(x)


@case(t(2, 4))
def a_flatten_made_inside(x):
    return nn.Flatten(0)(x) * 2


@over(lambda: nn.Sequential(nn.ReLU(), nn.Flatten()))
def deepcopy_of_layers(model, x):
    return copy.deepcopy(model)(x)


@over(lambda: nn.Linear(4, 4))
def deepcopy_of_a_linear(model, x):
    return copy.deepcopy(model)(x)


@over(Basic)
def deepcopy_of_a_module(model, x):
    return copy.deepcopy(model)(x) + model(x)


@over(Basic)
def name_of_the_class_of_a_module(model, x):
    return model(x) * len(model.__class__.__name__)


@over(lambda: (Basic(), Basic()))
def compares_modules(pair, x):
    first, second = pair
    return first(x) if first is not second and first == first else second(x)


@over(lambda: (Basic(), {}))
def modules_as_keys(pair, x):
    model, table = pair
    return model(x) + table.get(model, 2)


@over(lambda: nn.Linear(4, 4))
def weight_of_a_layer_is_used(model, x):
    return x @ model.weight.T + model.bias + model.in_features


@over(Basic)
def weights_are_tied(model, x):
    return xp.nn.functional.linear(model(x), model.linear.weight)


@built_of((t(2, 4),), (t(3, 4),), (t(4, 4),), (t(5, 4),))
def a_module_with_batch_sizes():
    return sequential()


@built(leaf(2, 4))
def a_module_with_a_gradient_for_its_input():
    return Basic()


@built_of((0, t(2, 4)), (1, t(2, 4)), (0, t(2, 4)), (1, t(2, 4)))
def layers_chosen_by_number():
    layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])

    def fn(i, x):
        return layers[i](x)

    return fn


@built(t(2, 4))
def a_module_with_keyword_arguments():
    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x, *, scale=2, shift=None):
            x = self.linear(x) * scale
            return x if shift is None else x + shift

    model = Words()
    return lambda x: model(x, scale=3) + model(x, shift=1)


@built(t(2, 4))
def a_forward_hook():
    model = Basic()
    model.linear.register_forward_hook(lambda module, args, result: result * 2)
    return model


@built(t(2, 4))
def a_forward_pre_hook():
    model = Basic()
    model.linear.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    return model
