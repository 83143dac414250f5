"""window(): every run of neighbours as one sample."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.errors import LayoutError, PipelineError
from infeed.sources import arrays, concat, iterable, source, window


@given(st.integers(1, 20), st.integers(1, 20), st.integers(1, 5), st.booleans())
def test_windows_are_the_slices_of_the_sequence(length, size, stride, by_item):
    data = np.arange(length * 2).reshape(length, 2)
    if size > length:
        with pytest.raises(PipelineError, match="does not fit"):
            window(data, size, stride)
        return
    made = window(source(list(data)) if by_item else data, size, stride)
    expected = [data[start : start + size] for start in range(0, length - size + 1, stride)]
    assert len(made) == len(expected)
    got = made.fetch(np.arange(len(made))[::-1], 0)
    assert all(np.array_equal(a, b) for a, b in zip(got, expected[::-1], strict=True))


@pytest.mark.parametrize("contiguous", [True, False])
def test_windows_are_written_in_place(contiguous):
    column = window(np.arange(10), 3, 2).columns.columns[0]
    block = np.zeros((2, 6), np.int64)
    out = np.zeros((2, 3), np.int64) if contiguous else block[:, :3]
    assert column.shape == (3,)
    assert column.take(np.array([2, 0]), out) is out
    assert out.tolist() == [[4, 5, 6], [0, 1, 2]]


def test_windows_keep_the_structure_of_samples():
    made = window(arrays(x=np.arange(5), y=["a", "b", "c", "d", "e"]), 2)
    assert made.columns is None
    sample = made[3]
    assert sample["x"].tolist() == [3, 4]
    assert sample["y"].tolist() == ["d", "e"]
    assert window([{"x": 1, "none": {}}] * 2, 2)[0]["none"] == {}
    assert window(arrays(x=np.arange(5)), 2).fields == "{x: int64[2]}"


def test_overlapping_windows_fetch_each_sample_once():
    asked = []

    class Items:
        def __len__(self):
            return 10

        def __getitem__(self, index):
            asked.append(index)
            return float(index)

    rows = window(Items(), 4).fetch(np.array([1, 0, 2]), 0)
    assert [row.tolist() for row in rows] == [[1, 2, 3, 4], [0, 1, 2, 3], [2, 3, 4, 5]]
    assert asked == [0, 1, 2, 3, 4, 5]


def test_python_numbers_are_stacked_by_kind():
    kinds = [window([value] * 3, 2)[0].dtype for value in (True, 1, 1.0, 1j, np.float32(1))]
    assert kinds == [bool, np.int64, np.float64, np.complex128, np.float32]


def test_rows_that_differ_are_named():
    rows = [np.zeros(2), np.zeros(2), np.zeros(3)]
    with pytest.raises(LayoutError, match=r"'x' is float64\[2\] in sample 1 and float64\[3\] in sample 2"):
        window([{"x": row} for row in rows], 2)[1]


def test_windows_of_mixes_work():
    assert window(concat(np.arange(3), np.arange(10, 13)), 4)[1].tolist() == [1, 2, 10, 11]
    assert window(window(np.arange(6), 2), 2)[1].tolist() == [[1, 2], [2, 3]]


def test_no_windows_asked_for_is_no_windows():
    assert window([1, 2, 3], 2).fetch(np.array([], np.int64), 0) == []


@pytest.mark.parametrize(("n", "stride"), [(0, 1), (2, 0), (-1, 1), (2.5, 1), (True, 1)])
def test_sizes_must_be_whole_numbers_above_zero(n, stride):
    with pytest.raises(PipelineError, match="whole number above zero"):
        window([1, 2, 3], n, stride)


def test_an_iterable_has_no_windows():
    with pytest.raises(PipelineError, match="can only be read in order"):
        window(iterable(lambda: [1]), 2)
