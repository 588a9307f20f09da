"""Results of compiled graphs are tensors like eager's: PyTorch's own operations write to them,
resize them, and let their memory go."""

import gc

import pytest

torch = pytest.importorskip("torch")

import glasshouse as gh  # noqa: E402
from glasshouse.base.flags import flags, having  # noqa: E402
from glasshouse.memory import current  # noqa: E402

BACKEND = {"backend": "glasshouse", "options": {"strict": True}}
LARGE = 128, 129  # more than a result has that no manager hands out
SAMPLES = {
    "Tensor": lambda: torch.rand(3, 3) + 0.5,
    "Optional[Tensor]": lambda: None,
    "List[Tensor]": lambda: [torch.rand(3, 3), torch.rand(3, 3)],
    "number": lambda: 2,
    "int": lambda: 1,
    "float": lambda: 0.5,
    "bool": lambda: True,
    "List[int]": lambda: [3, 3],
    "SymInt": lambda: 1,
    "List[SymInt]": lambda: [3, 3],
}
LEFT_OUT = {
    *("requires_grad_", "retain_grad_", "rename_"),  # these do not write
    *("sparse_resize_", "sparse_resize_and_clear_"),  # of memory without strides
    "set_",  # grows without giving its memory contents
    "detach_",  # eager refuses views, and results are never views of each other to autograd
}


def overloads(name):
    """The operators of this name in ATen."""
    packet = getattr(torch.ops.aten, name, None)
    return [] if packet is None else [getattr(packet, x) for x in packet.overloads()]


def writes(overload, name):
    """Whether it writes to one tensor, the argument of this name."""
    written = [x.name for x in overload._schema.arguments if x.alias_info and x.alias_info.is_write]
    return written == [name]


def required(overload):
    """The other arguments that a call needs, by name; None where there is no sample of one."""
    kinds = {
        x.name: str(x.type)
        for x in overload._schema.arguments
        if not (x.has_default_value() or x.alias_info and x.alias_info.is_write)
    }
    return kinds if all(kind in SAMPLES for kind in kinds.values()) else None


def operations():
    """(operator, argument that it writes to): what users reach by a method or a function."""
    methods = [(name, "self") for name in dir(torch.Tensor) if name.endswith("_")]
    for name, argument in methods + [(name, "out") for name in dir(torch)]:
        if name.startswith("_") or name in LEFT_OUT:
            continue
        for overload in overloads(name):
            if writes(overload, argument) and required(overload) is not None:
                yield overload, argument


def outcome(overload, argument, written, tensors):
    """Return what a call leaves in a tensor and in others of its memory; the error that it
    raises."""
    torch.manual_seed(1)
    named = {name: SAMPLES[kind]() for name, kind in required(overload).items()}
    torch.use_deterministic_algorithms(True)  # so that new memory has contents
    try:
        overload(**{argument: written}, **named)
    except Exception as error:
        return type(error).__name__, str(error).splitlines()[:1]
    finally:
        torch.use_deterministic_algorithms(False)
    return [(x.tolist(), x.shape, x.stride(), x.untyped_storage().nbytes()) for x in tensors]


def small(x):
    return (x * 2,)


def parts(x):
    y = x * 2
    return y[1:], y[:1], y.t()


@pytest.mark.slow
@pytest.mark.parametrize("fn", [small, parts])
@pytest.mark.filterwarnings("ignore")
def test_every_operation_that_writes_does_so_as_to_eager_tensors(fn):
    x = torch.rand(3, 3)
    compiled, tried = torch.compile(fn, **BACKEND), 0
    for overload, argument in operations():
        mine, theirs = compiled(x), fn(x)
        result = outcome(overload, argument, mine[0], mine)
        expected = outcome(overload, argument, theirs[0], theirs)
        assert repr(result) == repr(expected), overload  # where nan is as nan
        tried += type(expected) is list
    assert tried > 300


def programs(shape):
    """(result of a Program, of eager) of this shape, plain and as others make them."""
    x = torch.rand(shape)
    for reference in (False, True):
        torch._dynamo.reset()
        with having(flags, compile="never" if reference else "auto"):
            yield torch.compile(lambda x: x + 1, **BACKEND)(x), x + 1


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("shape", [(4, 3), LARGE])
def test_results_grow_shrink_and_come_back(shape):
    for mine, theirs in programs(shape):
        for x in (mine, theirs):
            x.resize_(shape[0] * 4, shape[1])[shape[0] :] = 7
        assert torch.equal(mine, theirs)
        for x in (mine, theirs):
            storage, nbytes = x.untyped_storage(), x.untyped_storage().nbytes()
            storage.resize_(0)
            assert storage.nbytes() == 0
            storage.resize_(nbytes)
            x.copy_(torch.ones(x.shape))
        assert torch.equal(mine, theirs)
        assert torch.equal(torch.add(torch.ones(300), 1, out=mine), torch.full((300,), 2.0))


def test_memory_of_a_result_goes_when_its_storage_is_emptied():
    compiled, x = torch.compile(lambda x: x + 1, **BACKEND), torch.rand(LARGE)
    compiled(x)
    gc.collect()
    before = gh.memory.stats().allocated_bytes
    result = compiled(x)
    assert gh.memory.stats().allocated_bytes >= before + result.nbytes
    result.untyped_storage().resize_(0)
    assert gh.memory.stats().allocated_bytes == before


def test_small_results_are_of_the_manager_where_somebody_looks():
    compiled, x, manager = torch.compile(lambda x: x + 1, **BACKEND), torch.rand(64, 65), current()
    compiled(x)
    before = manager.stats().allocations
    result = compiled(x)
    assert manager.stats().allocations == before
    looking = manager.subscribe(lambda event: None)
    other = compiled(x)
    looking.remove()
    assert manager.stats().allocations == before + 1
    assert torch.equal(other, result)


def test_results_of_a_backward_pass_are_resized():
    x = torch.rand(LARGE, requires_grad=True)
    torch.compile(lambda x: (x * x).sum(), **BACKEND)(x).backward()
    x.grad.untyped_storage().resize_(0)
    assert x.grad.untyped_storage().nbytes() == 0
