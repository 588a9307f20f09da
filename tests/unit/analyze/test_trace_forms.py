"""Symbolic trace of models in all the forms that people write: what it gives does what they did."""

import copy
import gc
import pickle
import threading
import weakref
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

import glasshouse as gh
import glasshouse.nn.functional as F
from glasshouse import nn
from glasshouse.analyze import max_batch, register_function, step, symbolic_profile, symbolic_trace
from glasshouse.base.errors import DTypeError, OptionError
from glasshouse.ir.graph_module import Interpreter
from glasshouse.ir.node import all_of

Pair = namedtuple("Pair", "first second")


@pytest.fixture(autouse=True)
def on_numpy():
    with gh.backends.use("numpy"):
        yield


@dataclass
class Batch:
    left: Any
    right: Any


def model_of(forward, **members):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.__dict__["_buffers"].update(members.pop("buffers", {}))
            for name, member in members.items():
                setattr(self, name, member)

    Model.forward = forward
    return Model()


def x_of(*shape):
    return gh.asarray(np.random.default_rng(0).standard_normal(shape or (2, 4)).astype("float32"))


def arrays(tree) -> list:
    return [t.numpy().copy() for t in all_of(gh.Tensor, tree)]


def same(model, *args, **options):
    """The traced model, after it did what the model did: results, gradients, members, arguments."""
    gm = symbolic_trace(model, list(args), **options)
    start, results = copy.deepcopy(gm), []
    results.append(effects(copy.deepcopy(model), args))
    results.append(effects(copy.deepcopy(gm), args))
    results.append(effects(start, args, Interpreter(start).run))
    for out, values, grads in results[1:]:
        assert type(out) is type(results[0][0]) and grads.keys() == results[0][2].keys()
        assert values.keys() == results[0][1].keys()
        for name, arrays in values.items():
            assert all(map(partial(np.array_equal, equal_nan=True), arrays, results[0][1][name])), (
                name
            )
        assert all(map(np.array_equal, grads.values(), results[0][2].values()))
    symbolic_profile(gm, *args)
    return gm


def effects(module, args, run=None):
    """(the result; results, arguments and members after the call; gradients that there are)"""
    own = copy.deepcopy(args)
    gh.random.seed(1)
    out = (run or module)(*own)
    values = {"results": arrays(out), "arguments": arrays(own)}
    values |= {k: arrays(t) for k, t in module.state_dict().items() if "constant" not in k}
    tensors = [t for t in all_of(gh.Tensor, out) if t.requires_grad]
    if tensors:
        sum(t.sum() for t in tensors).backward()
    grads = {k: p.grad.numpy() for k, p in module.named_parameters() if p.grad is not None}
    return out, values, grads


@pytest.mark.parametrize(
    "make", [list, tuple, lambda p: Pair(*p), lambda p: Batch(*p), lambda p: OrderedDict(a=p[0])]
)
def test_arguments_and_results_keep_their_containers(make):
    def forward(self, x):
        parts = vars(x) if isinstance(x, Batch) else x
        values = list(parts.values() if isinstance(parts, dict) else parts)
        return make([values[0] * 2, values[-1] + 1])

    gm = same(model_of(forward), make([x_of(), x_of()]))
    assert pickle.loads(pickle.dumps(gm)).code == gm.code
    assert gm.code.startswith("def forward(self, x):")


def test_arguments_of_all_kinds():
    def forward(self, input, /, *rest, checkpoint=2.0, **named):
        for x in (*rest, *named.values()):
            input = input + x * checkpoint
        return input

    x = x_of()
    same(model_of(forward), x, x, x)
    gm = symbolic_trace(model_of(forward), {"input": x, "checkpoint": x, "z": x})
    assert gm(x, checkpoint=x, z=x).tolist() == (x + x * x).tolist()
    assert symbolic_trace(model_of(forward), x, {"checkpoint": 3.0})(x).tolist() == x.tolist()
    shown = symbolic_trace(model_of(lambda self, input: input * 2), ((2, 4), "float32"))
    assert shown(input=x).tolist() == (x * 2).tolist()


def test_results_in_other_objects_and_wrong_arguments_are_refused():
    class Other:
        def __init__(self, x):
            self.x = x

    model = model_of(lambda self, x: Other(x))
    with pytest.raises(OptionError, match="results; got .*Other"):
        symbolic_trace(model, [x_of()])
    for bad, error in ((Other(x_of()), DTypeError), ((2, 4), DTypeError), ((), DTypeError)):
        with pytest.raises(error, match="pairs of shape and dtype"):
            symbolic_trace(model, [bad])
    with pytest.raises(OptionError, match="missing a required argument: 'x'"):
        symbolic_trace(model, [])
    for bad in ((3, None), ([x_of()], [3])):
        with pytest.raises(OptionError, match="meta_args as a dict by name or a sequence"):
            symbolic_trace(model, *bad)
    with pytest.raises(OptionError, match=r"Model.forward; got 'z'"):
        symbolic_trace(model, [x_of()], {"z": 1})


