"""The general way: objects in the bytes of a slot."""

import dataclasses

import numpy as np
import pytest
import torch

from infeed.wire import Region, decode, encode


@dataclasses.dataclass
class Graph:
    x: np.ndarray
    name: str


def back(thing, room=1 << 16):
    region = Region(np.zeros(room, np.uint8))
    grown = []

    def spill(nbytes):
        grown.append(np.zeros(nbytes, np.uint8))
        return grown[0]

    where = encode(thing, region, spill)
    memory = grown[0] if grown else region.memory
    return decode(where, memory), memory, bool(grown)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(5000.0),
        np.arange(6000).reshape(2, 3000).T,
        np.zeros((0, 4)),
        np.arange(10),
        np.array([{"a": 1}, None], object),
        np.zeros(2000, [("a", "i4"), ("b", "f8")]),
        np.arange(1000).astype(">i8"),
        np.array(["a", "bc"] * 2000),
    ],
)
def test_arrays_of_every_kind_come_back_as_they_were(array):
    (found,), _, _ = back([array])
    assert found.dtype == array.dtype
    assert found.shape == array.shape
    assert (found == array).all()


def test_large_arrays_look_into_the_memory_and_small_ones_do_not():
    (large, small), memory, _ = back([np.zeros(5000), np.zeros(5)])
    memory[:] = 255
    assert np.isnan(large).all()
    assert (small == 0).all()


def test_what_has_no_room_is_spilled_with_what_was_made_inside():
    region = Region(np.zeros(40_960, np.uint8))
    inside = region.new((4000,), np.dtype("int64"))
    inside[:] = 7
    grown = []

    def spill(nbytes):
        grown.append(np.zeros(nbytes, np.uint8))
        return grown[0]

    where = encode([inside, np.full(9000, 3.0)], region, spill)
    first, second = decode(where, grown[0])
    assert (first == 7).all()
    assert (second == 3).all()


def test_an_array_made_inside_is_not_written_again():
    region = Region(np.zeros(1 << 16, np.uint8))
    inside = region.new((4000,), np.dtype("int64"))
    used = region.used
    encode({"a": inside, "again": inside}, region, lambda nbytes: np.zeros(nbytes, np.uint8))
    assert region.used == used


def test_structures_tensors_and_the_users_classes_come_back():
    thing = {"t": torch.arange(4000), "g": Graph(np.arange(3000), "a"), "n": None, "l": [1, "b", (2.5,)]}
    found, _, _ = back(thing)
    assert torch.equal(found["t"], thing["t"])
    assert found["g"].name == "a"
    assert (found["g"].x == thing["g"].x).all()
    assert (found["n"], found["l"]) == (None, [1, "b", (2.5,)])


def test_functions_go_by_value():
    found, _, _ = back({"f": lambda: 42})
    assert found["f"]() == 42
