"""Differences between versions of CPython: one table per version, derived from the one before.

No other code of capture checks the version. On a version without a table nothing is
captured (`base/interpreter.py`). Opcodes that exist in some versions only are in
`rules/version_opcodes.py`."""

import sys
from typing import Any, NamedTuple

VERSION = sys.version_info[:2]


class BytecodeVersion(NamedTuple):
    """A version's encoding of operations, and their effects on the stack."""

    null_above: bool  # NULL lies above a callable that has no self, not below
    attribute_shift: int  # of the name's number in LOAD_ATTR
    compare_shift: int  # of the operator's number in COMPARE_OP
    truth_flag: int  # of COMPARE_OP: the result is a bool
    loop_end: tuple[str, ...]  # operations that take END and the iterator off the stack
    end_for_pops: int  # items that END_FOR takes off
    call_pops_arguments: bool  # at CALL, and not at PRECALL
    subscript: int  # the number of x[i] in BINARY_OP; -1: an operation of its own
    keywords_or_null: bool  # CALL_FUNCTION_EX takes NULL in place of no keywords
    exit_place: int  # of __exit__ on the stack at WITH_EXCEPT_START
    counts_unpacked: bool  # the error of `a, b = list` says how many are in it
    close_gives_value: bool  # `close` returns the value of the generator
    no_pair: str  # the error of dict.update for an item that cannot be iterated over
    class_pattern: str  # the word for a class in the error of a class pattern
    empty: str  # the error of `max` for no items
    class_properties: bool  # a classmethod of a property reads an attribute of its class
    aliases: dict[str, str]  # operations that we treat as another one

    @property
    def pops_ended_iterator(self) -> bool:
        """Whether the operation that meets the end of an iterator takes it off the stack."""
        return not self.loop_end


V311 = BytecodeVersion(
    null_above=False,
    attribute_shift=0,
    compare_shift=0,
    truth_flag=0,
    loop_end=(),
    end_for_pops=0,
    call_pops_arguments=False,
    subscript=-1,
    keywords_or_null=False,
    exit_place=-4,
    counts_unpacked=False,
    close_gives_value=False,
    no_pair="cannot convert {} to a sequence",
    class_pattern="type",
    empty="arg is an empty sequence",
    class_properties=True,
    aliases={},
)
V312 = V311._replace(
    attribute_shift=1,
    compare_shift=4,
    loop_end=("END_FOR",),
    end_for_pops=2,
    call_pops_arguments=True,
    class_pattern="class",
    empty="iterable argument is empty",
)
V313 = V312._replace(
    null_above=True,
    compare_shift=5,
    truth_flag=16,
    loop_end=("END_FOR", "POP_TOP"),
    end_for_pops=1,
    close_gives_value=True,
    class_properties=False,
)
V314 = V313._replace(
    subscript=26,
    keywords_or_null=True,
    exit_place=-5,
    counts_unpacked=True,
    no_pair="object is not iterable",
    aliases={
        "LOAD_FAST_BORROW": "LOAD_FAST",  # whether a reference is counted makes no difference here
        "LOAD_FAST_BORROW_LOAD_FAST_BORROW": "LOAD_FAST_LOAD_FAST",
        "NOT_TAKEN": "NOP",
        "POP_ITER": "POP_TOP",
    },
)
VERSIONS = {(3, 11): V311, (3, 12): V312, (3, 13): V313, (3, 14): V314}
bytecode: BytecodeVersion = VERSIONS.get(VERSION, V314)  # of the interpreter that runs

COMMON_CONSTANTS = (AssertionError, NotImplementedError, tuple, all, any)
SPECIAL_METHODS = ("__enter__", "__exit__", "__aenter__", "__aexit__")


def newest(tables: dict[tuple[int, int], dict[Any, Any]]) -> dict[Any, Any]:
    """The tables of all versions up to the running one, merged; newer entries win."""
    merged: dict[Any, Any] = {}
    for version in sorted(tables):
        if version <= VERSION:
            merged |= tables[version]
    return merged
