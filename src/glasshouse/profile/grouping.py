"""Groups of equal rows in columns of integers."""

import numpy as np

MOST = 1 << 62  # what a key may count up to


def groups_of(*columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(the place of each group's first row, the group of each row); rows of a group are equal in
    all columns, and groups are numbered in the order in which they come."""
    key, count = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        column = np.asarray(column, np.int64)
        least = int(column.min(initial=0))
        width = int(column.max(initial=0)) - least + 1
        if count * width > MOST:
            distinct, key = np.unique(key, return_inverse=True)
            count = len(distinct)
        key, count = key * width + (column - least), count * width
    _, first, group = np.unique(key, return_index=True, return_inverse=True)
    order = np.argsort(first)
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    return first[order], number[group.ravel()]
