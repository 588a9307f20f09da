"""gh.tree: leaves in JAX's order, and trees made of them again."""

import itertools
from collections import namedtuple

import pytest

import glasshouse as gh

Pair = namedtuple("Pair", "b a")
TREE = {"z": [1, (2, 3)], "a": Pair(4, None), "k": {}}


def test_leaves_of_dicts_come_in_the_order_of_sorted_keys():
    assert gh.tree.leaves(TREE) == [4, 1, 2, 3]
    assert gh.tree.leaves({2: "x", "a": "y"}) == ["x", "y"]  # cannot be sorted


def test_unflatten_makes_the_tree_again():
    leaves, treedef = gh.tree.flatten(TREE)
    assert gh.tree.unflatten(treedef, leaves) == TREE == treedef.unflatten(leaves)


def test_map_takes_trees_with_keys_in_another_order_and_deeper_ones():
    assert gh.tree.map(lambda x, y: x - y, {"a": 3, "b": 5}, {"b": 1, "a": 2}) == {"a": 1, "b": 4}
    assert gh.tree.map(lambda x, y: (x, y), [1, 2], [(3, 4), 5]) == [(1, (3, 4)), (2, 5)]
    with pytest.raises(gh.ShapeError, match="structure"):
        gh.tree.map(lambda x, y: x, [1, 2], (1, 2))


def test_is_leaf_ends_the_walk():
    result = gh.tree.leaves([1, (2, 3)], is_leaf=lambda x: isinstance(x, tuple))
    assert result == [1, (2, 3)]
    assert gh.tree.map(len, [(1, 2), (3,)], is_leaf=lambda x: isinstance(x, tuple)) == [2, 1]


def test_reduce_all_and_transpose():
    assert gh.tree.reduce(lambda a, b: a + b, TREE, 10) == 20
    assert gh.tree.all([True, (1, {})]) and not gh.tree.all([True, (0, {})])
    outer, inner = gh.tree.structure({"a": 0, "b": 0}), gh.tree.structure((0, 0))
    turned = gh.tree.transpose(outer, inner, {"a": (1, 2), "b": (3, 4)})
    assert turned == ({"a": 1, "b": 3}, {"a": 2, "b": 4})
    assert gh.tree.transpose(outer, None, {"a": (1, 2), "b": (3, 4)}) == turned


@pytest.mark.parametrize("keys", [*itertools.permutations("abc"), (2, "a", None)])
def test_a_dict_comes_back_with_its_keys_in_their_order(keys):
    tree = {key: [i, {"z": i, "y": -i}] for i, key in enumerate(keys)}
    values, treedef = gh.tree.flatten(tree)
    again = gh.tree.unflatten(treedef, values)
    assert again == tree and str(again) == str(tree)
    assert str(gh.tree.map(lambda x: x, tree)) == str(tree)


def test_structures_are_equal_whatever_the_order_of_keys():
    one, other = gh.tree.structure({"a": 1, "b": 2}), gh.tree.structure({"b": 2, "a": 1})
    assert one == other and hash(one) == hash(other)
    assert list(gh.tree.map(lambda x, y: x + y, {"b": 1, "a": 2}, {"a": 10, "b": 20})) == ["b", "a"]
