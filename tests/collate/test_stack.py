"""Stack: what samples of each kind become."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from infeed.collate import Heap, Mismatch, Stack
from infeed.errors import LayoutError


class Color(enum.IntEnum):
    RED = 1


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass
class Item:
    image: Any
    label: Any


def stack(*samples: Any) -> Any:
    return Stack()(list(samples), Heap())


@given(
    hnp.array_dtypes(max_size=1) | hnp.scalar_dtypes(),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    st.integers(1, 5),
    st.randoms(use_true_random=False),
)
def test_stacked_arrays_are_those_of_numpy(dtype: Any, shape: tuple[int, ...], rows: int, random: Any) -> None:
    size = max(np.dtype(dtype).itemsize * int(np.prod(shape)), 1)
    zeros = np.zeros(shape, dtype)
    arrays = [zeros.copy() for _ in range(rows)]
    if np.dtype(dtype).kind in "iuf" and zeros.size:
        arrays = [np.frombuffer(random.randbytes(size), dtype).reshape(shape) for _ in range(rows)]
    batch = stack(*arrays)
    assert batch.dtype == np.dtype(dtype)
    assert batch.shape == (rows, *shape)
    assert batch.tobytes() == np.stack(arrays, dtype=dtype, casting="equiv").tobytes()


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([True, False], "bool"),
        ([1, -(2**63)], "int64"),
        ([1.5, float("inf")], "float64"),
        ([1j, 2.0 + 0j], "complex128"),
        ([np.float32(1), np.float32(2)], "float32"),
        ([np.uint8(1), np.uint8(2)], "uint8"),
        ([np.bool_(True), True], "bool"),
        ([1.0, np.float64(2)], "float64"),
        ([np.array(3, "int16"), np.int16(4)], "int16"),
        ([np.datetime64("2020-01-01"), np.datetime64("2021-01-01")], "datetime64[D]"),
    ],
)
def test_numbers_become_one_array_of_their_dtype(values: list[Any], dtype: str) -> None:
    batch = stack(*values)
    assert batch.dtype == np.dtype(dtype)
    assert batch.tolist() == [np.asarray(value).item() for value in values]


@pytest.mark.parametrize(
    "values",
    [
        ["cat", "dog"],
        [b"cat", b"dog"],
        ["cat", None],
        [np.str_("ca"), np.str_("dog")],
        [None, None],
        [{1}, {2}],
        [Color.RED, Color.RED],
        [np.array([None]), np.array([None, 1])],
    ],
)
def test_other_objects_become_a_list(values: list[Any]) -> None:
    batch = stack(*values)
    assert type(batch) is list
    assert all(came is value for came, value in zip(batch, values, strict=True))


def test_a_list_of_bare_objects_is_not_the_callers_own() -> None:
    samples = ["cat", "dog"]
    batch = Stack()(samples, Heap())
    samples.clear()
    assert batch == ["cat", "dog"]


def test_a_masked_array_does_not_lose_its_mask() -> None:
    masked = np.ma.masked_array([1, 2], [True, False])
    assert stack(masked, masked)[0] is masked


def test_a_batch_has_the_structure_of_its_samples() -> None:
    sample = {"pair": Pair(np.zeros(2), 1), "item": Item(np.ones(3), "cat"), "list": [1, (2.0,)]}
    batch = stack(sample, sample)
    assert isinstance(batch["pair"], Pair)
    assert batch["pair"].left.shape == (2, 2)
    assert isinstance(batch["item"], Item)
    assert batch["item"].label == ["cat", "cat"]
    assert batch["list"][1][0].tolist() == [2.0, 2.0]


def test_strided_and_mapped_arrays_are_stacked_too(tmp_path: Any) -> None:
    whole = np.arange(24.0).reshape(4, 6)
    np.save(tmp_path / "whole.npy", whole)
    mapped = np.load(tmp_path / "whole.npy", mmap_mode="r")
    assert (stack(whole[:, 0], whole[:, 1]) == whole[:, :2].T).all()
    batch = stack(mapped[0], whole[1])
    assert type(batch) is np.ndarray
    assert (batch == whole[:2]).all()


def test_tensors_become_a_tensor_of_the_same_dtype() -> None:
    batch = stack({"x": torch.ones(3, dtype=torch.int8), "y": torch.tensor(2.0)})
    assert isinstance(batch["x"], torch.Tensor)
    assert batch["x"].dtype == torch.int8
    assert batch["x"].tolist() == [[1, 1, 1]]
    assert isinstance(batch["y"], torch.Tensor)
    assert batch["y"].tolist() == [2.0]


def test_other_shapes_are_refused_with_field_shapes_and_rows() -> None:
    samples = [{"image": np.zeros(shape)} for shape in [(3, 4), (3, 4), (4, 3)]]
    with pytest.raises(Mismatch) as caught:
        stack(*samples)
    assert caught.value.rows == (0, 2)
    assert "field 'image': row 0 has shape (3, 4) and row 2 has shape (4, 3)" in str(caught.value)
    assert 'collate="pad", "concat" or "list"' in str(caught.value)


def test_shapes_that_add_up_by_chance_are_refused() -> None:
    with pytest.raises(LayoutError, match=r"row 1 has shape \(1,\)"):
        stack(np.zeros(2), np.zeros(1), np.zeros(3))


@pytest.mark.parametrize(
    ("first", "second", "rows"),
    [
        (np.zeros(2, "f4"), np.zeros(2, "f8"), "dtype float32 and row 1 has dtype float64"),
        (np.zeros(2, "f4"), np.zeros(2, ">f4"), "dtype float32 and row 1 has dtype >f4"),
        (np.zeros(0, "f4"), np.zeros(0, "f8"), "dtype float32 and row 1 has dtype float64"),
        (1, 2.0, "dtype int64 and row 1 has dtype float64"),
        (True, 1, "dtype bool and row 1 has dtype int64"),
        (np.float32(1), 1.0, "dtype float32 and row 1 has dtype float64"),
        (np.zeros(1), 1.0, "shape (1,) and row 1 has shape ()"),
        (1.0, None, "row 0 is of type float and row 1 is None"),
        (None, np.zeros(2), "row 0 is None and row 1 is of type ndarray"),
        (np.zeros(2), np.array([None, 1]), "dtype float64 and row 1 has dtype object"),
        (np.zeros(2, "f4"), torch.zeros(2), "row 0 is of type ndarray and row 1 is of type Tensor"),
        (1, (1, 2), "field 'x' is of type int in row 0 and a tuple in row 1"),
        (None, Item(1, 2), "field 'x' is None in row 0 and a Item in row 1"),
    ],
)
def test_nothing_is_cast_or_mixed_silently(first: Any, second: Any, rows: str) -> None:
    with pytest.raises(Mismatch) as caught:
        stack({"x": first}, {"x": second})
    assert rows in str(caught.value)
    assert caught.value.rows == (0, 1)


def test_an_integer_that_is_too_large_is_refused_by_row() -> None:
    with pytest.raises(Mismatch, match=r"row 1 holds 9223372036854775808, which does not fit int64") as caught:
        stack(1, 2**63)
    assert caught.value.rows == (1,)


def test_another_structure_is_refused_by_row() -> None:
    with pytest.raises(Mismatch, match=r"row 2 has another structure than row 0: \{x\} was expected") as caught:
        stack({"x": 1}, {"x": 2}, {"y": 3})
    assert caught.value.rows == (0, 2)


def test_a_batch_of_nothing_is_refused() -> None:
    with pytest.raises(LayoutError, match="no samples"):
        stack()
