"""Pad: lengths, values, masks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from infeed.collate import Heap, Mismatch, Pad
from infeed.errors import LayoutError, PipelineError


def tokens(*lengths: int) -> list[Any]:
    return [{"t": np.arange(1, length + 1), "y": row} for row, length in enumerate(lengths)]


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=6),
    st.sampled_from([(), (2,), (2, 3)]),
    st.integers(1, 5),
    st.integers(-3, 3),
)
def test_what_the_mask_marks_is_the_data_and_the_rest_is_the_value(
    lengths: list[int], rest: tuple[int, ...], multiple: int, value: int
) -> None:
    rows = [np.full((length, *rest), 7 + row, "int16") for row, length in enumerate(lengths)]
    batch = Pad(value=value, multiple=multiple)([{"t": row} for row in rows], Heap())
    padded, mask = batch["t"], batch["t_mask"]
    assert padded.dtype == np.int16
    assert mask.dtype == np.bool_
    assert padded.shape[1] % multiple == 0
    assert 0 <= padded.shape[1] - max(lengths) < multiple
    assert mask.shape == padded.shape[:2]
    for row, array in enumerate(rows):
        assert mask[row].sum() == len(array)
        assert (padded[row][mask[row]] == array).all()
        assert (padded[row][~mask[row]] == value).all()
        assert mask[row][: len(array)].all()


def test_a_fixed_length_is_kept_whatever_comes() -> None:
    assert Pad(length=6)(tokens(1, 2), Heap())["t"].shape == (2, 6)
    assert Pad(length=6)(tokens(6), Heap())["t"].tolist() == [[1, 2, 3, 4, 5, 6]]


def test_length_and_value_can_be_given_by_field() -> None:
    samples = [{"a": np.array([1]), "b": np.array([2, 3])}, {"a": np.array([4, 5]), "b": np.array([6])}]
    batch = Pad(length={"a": 3}, value={"b": -1}, mask=False)(samples, Heap())
    assert batch["a"].tolist() == [[1, 0, 0], [4, 5, 0]]
    assert batch["b"].tolist() == [[2, 3], [6, -1]]
    assert list(batch) == ["a", "b"]


def test_a_row_that_is_too_long_is_refused_by_name_and_row() -> None:
    with pytest.raises(Mismatch, match=r"field 't': row 1 has length 5, but rows are padded to 4") as caught:
        Pad(length=4)(tokens(1, 5, 4), Heap())
    assert caught.value.rows == (1,)


def test_only_the_fields_named_are_padded_and_the_rest_is_stacked() -> None:
    samples = [{"t": np.arange(n), "image": np.zeros((2, 2))} for n in (1, 3)]
    batch = Pad(fields=["t"])(samples, Heap())
    assert sorted(batch) == ["image", "t", "t_mask"]
    assert batch["image"].shape == (2, 2, 2)
    for n in (1, 2):
        samples[n - 1]["image"] = np.zeros(n)
    with pytest.raises(Mismatch, match="field 'image'"):
        Pad(fields=["t"])(samples, Heap())


def test_equal_lengths_get_a_mask_too() -> None:
    assert Pad()(tokens(2, 2), Heap())["t_mask"].all()


def test_numbers_are_stacked_and_objects_listed() -> None:
    samples = [{"t": np.arange(2), "y": 1, "name": "a"}, {"t": np.arange(1), "y": 2, "name": "b"}]
    batch = Pad()(samples, Heap())
    assert batch["y"].tolist() == [1, 2]
    assert batch["name"] == ["a", "b"]


def test_samples_that_are_no_dicts_get_their_masks_beside_them() -> None:
    (words, label), (mask,) = Pad()([(np.array([1, 2]), 5), (np.array([3]), 6)], Heap())
    assert words.tolist() == [[1, 2], [3, 0]]
    assert label.tolist() == [5, 6]
    assert mask.tolist() == [[True, True], [True, False]]
    batch, (mask,) = Pad()([np.array([1]), np.array([2, 3])], Heap())
    assert batch.tolist() == [[1, 0], [2, 3]]
    assert mask.tolist() == [[True, False], [True, True]]


def test_a_nested_field_has_its_mask_under_its_full_name() -> None:
    batch = Pad()([{"in": {"t": np.arange(2)}}], Heap())
    assert batch["in.t_mask"].tolist() == [[True, True]]


def test_a_mask_never_overwrites_a_field() -> None:
    with pytest.raises(LayoutError, match="'t_mask'"):
        Pad()([{"t": np.arange(2), "t_mask": 1}], Heap())


def test_tensors_stay_tensors() -> None:
    batch = Pad(value=9)([{"t": torch.tensor([1, 2])}, {"t": torch.tensor([3])}], Heap())
    assert isinstance(batch["t"], torch.Tensor)
    assert batch["t"].tolist() == [[1, 2], [3, 9]]
    assert batch["t_mask"].dtype == torch.bool


@pytest.mark.parametrize("second", [np.zeros((1, 3)), np.zeros(1), np.float64(0)])
def test_the_other_axes_must_agree(second: Any) -> None:
    with pytest.raises(Mismatch, match=r"row 0 has shape \(4, 2\) and row 2 has shape") as caught:
        Pad()([{"t": row} for row in (np.zeros((4, 2)), np.zeros((5, 2)), second)], Heap())
    assert caught.value.rows == (0, 2)


def test_an_array_and_a_number_do_not_fit_together() -> None:
    with pytest.raises(Mismatch, match=r"row 0 has shape \(4,\) and row 1 has shape \(\)"):
        Pad()([np.zeros(4), np.zeros(())], Heap())


def test_another_dtype_is_refused_by_row() -> None:
    with pytest.raises(Mismatch, match="row 2 has dtype float32") as caught:
        Pad()([np.zeros(1), np.zeros(2), np.zeros(3, "f4")], Heap())
    assert caught.value.rows == (0, 2)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(-1, "uint8"), (0.5, "int64"), (float("nan"), "int32"), (1e300, "float32"), (2, "bool")],
)
def test_a_value_that_the_dtype_cannot_hold_is_refused(value: float, dtype: str) -> None:
    with pytest.raises(LayoutError, match="cannot hold the value"):
        Pad(value=value)([np.zeros(1, dtype), np.zeros(2, dtype)], Heap())


@pytest.mark.parametrize(("value", "dtype"), [(float("-inf"), "float16"), (0.1, "float32"), (True, "bool")])
def test_a_value_is_rounded_to_the_precision_of_the_field(value: float, dtype: str) -> None:
    batch, _ = Pad(value=value)([np.zeros(0, dtype), np.zeros(1, dtype)], Heap())
    assert batch[0, 0] == np.array(value, dtype)


def test_texts_in_arrays_are_padded_with_nothing() -> None:
    batch, _ = Pad()([np.array(["ab"]), np.array(["cd", "ef"])], Heap())
    assert batch.tolist() == [["ab", ""], ["cd", "ef"]]
    with pytest.raises(LayoutError, match="value=0"):
        Pad(value=1)([np.array(["ab"])], Heap())


@pytest.mark.parametrize(
    "settings",
    [
        {"length": 0},
        {"length": 2.5},
        {"length": True},
        {"length": {"t": -1}},
        {"multiple": 0},
        {"length": 8, "multiple": 8},
        {"value": None},
        {"value": {"t": "x"}},
    ],
)
def test_bad_settings_are_refused_at_once(settings: dict[str, Any]) -> None:
    with pytest.raises(PipelineError, match="Pad: "):
        Pad(**settings)


@pytest.mark.parametrize("settings", [{"fields": ["x"]}, {"length": {"x": 3}}, {"value": {"x": 3}}])
def test_a_field_that_is_not_there_is_refused_with_those_that_are(settings: dict[str, Any]) -> None:
    with pytest.raises(PipelineError, match=r"field 'x', but the fields of a sample are: 't', 'y'"):
        Pad(**settings)(tokens(1, 2), Heap())


def test_a_field_without_an_axis_cannot_be_padded() -> None:
    with pytest.raises(LayoutError, match="'y' has no axis to pad"):
        Pad(fields="y")(tokens(2, 2), Heap())


def test_lists_of_numbers_such_as_token_ids_are_padded_like_arrays():
    from infeed.collate import Concat, Heap, List, Pad

    samples = [{"ids": [3, 5, 1], "name": "a"}, {"ids": [2], "name": "b"}]
    assert Pad()(samples, Heap())["ids"].tolist() == [[3, 5, 1], [2, 0, 0]]
    assert Concat()(samples, Heap())["ids"].tolist() == [3, 5, 1, 2]
    assert [ids.tolist() for ids in List()(samples, Heap())["ids"]] == [[3, 5, 1], [2]]
    equal = [{"ids": [1, 2]}, {"ids": [3, 4]}]
    assert Pad(mask=False)(equal, Heap())["ids"].tolist() == [[1, 2], [3, 4]]
