"""Random programs of PyTorch, eager and through our backend: results, gradients, layouts, what is
written and what is raised are the same.

GH_FUZZ_TORCH=200 makes that many; `tools/fuzzers/fuzz_torch.py` is the long mode."""

import os
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from shrinking import fewest  # noqa: E402
from torch_differential import check_seed, differences  # noqa: E402
from torch_programs import TorchProgram  # noqa: E402

from glasshouse.base.flags import flags  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
COUNT = int(os.environ.get("GH_FUZZ_TORCH", "6"))
COMPILED = 3  # every so many become kernels


@pytest.fixture(autouse=True)
def fresh_dynamo(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("seed", range(COUNT))
def test_random_programs(seed):
    with flags.override(compile="never" if seed % COMPILED else "always"):
        assert check_seed(seed) == []


def test_a_seed_gives_the_same_program():
    first, again, other = TorchProgram(7), TorchProgram(7), TorchProgram(8)
    assert first.text == again.text != other.text
    assert str(first.arguments) == str(again.arguments)


def doubled(function):
    """A wrong compiler, whose first results are twice as large."""

    def call(*args):
        first, *others = function(*args)
        return first * 2, *others

    return call


def writing(function):
    """A wrong compiler, that writes to what it is given."""

    def call(n, *args):
        results = function(n, *args)
        with torch.no_grad():
            args[0].add_(1)
        return results

    return call


@pytest.mark.parametrize("wrong, where", [(doubled, "result[0]"), (writing, "x0")])
def test_a_wrong_compiler_is_found_out(wrong, where):
    argument = SimpleNamespace(make=lambda seed, n: torch.linspace(1, 2, n))
    text = "def fn(N, x0):\n    return (F.relu(x0),)\n"
    assert where in differences(text, [argument], wrong)
    assert differences(text, [argument], lambda function: function) == {}


def test_lists_are_made_small():
    assert fewest(list(range(20)), lambda part: {3, 17} <= set(part)) == [3, 17]
