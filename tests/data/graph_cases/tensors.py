"""Questions to tensors, constants, dtypes, numbers."""

import math

import numpy as np
import xp

from . import built, case, case_of, ints, t


@case(t(2, 3))
def asks_shape(x):
    return x * x.shape[0] + x.shape[-1]


@case(t(2, 3))
def shape_is_unpacked(x):
    a, b = x.shape
    return x.reshape((b, a)) * a


@case(t(2, 3))
def asks_dimensions(x):
    return x + x.ndim + x.dim()


@case(t(2, 3))
def asks_count(x):
    return x / x.numel()


@case(t(2, 3))
def asks_dtype(x):
    return x + 1 if x.dtype == xp.float32 else x


@case(t(2, 3), ints(2, 3))
def compares_dtypes(x, y):
    return x + y if x.dtype != y.dtype else x


@case(t(2, 3))
def asks_device(x):
    return xp.zeros(x.shape, device=x.device) + x


@case(t(2, 3))
def asks_gradient(x):
    return x + 1 if not x.requires_grad and x.grad is None and x.is_leaf else x


@case(t(2, 3))
def asks_type(x):
    return x + 1 if type(x) is xp.Tensor and isinstance(x, (int, xp.Tensor)) else x


@case(t(2, 3))
def asks_attributes(x):
    return x + 1 if hasattr(x, "shape") and not hasattr(x, "nothing") else x


@case(t(2, 3))
def getattr_with_default(x):
    return x * getattr(x, "nothing", 3) + getattr(x, "ndim", 0)


@case(t(2, 3))
def makes_zeros_of_a_shape(x):
    return xp.zeros(x.shape) + xp.ones((2, 3)) * xp.full(x.shape, 2.0)


@case(t(2, 3))
def makes_like(x):
    return xp.zeros_like(x) + xp.ones_like(x) * x


@case(t(3))
def makes_a_range(x):
    return x + xp.arange(x.shape[0])


@case(t(3))
def makes_an_identity(x):
    return xp.matmul(xp.eye(3), x)


@case(t(3))
def makes_a_constant(x):
    return x + xp.asarray([1.0, 2.0, 3.0])


@case(t(3))
def makes_a_scalar(x):
    return x + xp.tensor(2.5)


@case(t(3))
def machine_limits(x):
    return x + xp.finfo(xp.float32).eps * xp.finfo(x.dtype).max


@case(t(3))
def integer_limits(x):
    return x + xp.iinfo(xp.int32).max % 7


@case(t(3))
def constants_of_math(x):
    return x * math.pi + math.sqrt(2.0) - math.floor(2.7) + math.inf * 0 if x.ndim == 2 else x + 1


