"""dtypes, shapes, trees, flags, and the words of errors."""

import collections
import itertools
import pickle

import ml_dtypes
import numpy as np
import pytest

from glasshouse.base import dtype as dtypes
from glasshouse.base.dtype import all_dtypes, as_dtype, promote, promote_scalar
from glasshouse.base.errors import DTypeError, OptionError, ShapeError, suggest
from glasshouse.base.flags import Flags, declared, flags
from glasshouse.base.shape import Spec, broadcast_shapes, check_axes, check_axis, check_shape
from glasshouse.base.tree import broadcast_prefix, flatten, tree_map, unflatten

Point = collections.namedtuple("Point", "x y")


def test_promotion_is_commutative_and_idempotent():
    for a, b in itertools.product(all_dtypes, repeat=2):
        assert promote(a, b) is promote(b, a)
        assert promote(a, promote(a, b)) is promote(a, b)
    assert all(promote(d, d) is d for d in all_dtypes)


def test_promotion_agrees_with_numpy_inside_a_kind():
    for a, b in itertools.product(all_dtypes, repeat=2):
        if "bfloat16" in (a.name, b.name) or (a.is_inexact != b.is_inexact):
            continue
        assert promote(a, b).np == np.promote_types(a.np, b.np), (a, b)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("int64", "float32", "float32"),
        ("float16", "bfloat16", "float32"),
        ("float64", "complex64", "complex128"),
        ("int64", "complex64", "complex64"),
        ("uint64", "int8", "float64"),
        ("bool", "bfloat16", "bfloat16"),
    ],
)
def test_promotion_across_kinds(a, b, expected):
    assert promote(as_dtype(a), as_dtype(b)).name == expected


def test_python_scalars_are_weak():
    assert promote_scalar(dtypes.int8, 3).name == "int8"
    assert promote_scalar(dtypes.float16, 3).name == "float16"
    assert promote_scalar(dtypes.float64, 2j).name == "complex128"
    assert promote_scalar(dtypes.int32, 2.0).name == "float32"
    assert promote_scalar(dtypes.bool_, 2).name == "int64"


@pytest.mark.parametrize("name", [d.name for d in all_dtypes])
def test_a_dtype_is_known_by_many_names(name):
    d = as_dtype(name)
    assert as_dtype(d) is d is as_dtype(d.np) is as_dtype(d.np.type)
    assert d == name and d == d.np
    assert pickle.loads(pickle.dumps(d)) is d


@pytest.mark.parametrize("other", [{"a": 1}, [("a", int)], {1}, (2, 3), "f4,f4", "x(", None, 3])
def test_a_dtype_is_nothing_else(other):
    assert all(d != other for d in all_dtypes)
    with pytest.raises(DTypeError, match="expected a data type"):
        as_dtype(other)


def test_python_types_name_the_default_dtypes():
    assert [as_dtype(t).name for t in (bool, int, float, complex)] == [
        "bool",
        "int64",
        "float32",
        "complex64",
    ]
    assert as_dtype(ml_dtypes.bfloat16) is dtypes.bfloat16


def test_a_misspelled_dtype_suggests_the_nearest():
    with pytest.raises(DTypeError, match="'float32'"):
        as_dtype("flaot32")
    for wrong in (None, "U5", object(), np.dtype("M8[s]")):
        with pytest.raises(DTypeError, match="expected a data type"):
            as_dtype(wrong)


def test_spec_sizes():
    spec = Spec((2, 3), dtypes.float32)
    assert (spec.size, spec.nbytes, spec.ndim) == (6, 24, 2)
    assert spec == Spec((2, 3), dtypes.float32) != Spec((2, 3), dtypes.int32)
    assert repr(spec) == "float32[2, 3]"


def test_broadcasting_follows_numpy():
    shapes = [(), (1,), (3,), (2, 1), (2, 3), (0,), (1, 0), (4, 1, 1)]
    for pair in itertools.product(shapes, repeat=2):
        try:
            expected = np.broadcast_shapes(*pair)
        except ValueError:
            with pytest.raises(ShapeError, match="broadcast"):
                broadcast_shapes("test", *pair)
        else:
            assert broadcast_shapes("test", *pair) == expected


def test_axes_are_checked():
    assert check_axis("t", -1, 3) == 2
    assert check_axes("t", (2, 0), 3) == (0, 2)
    assert check_axes("t", None, 2) == (0, 1)
    for wrong, error in (((3,), ShapeError), ((0, 0), ShapeError), ("a", DTypeError)):
        with pytest.raises(error):
            check_axes("t", wrong, 3)
    with pytest.raises(ShapeError, match="0 or more"):
        check_shape("t", (2, -1))
    with pytest.raises(DTypeError, match="integers"):
        check_shape("t", (2.5,))


def test_trees_round_trip():
    tree = {"a": (1, [2, None]), "p": Point(3, 4), "o": collections.OrderedDict(z=5)}
    leaves, treedef = flatten(tree)
    assert leaves == [1, 2, 5, 3, 4]  # keys sorted
    again = unflatten(treedef, leaves)
    assert again == tree and type(again["p"]) is Point
    assert type(again["o"]) is collections.OrderedDict
    assert tree_map(lambda a, b: a + b, (1, [2]), (10, [20])) == (11, [22])
    with pytest.raises(ShapeError, match="one structure"):
        tree_map(lambda a, b: a, (1,), [1])


def test_a_prefix_stands_for_subtrees():
    _, treedef = flatten((1, {"a": 2, "b": 3}))
    assert broadcast_prefix("t", (0, None), treedef) == [0, None, None]
    assert broadcast_prefix("t", (0, {"a": 1, "b": None}), treedef) == [0, 1, None]
    with pytest.raises(ShapeError, match="prefix"):
        broadcast_prefix("t", (0,), treedef)


def test_flags_are_parsed_from_the_environment():
    result = Flags({"GH_DEBUG": "2", "GH_STRICT": "true"})
    assert (result.debug, result.strict, result.backend) == (2, True, "lazy")
    with pytest.raises(OptionError, match="GH_DEBUG"):
        Flags({"GH_DEBUG": "many"})
    with pytest.raises(OptionError, match="GH_STRICT"):
        Flags({"GH_STRICT": "perhaps"})
    with pytest.raises(OptionError, match=r"GH_COMPILE: .*Did you mean 'never'"):
        Flags({"GH_COMPILE": "nver"})
    assert all(flag.help for flag in declared)


def test_flags_are_overridden_for_a_while():
    with pytest.raises(KeyError), flags.override(debug=3):
        assert flags.debug == 3
        raise KeyError
    assert flags.debug != 3
    with pytest.raises(OptionError, match="debug"), flags.override(debgu=1):
        pass


def test_suggestions():
    assert suggest("relo", ["relu", "tanh"]) == "Did you mean 'relu'?"
    assert suggest("zzz", ["relu", "tanh"]) == "Choose one of: relu, tanh."
