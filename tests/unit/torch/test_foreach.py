"""Operators on lists of tensors: each as one call for each tensor, none left to PyTorch."""

import pytest

torch = pytest.importorskip("torch")

from glasshouse.torch.aten.foreach import SCALING, foreach_rules  # noqa: E402

pytestmark = pytest.mark.library_warnings


def tensors(seed):
    """Three tensors whose elements all functions are defined for."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(shape, generator=generator) * 0.8 + 0.1 for shape in ((3, 3), (4,), ())]


def argument_of(parameter, seed):
    """An argument for a parameter of a schema."""
    kind = str(parameter.type)
    if kind == "List[Tensor]":
        return tensors(seed)
    if kind == "Tensor":
        return torch.tensor(0.7)
    return [0.5, 2.0, 1.5] if kind.startswith("List") else 2.0


def arguments_of(overload):
    operands = [x for x in overload._schema.arguments if x.name != "alpha"]
    operands = [x for x in operands if not x.has_default_value() or x.name == "value"]
    return [argument_of(x, seed) for seed, x in enumerate(operands)]


def strict(function):
    return torch.compile(
        function, backend="glasshouse", fullgraph=True, options={"strict": True}, dynamic=False
    )


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_each_operator(part):
    overloads = [x for x in foreach_rules() if "mm" not in str(x) and x not in SCALING]
    operands = [arguments_of(x) for x in overloads][part::4]

    def all_of_them(operands):
        return [f(*args) for f, args in zip(overloads[part::4], operands, strict=True)]

    expected = all_of_them(operands)
    for overload, got, want in zip(overloads[part::4], strict(all_of_them)(operands), expected):
        torch.testing.assert_close(got, want, msg=lambda text, name=overload: f"{name}: {text}")


def test_products():
    a, b = tensors(0)[:1] * 2, tensors(1)[:1] * 2
    got = strict(lambda a, b: torch.ops.aten._foreach_mm(a, b))(a, b)
    torch.testing.assert_close(got, [x @ y for x, y in zip(a, b)])


@pytest.mark.parametrize("bad", [None, float("inf"), float("nan")])
def test_gradients_are_unscaled(bad):
    gradients = [x * 64 for x in tensors(0)]
    if bad is not None:
        gradients[1][2] = bad
    gradients.append(gradients[0].bfloat16())
    operands = gradients, torch.tensor(0.0), torch.tensor(1 / 48)
    unscale = torch.ops.aten._amp_foreach_non_finite_check_and_unscale
    got, want = strict(lambda *x: unscale(*x))(*operands), unscale(*operands)
    torch.testing.assert_close(got, want, equal_nan=True, rtol=0, atol=0)


@pytest.mark.parametrize("steps", [0, 2, 3])
@pytest.mark.parametrize("is_found", [0.0, 1.0])
@pytest.mark.parametrize("scale", [3.0, 3e38])
def test_a_scale_is_updated(scale, is_found, steps):
    state = torch.tensor(scale), torch.tensor(steps, dtype=torch.int32)
    operands = *state, torch.tensor(is_found), 2.1, 0.3, 4
    update = torch.ops.aten._amp_update_scale
    got, want = strict(lambda *x: update(*x, *operands[3:]))(*operands[:3]), update(*operands)
    torch.testing.assert_close(got, want, rtol=0, atol=0)


@pytest.mark.parametrize("norm_type", [2.0, 1.0, float("inf")])
def test_gradients_are_clipped_in_the_graph(norm_type):
    def clipped(gradients):
        parameters = [torch.zeros_like(x) for x in gradients]
        for parameter, gradient in zip(parameters, gradients):
            parameter.grad = gradient.clone()
        norm = torch.nn.utils.get_total_norm([x.grad for x in parameters], norm_type)
        torch.nn.utils.clip_grads_with_norm_(parameters, 0.1, norm)
        return norm, [x.grad for x in parameters]

    operands = tensors(0)
    torch.testing.assert_close(strict(clipped)(operands), clipped(operands))


def test_averages_in_place():
    def averaged(averages, values):
        torch._foreach_lerp_(averages, values, 0.1)
        torch._foreach_add_(averages, 1.0)
        torch._foreach_mul_(averages, torch.tensor(0.5))
        return [x + 0 for x in averages]

    ours, theirs, values = tensors(0), tensors(0), tensors(1)
    torch.testing.assert_close(strict(averaged)(ours, values), averaged(theirs, values))
    torch.testing.assert_close(ours, theirs)