def test_profiles_want_the_arguments_of_the_trace():
    gm = symbolic_trace(model_of(lambda self, x, y: x + y), [x_of(), x_of()])
    for args in ((), (x_of(),), (x_of(),) * 3):
        with pytest.raises(OptionError, match=rf"2 arguments \(x, y\); got {len(args)}"):
            symbolic_profile(gm, *args)


def test_gradients_stop_where_they_did():
    """At detach, in no_grad, and not where a parameter was written to in place."""

    def forward(self, x):
        hidden = self.inner(x)
        with gh.no_grad():
            target = self.outer(x) * 2
            self.scale.copy_(self.scale * 0.5)
            self.other.copy_(x[0])
        hidden = hidden + self.other + x[0]
        return hidden + (target - hidden).detach() + self.last(x).detach() * self.scale

    scale = nn.Parameter(gh.ones((4,)) * 3)
    layers = {name: nn.Linear(4, 4) for name in ("inner", "outer", "last")}
    gm = same(model_of(forward, scale=scale, other=nn.Parameter(gh.ones(4)), **layers), x_of())
    assert "with gh.no_grad():" in gm.code and ".detach()" in gm.code
    rows = symbolic_profile(gm, x_of())
    assert rows["outer"].backward_flops == 0 < rows["inner"].backward_flops


def test_transforms_are_seen_through_and_casts_stay():
    def forward(self, x):
        squares = gh.vmap(lambda row: (self.layer(row) ** 2).sum())(x)
        with gh.autocast("bfloat16"):
            product = x @ gh.permute_dims(x, (1, 0))
        return squares + gh.grad(lambda v: (v**3).sum())(x).sum(1), product

    gm = same(model_of(forward, layer=nn.Linear(4, 4)), x_of())
    assert "with gh.autocast('bfloat16', True):" in gm.code


def test_functions_of_which_only_the_shapes_are_known_are_listed():
    fn = register_function(lambda x: gh.asarray(x.numpy() * 2), lambda x: (x.shape, "float32"))
    model = model_of(lambda self, x: fn(x) + 1)
    rows = symbolic_profile(symbolic_trace(model, [x_of()]), x_of())
    assert len(rows.unknown) == 1 and f"not counted: {rows.unknown[0]}" in str(rows)
    assert rows.sorted("temp").unknown == rows.unknown


def test_what_a_forward_writes_is_written():
    def forward(self, x):
        self.count = self.count + 1
        self.mean.mul_(0.9).add_(x.mean(0))
        x[0] = 5.0
        return x * self.count

    buffers = {"count": gh.zeros(()), "mean": gh.ones((4,))}
    gm = same(model_of(forward, buffers=buffers), x_of())
    assert gm.code.count(".copy_(") == 3
    same(model_of(lambda self, x: self.norm(x) * 2, norm=nn.BatchNorm1d(4)), x_of())


@pytest.mark.parametrize("primitives", [False, True])
def test_random_numbers_are_drawn_at_each_call(primitives):
    def forward(self, x):
        return x + gh.random.normal((2, 4)) + F.dropout(x, 0.5)

    gm = same(model_of(forward), x_of(), primitives=primitives)
    assert (gm(x_of()) != gm(x_of())).any().item()


def test_hooks_of_leaf_modules_run_once():
    layer = nn.Linear(4, 4)
    layer.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    layer.register_forward_hook(lambda module, args, result: result * 2)
    gm = same(model_of(lambda self, x: self.layer(x), layer=layer), x_of())
    assert [n.op for n in gm.graph] == ["placeholder", "call_module", "output"]


def test_constants_and_precedence():
    def forward(self, x):
        results = [gh.tensor([float(i), 1, 2, 3]) for i in range(3)]
        return x * results[0] + results[1] * results[2] + (-2.0) ** x + (-1) ** gh.ceil(x)

    gm = same(model_of(forward), x_of())
    gm = same(gm, x_of())
    same(model_of(lambda self, x: x + self.mask, mask=gh.ones((4,)) * 3), x_of())
    again = model_of(lambda self, x: self.inner(x) + gh.asarray(np.ones(4, "float32")), inner=gm)
    same(again, x_of())