@case(t(3))
def numbers_are_computed(x):
    n = 7
    return x * (n // 2) + n % 3 - (n << 1) ** 0.5


@case(t(3))
def conversions_of_numbers(x):
    return x * int(3.7) + float("2.5") + bool(1) + abs(-2) + round(2.6) + divmod(7, 2)[0]


@case_of((t(3), 2), (t(3), 2), (t(3), 2))
def takes_an_integer(x, n):
    return x * n + x**n


@case_of((t(3), 0.5), (t(3), 0.5), (t(3), 0.5))
def takes_a_float(x, f):
    return x * f - f


@case_of((t(3), 2), (t(3), 3), (t(3), 4), (t(3), 5))
def takes_integers(x, n):
    return x * n


@case_of((t(3), 0.5), (t(3), 1.5), (t(3), 2.5), (t(3), 3.5))
def takes_floats(x, f):
    return x * f


@case_of((t(6), 2), (t(6), 3), (t(6), 4), (t(6), 5))
def slices_by_an_integer(x, n):
    return x[:n] * 2


@case_of((t(3), np.float32(2.0)), (t(3), np.float32(2.0)), (t(3), np.float32(2.0)))
def takes_a_numpy_float(x, f):
    return x * f + 1


@case_of((t(3), np.int64(2)), (t(3), np.int64(2)), (t(3), np.int64(2)))
def takes_a_numpy_integer(x, n):
    return x * n + 1


@case_of((t(3), np.float32(2.0)), (t(3), np.float32(3.0)), (t(3), np.float32(4.0)))
def takes_numpy_floats(x, f):
    return x * f + 1


@case_of((t(3), np.int64(2)), (t(3), np.int64(3)), (t(3), np.int64(4)), (t(3), np.int64(5)))
def takes_numpy_integers(x, n):
    return x + n


@case_of((t(3), np.float64(2.0)), (t(3), np.float64(3.0)), (t(3), np.float64(4.0)))
def computes_with_numpy_numbers(x, f):
    return x * (f * 2 + 1)


@case(t(3), [np.float32(1.0), np.float32(2.0)])
def takes_a_list_of_numpy_numbers(x, numbers):
    for n in numbers:
        x = x * n
    return x


@built(t(3))
def numpy_number_from_outside():
    scale = np.float32(0.5)

    def fn(x):
        return x * scale

    return fn


@case(t(3))
def numpy_constants(x):
    return x * np.pi + np.int64(3)


@case(t(3))
def numpy_number_is_made(x):
    return x * float(np.sqrt(4.0))


@case_of((t(3), np.int64(2)), (t(3), np.int64(2)))
def asks_the_type_of_a_numpy_number(x, n):
    return x + 1 if isinstance(n, np.integer) else x


@case_of((t(2),), (t(3),), (t(4),), (t(5),))
def takes_sizes(x):
    return x * 2 + 1


@case_of((t(2, 3),), (t(3, 3),), (t(4, 3),), (t(5, 3),))
def computes_with_sizes(x):
    return x.reshape((x.shape[0] * 3,)) / x.shape[0]


@case_of((t(2, 2),), (t(3, 3),), (t(4, 4),), (t(5, 5),))
def products_of_sizes(x):
    return xp.matmul(x, x) * x.shape[1]


@case_of((t(2),), (t(2, 2),), (t(2, 2, 2),))
def takes_ranks(x):
    return xp.sin(x)


@case_of((t(3),), (ints(3),), (t(3),))
def takes_dtypes(x):
    return x + x


@case(t(3), t(3))
def in_place_addition(x, y):
    x += y
    return x * 2


@case(t(3), t(3))
def in_place_method(x, y):
    x.add_(y)
    x.mul_(2)
    return x + 1


@case(t(3))
def in_place_on_a_copy(x):
    y = x.clone()
    y.zero_()
    y.add_(3)
    return y + x


@case(t(2, 3), t(3, 2))
def matrix_product(x, y):
    return x @ y + xp.matmul(x, y)


@case(t(2, 3))
def folds_views(x):
    return x.view(3, 2).reshape(-1).view(2, 3) + 1


@case(t(2, 3))
def changes_axes(x):
    return x.unsqueeze(0).transpose(1, 2).squeeze(0) + x.permute(1, 0)


@case(t(2, 3))
def reduces(x):
    return x.sum() + x.mean() + x.max() - x.min() + x.sum(0).sum() + x.mean(1).sum()


@case(t(2, 3))
def reduces_with_all_and_any(x):
    return xp.where(xp.all(x > -5) & xp.any(x > 0), x, -x)


@case(t(3))
def comparisons_give_masks(x):
    return xp.where((x > 0) | (x == -1), x, x * 2) + (x <= 0.5).to(xp.float32)


@case(t(3))
def converts_dtypes(x):
    return x.to(xp.float64).double().float() + x.int() + x.long() + x.bool()


@case(t(3))
def clamps(x):
    return x.clamp(-0.5, 0.5) + x.clamp(0.0)


@case(t(2, 3))
def joins_and_splits(x):
    both = xp.concat([x, x + 1])
    a, b = xp.split(both, 2, dim=0)
    return xp.stack([a, b]).sum(0)


@case(t(3))
def detaches(x):
    return x.detach() + x.detach().clone()


@case(t(3))
def negates_and_inverts(x):
    return -x + abs(x) + ~(x > 0) * 1


@case(t(3))
def arithmetic_with_numbers_on_the_left(x):
    return 1 - x + 2 / (x * x + 1) + 2**x + 7 % (x * x + 2)


@case(t(3))
def floor_division_and_remainder(x):
    return x // 0.5 + x % 0.5 + divmod(7, 3)[1]


@case(t(2, 3))
def normalizes(x):
    return (x - x.mean(-1, True)) * (x.var(-1, keepdim=False).sum() + 1e-5)


@case(t(4, 4))
def triangle(x):
    return xp.tril(x) + xp.triu(x) * xp.where(xp.tril(xp.ones((4, 4))) > 0, 1.0, 0.0)


@case(t(2, 3, 4))
def attention_by_hand(x):
    scores = xp.matmul(x, xp.transpose(x, 1, 2)) / math.sqrt(x.shape[-1])
    return xp.matmul(xp.nn.functional.softmax(scores, -1), x)


@case(t(2, 3))
def functional_operations(x):
    f = xp.nn.functional
    return f.relu(x) + f.gelu(x) * f.softmax(x, -1) + f.log_softmax(x, 0) + f.silu(x)


@case(t(2, 3), ints(2))
def a_loss(x, y):
    return xp.nn.functional.cross_entropy(x, y) + xp.nn.functional.mse_loss(x, x * 2)


@case(t(2, 3), t(3, 3), t(3))
def functional_linear(x, w, b):
    return xp.nn.functional.linear(x, w, b)


@case(t(3))
def builtin_sum_of_a_tensor(x):
    return sum(x) * 2


@case(t(3), t(3))
def same_tensor_twice(x, y):
    return x + y + x


@built(t(3), 2)
def builtin_getitem_by_number():
    table = [1.0, 2.0, 3.0, 4.0]

    def fn(x, n):
        return x * table[n]

    return fn


@case(t(3))
def boxes_length(boxes):
    def total(parts):
        return xp.concat([xp.full((len(p), 1), float(i)) for i, p in enumerate(parts)])

    return total([boxes, boxes * 2]) + 1


@case(t(8, 4))
def chunked_feed_forward(x):
    def forward(part):
        return xp.tanh(part) * 2

    parts = xp.chunk(x, x.shape[0] // 2)
    return xp.concat(tuple(forward(part) for part in parts))


@case(t(2, 4))
def relative_buckets(x):
    positions = xp.arange(4)[None, :] - xp.arange(4)[:, None]
    near = xp.where(positions < 2, positions, xp.minimum(positions, xp.full_like(positions, 3)))
    return xp.matmul(x, near.to(xp.float32))


@case(t(3))
def not_a_number(x):
    return xp.where(xp.isnan(x / x), xp.zeros_like(x), x) + (1 if math.isnan(math.nan) else 2)
