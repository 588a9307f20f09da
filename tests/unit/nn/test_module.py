"""Module: parameters, buffers, state, modes, hooks, containers."""

import copy
import pickle
from collections import OrderedDict

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import nn
from glasshouse.base.errors import CheckpointError


class Net(nn.Module):
    """Two layers, one of them shared, and a buffer."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 3)
        self.norm = nn.BatchNorm1d(3)
        self.blocks = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
        self.again = self.blocks[0]
        self.register_buffer("steps", gh.asarray(0))
        self.register_buffer("scratch", gh.zeros(2), persistent=False)

    def forward(self, x):
        x = self.norm(self.first(x))
        for block in self.blocks:
            x = nn.functional.relu(block(x))
        return self.again(x)


NAMES = [
    "steps", "first.weight", "first.bias", "norm.weight", "norm.bias", "norm.running_mean",
    "norm.running_var", "norm.num_batches_tracked", "blocks.0.weight", "blocks.0.bias",
    "blocks.1.weight", "blocks.1.bias", "again.weight", "again.bias",
]  # fmt: skip


def test_state_names_are_dotted_and_ordered():
    assert list(Net().state_dict()) == NAMES


def test_shared_parameters_count_once():
    names = [name for name, _ in Net().named_parameters()]
    assert names == [n for n in NAMES if n.split(".")[0] != "again" and "running" not in n
                     and "num_batches" not in n and n != "steps"]  # fmt: skip
    assert [n for n, _ in Net().named_buffers()][:2] == ["steps", "scratch"]
    assert [n for n, _ in Net().named_children()] == ["first", "norm", "blocks", "again"]
    assert "blocks.1" in dict(Net().named_modules())


def test_state_round_trip():
    a, b = Net(), Net()
    b.load_state_dict(a.state_dict())
    a.eval(), b.eval()
    x = gh.random.normal((5, 4))
    assert (a(x) == b(x)).all()


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.pop("first.bias"),
        lambda s: s.update(extra=gh.ones(1)),
        lambda s: s.update({"blocks.1.weight": gh.ones((2, 2))}),
    ],
)
def test_a_misfit_state_changes_nothing(change):
    net = Net()
    before = {k: v.numpy().copy() for k, v in net.state_dict().items()}
    state = OrderedDict((k, v * 2) for k, v in Net().state_dict().items())
    change(state)
    with pytest.raises(CheckpointError, match="expected"):
        net.load_state_dict(state)
    assert all((net.state_dict()[k].numpy() == before[k]).all() for k in before)


def test_loading_without_strict_takes_what_fits():
    net = nn.Linear(2, 1)
    result = net.load_state_dict({"weight": gh.ones((1, 2)), "other": gh.ones(1)}, strict=False)
    assert net.weight.tolist() == [[1.0, 1.0]]
    assert result.missing_keys == ["bias"] and result.unexpected_keys == ["other"]


def test_modes_dtypes_and_gradients_reach_everything():
    net = Net()
    assert net.training and not net.eval().blocks[0].training and net.train().norm.training
    net.double()
    assert {p.dtype.name for p in net.parameters()} == {"float64"}
    assert net.norm.num_batches_tracked.dtype == gh.int64
    net.to(gh.float32)
    net(gh.random.normal((5, 4))).sum().backward()
    assert all(p.grad is not None for p in net.parameters())
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())
    net.requires_grad_(False)
    assert not any(p.requires_grad for p in net.parameters())
    seen = []
    net.apply(lambda m: seen.append(type(m).__name__))
    assert seen[-1] == "Net"


def test_batch_norm_keeps_running_statistics_in_training_only():
    norm = nn.BatchNorm1d(2)
    x = gh.asarray([[1.0, 2.0], [3.0, 6.0]])
    norm(x)
    np.testing.assert_allclose(norm.running_mean.numpy(), [0.2, 0.4])
    norm.eval()(x)
    np.testing.assert_allclose(norm.running_mean.numpy(), [0.2, 0.4])
    assert norm.num_batches_tracked.item() == 1


def test_hooks():
    layer, seen = nn.Linear(2, 2), []
    before = layer.register_forward_pre_hook(lambda m, args: (args[0] * 0,))
    after = layer.register_forward_hook(lambda m, args, out: seen.append(out.shape))
    assert (layer(gh.ones((1, 2))) == layer.bias).all()
    before.remove(), after.remove()
    layer(gh.ones((1, 2)))
    assert seen == [(1, 2)]


def test_copies_and_pickles():
    net = Net().eval()
    x = gh.random.normal((2, 4))
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert (twin(x) == net(x)).all()
        assert twin.again is twin.blocks[0]
        with gh.no_grad():
            twin.first.weight += 1
        assert not (twin.first.weight == net.first.weight).all()


def test_containers():
    net = nn.Sequential(OrderedDict(a=nn.Linear(2, 3), b=nn.ReLU()))
    assert list(net.state_dict()) == ["a.weight", "a.bias"]
    net.append(nn.Linear(3, 1))
    assert len(net) == 3 and isinstance(net[-1], nn.Linear) and len(net[:2]) == 2
    assert net(gh.ones((1, 2))).shape == (1, 1)
    heads = nn.ModuleDict({"x": nn.Linear(1, 1)})
    heads["y"] = nn.Linear(1, 2)
    assert list(heads) == ["x", "y"] and "y.weight" in heads.state_dict()


def test_repr_is_nested():
    text = repr(nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.1)))
    assert text.splitlines()[1] == "  (0): Linear(in_features=2, out_features=3, bias=True)"
    assert "(1): Dropout(p=0.1" in text


def test_attributes_are_tracked_and_missing_ones_named():
    net = Net()
    net.extra = nn.Parameter(gh.ones(2))
    assert "extra" in dict(net.named_parameters())
    del net.extra
    assert "extra" not in dict(net.named_parameters())
    with pytest.raises(AttributeError, match="frist.*first"):
        _ = net.frist


def test_dropout_is_random_in_training_and_nothing_in_evaluation():
    layer, x = nn.Dropout(0.5), gh.ones(2000)
    y = layer(x).numpy()
    assert set(np.unique(y)) == {0.0, 2.0} and 0.4 < (y == 0).mean() < 0.6
    assert (layer.eval()(x) == x).all()


def test_the_module_path_is_known_while_it_computes():
    from glasshouse.nn.module import current_module_path

    class Spy(nn.Module):
        def forward(self, x):
            self.seen = current_module_path()
            return x

    net = nn.Sequential(nn.Identity(), nn.Sequential(Spy()))
    net(gh.ones(1))
    assert "1.0" in str(net[1][0].seen)
    assert not current_module_path()


@pytest.mark.parametrize(
    ("init", "mean", "std"),
    [
        (lambda w: nn.init.normal_(w, 1.0, 0.5), 1.0, 0.5),
        (lambda w: nn.init.uniform_(w, -1.0, 1.0), 0.0, 1 / 3**0.5),
        (lambda w: nn.init.xavier_uniform_(w), 0.0, (2 / 300) ** 0.5),
        (lambda w: nn.init.xavier_normal_(w), 0.0, (2 / 300) ** 0.5),
        (lambda w: nn.init.kaiming_normal_(w), 0.0, (2 / 200) ** 0.5),
        (lambda w: nn.init.kaiming_uniform_(w, a=5**0.5), 0.0, (1 / 600) ** 0.5),
        (lambda w: nn.init.trunc_normal_(w, std=0.02), 0.0, 0.02),
    ],
)
def test_initial_values(init, mean, std):
    gh.random.seed(0)
    w = nn.Parameter(gh.zeros((100, 200)))
    init(w)
    values = w.numpy()
    assert w.requires_grad and w.is_leaf
    assert values.mean() == pytest.approx(mean, abs=0.02 * max(1, std))
    assert values.std() == pytest.approx(std, rel=0.05)


def test_constant_and_orthogonal_initial_values():
    w = nn.Parameter(gh.zeros((4, 4)))
    assert (nn.init.constant_(w, 3.0) == 3).all() and (nn.init.ones_(w) == 1).all()
    assert (nn.init.eye_(w) == gh.eye(4)).all() and (nn.init.zeros_(w) == 0).all()
    q = nn.init.orthogonal_(w).numpy()
    np.testing.assert_allclose(q @ q.T, np.eye(4), atol=1e-5)
