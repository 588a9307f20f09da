"""The cheapest assignment of one set to another."""

from typing import Any

import numpy as np

from glasshouse.base.errors import ShapeError
from glasshouse.metrics.metric import to_numbers


def assignment(cost: Any) -> tuple[np.ndarray, np.ndarray]:
    """(rows, columns) of the cheapest pairs, by row: each row of the smaller side has one column of
    its own. A cost that is not a number counts as the largest. The time grows with n² m.

    Shapes: (n, m) -> (min(n, m),), (min(n, m),).
    Raises: ShapeError for another number of axes.
    Source: Kuhn 1955, "The Hungarian method for the assignment problem"; by shortest paths,
        Jonker & Volgenant 1987, "A shortest augmenting path algorithm".
    Example:
        >>> [places.tolist() for places in assignment([[4, 1, 3], [2, 0, 5]])]
        [[0, 1], [1, 0]]
    """
    cost = to_numbers("assignment", "cost", cost).astype(np.float64)
    if cost.ndim != 2:
        raise ShapeError("assignment", "a matrix of costs", cost.shape, "Pass one cost a pair.")
    most = float(np.finfo(np.float32).max)
    cost = np.nan_to_num(cost, nan=most, posinf=most, neginf=-most)
    if cost.shape[0] > cost.shape[1]:
        columns, rows = assignment(cost.T)
        order = np.argsort(rows)
        return rows[order], columns[order]
    owners = owners_of(cost)
    columns = np.flatnonzero(owners)
    rows = owners[columns] - 1
    order = np.argsort(rows)
    return rows[order], columns[order]


def owners_of(cost: np.ndarray) -> np.ndarray:
    """For each column 1 + the row that has it, or 0. Rows are taken in one by one, each along the
    shortest path of changes, which prices of rows and columns keep free of negative steps."""
    n, m = cost.shape
    row_prices, prices = np.zeros(n + 1), np.zeros(m + 1)
    owners, came_from = np.zeros(m + 1, int), np.zeros(m + 1, int)
    for row in range(1, n + 1):
        owners[m] = row  # the last place stands for "no column yet"
        column, done, nearest = m, np.zeros(m + 1, bool), np.full(m + 1, np.inf)
        while owners[column]:
            done[column] = True
            owner = owners[column]
            steps = cost[owner - 1] - row_prices[owner] - prices[:m]
            is_nearer = ~done[:m] & (steps < nearest[:m])
            nearest[:m][is_nearer] = steps[is_nearer]
            came_from[:m][is_nearer] = column
            following = int(np.where(done[:m], np.inf, nearest[:m]).argmin())
            length = nearest[following]
            row_prices[owners[done]] += length
            prices[done] -= length
            nearest[~done] -= length
            column = following
        while column != m:
            owners[column] = owners[came_from[column]]
            column = came_from[column]
    return owners[:m]
