"""Places between two ends that tensors hold: those of eager PyTorch, of integers too."""

import pytest

import glasshouse  # noqa: F401  (registers the backend)

torch = pytest.importorskip("torch")

ENDS = [(4.3, -3), (4.3, 0), (0, 10), (-2.5, 9.7), (7, -7)]


@pytest.mark.parametrize("dtype", ["int64", "int32", "float32", "float64"])
@pytest.mark.parametrize("ends", ENDS, ids=str)
def test_places_between_tensors_are_those_of_eager(ends, dtype):
    start, end = map(torch.tensor, ends)
    for a, b in ((start, end), (start, ends[1]), (ends[0], end)):
        torch._dynamo.reset()
        compiled = torch.compile(torch.linspace, backend="glasshouse", dynamic=False)
        for count in (2, 13, 50):
            expected = torch.linspace(a, b, count, dtype=getattr(torch, dtype))
            got = compiled(a, b, count, dtype=getattr(torch, dtype))
            assert torch.equal(got, expected), (a, b, count)
