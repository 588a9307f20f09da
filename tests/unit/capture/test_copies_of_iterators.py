"""Copies of Python's iterators, some of which the interpreter steps itself."""

import copy
import pickle

import pytest

import glasshouse as gh

ITERATORS = (
    "iter([1, 2, 3])",
    "iter((1, 2, 3))",
    "iter({1: 2, 3: 4})",
    "iter('abc')",
    "iter(range(3))",
    "reversed([1, 2, 3])",
    "enumerate('abc')",
    "zip('abc', [1, 2, 3])",
    "map(str, [1, 2, 3])",
    "filter(None, [1, 0, 2])",
    "itertools.chain('ab', 'cd')",
    "itertools.chain.from_iterable(['ab', 'cd'])",
    "itertools.product([1, 2], [3])",
    "itertools.islice(itertools.count(), 3)",
    "itertools.accumulate([1, 2, 3])",
    "itertools.compress('abc', [1, 0, 1])",
    "itertools.dropwhile(bool, [1, 0, 2])",
    "itertools.takewhile(bool, [1, 2, 0])",
    "itertools.permutations([1, 2])",
    "itertools.starmap(max, [(1, 2), (4, 3)])",
    "itertools.zip_longest('ab', 'c')",
    "itertools.pairwise([1, 2, 3])",
    "itertools.repeat(5, 2)",
    "(x for x in (1, 2))",
)
COPIES = (
    "copy.copy(it)",
    "copy.deepcopy(it)",
    "copy.copy([it])[0]",
    "copy.deepcopy([it])[0]",
    "pickle.loads(pickle.dumps(it))",
)


def outcome(fn):
    try:
        return fn()
    except Exception as error:
        return type(error).__name__, str(error).replace("0x", "")


@pytest.mark.filterwarnings("ignore:Pickle, copy, and deepcopy:DeprecationWarning")  # 3.12 on
@pytest.mark.parametrize("iterator", ITERATORS)
def test_a_copy_goes_on_by_itself(iterator):
    for result in COPIES:
        for begin in ("", "    next(it)\n"):
            names: dict = {"copy": copy, "pickle": pickle}
            text = f"def fn():\n    it = {iterator}\n{begin}    other = {result}\n"
            exec("import itertools\n" + text + "    return list(it), list(other)", names)
            expected, captured = outcome(names["fn"]), gh.optimize("eager")(names["fn"])
            assert [outcome(captured) for _ in range(2)] == [expected] * 2, (result, begin)
