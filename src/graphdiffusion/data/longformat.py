"""Sparse features in the long format: one row for each number that is not zero."""

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphdiffusion.data.columns import lower
from graphdiffusion.data.tables import Table, refuse_number, sorted_names
from graphdiffusion.errors import DataError


def read_long(table: Table) -> tuple[list[str], sp.csr_matrix, list[str]] | None:
    """Ids, features and their names from rows of id, feature and value; None if this is no such table.

    A table with one row for each node and two features that are called "feature" and "value" has the
    same header: it is one if its features are numbers and no id occurs twice.
    """
    feature = lower(table.header or []).index("feature")
    column = next(k for k in table.columns if k != feature)
    ids, features = table.ids(column), table.texts(feature)
    if np.unique(ids.codes).size == ids.codes.size and None not in map(table.number, features.values):
        return None
    if "" in features.values:
        i = int(np.argmax(features.codes == features.values.index("")))
        raise DataError(f"{table.where(i)}: the name of the feature is empty")
    node_ids, names = sorted_names(ids.values), sorted_names(features.values)
    rows, columns = (
        _places(ids.values, node_ids)[ids.codes],
        _places(features.values, names)[features.codes],
    )
    keys = rows * len(names) + columns
    _, first, back = np.unique(keys, return_index=True, return_inverse=True)
    again = np.flatnonzero(first[back] != np.arange(keys.size))
    if again.size:
        i = int(again[0])
        raise DataError(
            f"{table.where(i)}: node {ids.cell(i)!r} has the feature {features.cell(i)!r} twice, first in "
            f"{table.where(int(first[back[i]]))}; keep one of the two"
        )
    x = sp.csr_matrix((table.x[:, 0], (rows, columns)), shape=(len(node_ids), len(names)))
    return node_ids, x, names


def as_wide(table: Table) -> NDArray[np.float32]:
    """The two features (rows, 2) of a table that is not in the long format, in the order of its columns."""
    feature = lower(table.header or []).index("feature")
    with np.errstate(over="ignore"):
        numbers = table.numbers(feature).astype(np.float32)
    wrong = np.flatnonzero(~np.isfinite(numbers))
    if wrong.size:
        i = int(wrong[0])
        refuse_number(table.texts(feature).cell(i), f"{table.where(i)}, {table.label(feature)}")
    value = lower(table.header or []).index("value")
    both = (numbers, table.x[:, 0]) if feature < value else (table.x[:, 0], numbers)
    return np.stack(both, axis=1)


def _places(values: list[str], order: list[str]) -> NDArray[np.int64]:
    place = {name: k for k, name in enumerate(order)}
    return np.array([place[value] for value in values], dtype=np.int64)