def test_a_region_keeps_the_reads_in_it():
    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.weight = nn.Linear(4, 4), nn.Parameter(gh.ones((4, 4)))

        def forward(self, x):
            return gh.tanh(self.layer(x) @ self.weight)

    gm = same(model_of(lambda self, x: gh.checkpoint(self.inner)(x) + 1, inner=Inner()), x_of())
    assert gm.code.count("checkpoint(region") == 1


def test_a_model_with_a_cache_is_as_before():
    def forward(self, x):
        self.last = self.layer(x)
        self.cache["all"].append(self.last)
        return gh.concat(self.cache["all"])

    model = model_of(forward, cache={"all": []}, last=None, layer=nn.Linear(4, 4))
    symbolic_trace(model, [x_of()])
    opt = gh.optim.SGD(model.parameters(), lr=0.1)
    step(model, lambda out: out.sum(), opt, [((2, 4), "float32")], steps=1)
    assert model.last is None and model.cache == {"all": []}
    with gh.meta():
        model = model_of(lambda self, x: x + self.mask, mask=gh.ones((4,)) * 2)
    assert symbolic_trace(model, [x_of()]).graph.find("get_attr")


def test_threads_trace_and_compute_beside_each_other():
    model, errors, stop = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), [], threading.Event()
    before, expected = dict(vars(gh.Tensor)), len(symbolic_trace(model, [x_of()]).graph)

    def trace():
        for _ in range(3):
            result = symbolic_trace(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), [x_of()])
            if len(result.graph) != expected:
                errors.append(result.code)

    def compute():
        while not stop.is_set():
            try:
                float((gh.ones((4,)) * 2).sum())
            except Exception as error:
                errors.append(error)

    threads = [threading.Thread(target=work) for work in (trace, trace, compute)]
    for thread in threads:
        thread.start()
    for thread in threads[:2]:
        thread.join()
    stop.set()
    threads[2].join()
    assert not errors and dict(vars(gh.Tensor)) == before


def test_a_thread_that_computes_during_a_trace_has_plain_functions():
    """The trace waits inside the forward until the other thread is done."""
    inside, done, other = threading.Event(), threading.Event(), {}

    def forward(self, x):
        inside.set()
        assert done.wait(60)
        return F.relu(x) + x.sum()

    def compute():
        assert inside.wait(60)
        try:
            x = gh.asarray([-1.0, 2.0])
            other["function"], other["methods"] = F.relu(x).tolist(), (-x * 2).sum().item()
            other["layer"] = nn.Sequential(nn.ReLU(), nn.ReLU())(x).tolist()
            other["captured"] = gh.optimize(lambda x: F.relu(x) + 1)
            other["first"] = other["captured"](x).tolist()
            other["kept"] = F.relu
        finally:
            done.set()

    thread = threading.Thread(target=compute)
    thread.start()
    gm = symbolic_trace(model_of(forward), [x_of()])
    thread.join()
    assert [node.name for node in gm.graph] == ["x", "relu", "sum_", "add", "out"]
    assert other["function"] == other["layer"] == [0.0, 2.0] and other["methods"] == -2.0
    x = gh.asarray([-1.0, 2.0])
    assert other["first"] == other["captured"](x).tolist() == [1.0, 3.0]
    graph = weakref.ref(gm.graph)
    del gm
    gc.collect()
    assert graph() is None and other["kept"](x).tolist() == [0.0, 2.0]


def test_tensors_without_storage_are_shown():
    with gh.meta():
        assert repr(gh.ones((2, 3))) == "MetaTensor(shape=(2, 3), dtype=float32)"
    shown = []
    symbolic_trace(model_of(lambda self, x: shown.append(f"{x}") or x * 2), x_of())
    assert shown == ["MetaTensor(shape=(2, 4), dtype=float32)"]


def test_steps_take_inputs_in_containers():
    model = model_of(lambda self, d: self.layer(d["a"]) - self.layer(d["b"]), layer=nn.Linear(4, 4))
    spec = ((8, 4), "float32")
    opt = gh.optim.SGD(model.parameters(), lr=0.1)
    predicted = step(model, F.mse_loss, opt, [{"a": spec, "b": spec}, spec])
    assert predicted.counter.total() == 2 * 2 * 2 * 8 * 4 * 4
    alone = step(model, lambda out: out.sum(), opt, {"a": spec, "b": spec})
    assert alone.counter.total() == predicted.counter.total()
    costs = max_batch(model, F.mse_loss, opt, [{"a": spec, "b": spec}, spec], 1 << 20, limit=3)
    assert costs == 3
