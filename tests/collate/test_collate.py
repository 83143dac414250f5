"""What holds for every kind of collate."""

from __future__ import annotations

import pickle
from typing import Any

import cloudpickle
import numpy as np
import pytest

from infeed.collate import Collate, Concat, Function, Heap, List, Mismatch, Pad, Stack, as_collate
from infeed.errors import LayoutError, PipelineError

KINDS = [
    Stack(),
    Pad(),
    Pad(length={"x": 9}, value={"x": -1}, mask=False, fields=["x"]),
    Concat(),
    Concat(shift={"i": "x"}, axis={"x": 0}),
    List(),
]


class Recorder:
    """A memory that remembers what it gave."""

    def __init__(self) -> None:
        self.given: list[Any] = []

    def new(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        assert isinstance(shape, tuple)
        assert isinstance(dtype, np.dtype)
        array = np.empty(shape, dtype)
        self.given.append(array)
        return array


def samples() -> list[Any]:
    return [{"x": np.arange(3.0), "i": np.array([0, 2]), "y": 1, "z": "a"} for _ in range(4)]


@pytest.mark.parametrize("collate", KINDS, ids=repr)
def test_every_array_of_a_batch_is_the_one_the_memory_gave(collate: Collate) -> None:
    memory = Recorder()
    batch = collate(samples(), memory)
    arrays = [value for value in batch.values() if isinstance(value, np.ndarray)]
    assert arrays
    assert {id(array) for array in arrays} == {id(array) for array in memory.given}


@pytest.mark.parametrize("collate", KINDS, ids=repr)
def test_a_collate_travels_and_makes_the_same_batch_there(collate: Collate) -> None:
    copy = pickle.loads(pickle.dumps(collate))
    assert copy == collate
    here, there = collate(samples(), Heap()), copy(samples(), Heap())
    assert list(here) == list(there)
    for key, value in here.items():
        np.testing.assert_array_equal(value, there[key])


@pytest.mark.parametrize("collate", KINDS, ids=repr)
def test_a_batch_of_nothing_is_refused(collate: Collate) -> None:
    with pytest.raises(LayoutError, match="no samples"):
        collate([], Heap())


@pytest.mark.parametrize("collate", [Pad(), Concat()], ids=repr)
def test_fields_found_by_name_must_have_names_of_their_own(collate: Collate) -> None:
    with pytest.raises(LayoutError, match=r"both called 'a\.b'"):
        collate([{"a.b": np.zeros(1), "a": {"b": np.zeros(1)}}], Heap())


def test_settings_given_as_a_dict_are_kept_when_the_dict_changes() -> None:
    lengths = {"x": 4}
    pad = Pad(length=lengths)
    lengths["x"] = 0
    assert pad == Pad(length={"x": 4})


def test_a_collate_prints_only_what_was_set() -> None:
    assert repr(Stack()) == "Stack()"
    assert repr(Pad(length=8, mask=False)) == "Pad(length=8, mask=False)"
    assert repr(Concat(axis={"e": 1})) == "Concat(axis={'e': 1})"
    assert repr(Function(np.stack)) == "Function(stack)"


def test_names_collates_and_functions_are_all_understood() -> None:
    assert as_collate("stack") == Stack()
    assert as_collate("pad") == Pad()
    assert as_collate("concat") == Concat()
    assert as_collate("list") == List()
    pad = Pad(length=3)
    assert as_collate(pad) is pad
    assert as_collate(len) == Function(len)


@pytest.mark.parametrize("spec", ["stak", None, 3])
def test_an_unknown_collate_is_refused_with_those_that_are_known(spec: Any) -> None:
    with pytest.raises(PipelineError, match="'stack', 'pad', 'concat', 'list'"):
        as_collate(spec)


def test_a_class_in_place_of_a_collate_is_refused() -> None:
    with pytest.raises(PipelineError, match=r"Pad\(\.\.\.\)"):
        as_collate(Pad)


def test_a_function_gets_the_samples_and_its_result_is_the_batch() -> None:
    collate = cloudpickle.loads(cloudpickle.dumps(as_collate(lambda rows: {"count": len(rows)})))
    assert collate([1, 2, 3], Heap()) == {"count": 3}


def test_an_exception_of_a_function_keeps_its_type() -> None:
    with pytest.raises(ZeroDivisionError):
        Function(lambda rows: len(rows) // 0)([1], Heap())


def test_what_cannot_be_called_is_no_function() -> None:
    with pytest.raises(PipelineError, match="callable"):
        Function(3)  # type: ignore[arg-type]


def test_a_mismatch_survives_the_way_between_processes() -> None:
    error = pickle.loads(pickle.dumps(Mismatch("rows differ", rows=(0, 4))))
    assert (str(error), error.rows) == ("rows differ", (0, 4))
    assert isinstance(error, LayoutError)
