"""What the leaves of one field are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from infeed.collate.leaves import as_array, classify

LEAVES = st.sampled_from(
    [
        True,
        3,
        2.5,
        1j,
        np.float32(1),
        np.int64(3),
        np.zeros(2),
        np.zeros(()),
        "a",
        b"b",
        None,
        np.str_("c"),
        2**70,
    ]
)


@given(st.lists(LEAVES, min_size=1, max_size=5))
def test_without_strictness_every_column_is_something(column: list[Any]) -> None:
    leaves = classify(column, "x", strict=False)
    assert leaves.kind in ("numbers", "arrays", "objects")
    assert len(leaves.values) == len(column)


@given(LEAVES, st.integers(1, 4))
def test_equal_leaves_are_never_refused(leaf: Any, count: int) -> None:
    leaves = classify([leaf] * count, "x")
    array = as_array(leaf)
    if array is not None:
        assert leaves.kind == ("arrays" if array.ndim else "numbers")
        assert leaves.dtype in (None, array.dtype)


@pytest.mark.parametrize("tensor", [torch.zeros(2, dtype=torch.bfloat16), torch.zeros(2).to_sparse()])
def test_a_tensor_that_numpy_cannot_hold_is_an_object(tensor: torch.Tensor) -> None:
    assert as_array(tensor) is None
    assert classify([tensor], "x").values[0] is tensor


def test_an_array_is_not_copied() -> None:
    array = np.zeros(3)
    assert as_array(array) is array
