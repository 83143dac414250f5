"""source(): samples from any object with a length and an index."""

import numpy as np
import pytest

from infeed.errors import LayoutError, PipelineError
from infeed.sources import ItemsSource, Strings, arrays, as_source, iterable, source


class Squares:
    def __init__(self):
        self.asked = []

    def __len__(self):
        return 10

    def __getitem__(self, index):
        self.asked.append(index)
        return index * index


class Many(Squares):
    def __init__(self, answer=None):
        super().__init__()
        self.answer = answer or (lambda indices: [i * i for i in indices])

    def __getitems__(self, indices):
        self.asked.append(indices)
        return self.answer(indices)


def test_items_come_in_the_order_asked_for_by_plain_int():
    items = Squares()
    assert source(items).fetch(np.array([3, 0, 3]), 0) == [9, 0, 9]
    assert items.asked == [3, 0, 3]
    assert {type(index) for index in items.asked} == {int}


def test_getitems_is_called_once_with_a_list_of_plain_ints():
    items = Many()
    assert source(items).fetch(np.array([3, 0]), 0) == [9, 0]
    assert items.asked == [[3, 0]]
    assert {type(index) for index in items.asked[0]} == {int}


def test_getitems_may_return_a_tuple():
    assert source(Many(lambda indices: tuple(indices))).fetch(np.array([3, 0]), 0) == [3, 0]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda indices: indices[:-1], "asked for 2 samples and returned 1"),
        (lambda indices: {"x": indices, "y": indices}, "returned a dict"),
        (lambda indices: iter(indices), "returned a list_iterator"),
    ],
)
def test_a_wrong_answer_of_getitems_is_named(answer, message):
    with pytest.raises(LayoutError, match=message):
        source(Many(answer)).fetch(np.array([3, 0]), 0)


def test_an_exception_of_the_items_comes_through_as_it_is():
    with pytest.raises(ZeroDivisionError):
        source(type("Bad", (Squares,), {"__getitem__": lambda self, i: 1 // 0})()).fetch(np.array([1]), 0)


@pytest.mark.parametrize("kind", [str, lambda i: str(i).encode()])
def test_a_long_list_of_strings_is_kept_in_compact_form(kind):
    strings = [kind(i) for i in range(1000)]
    made = source(strings)
    assert isinstance(made.items, Strings)
    assert made.fetch(np.array([999, 5]), 0) == [strings[999], strings[5]]
    assert made.thread_safe


def test_other_lists_stay_what_they_are():
    short, mixed = ["a"] * 999, ["a"] * 999 + [None]
    assert source(short).items is short
    assert source(mixed).items is mixed


def test_an_array_is_gathered_by_column():
    assert source(np.arange(4)).columns is not None


@pytest.mark.parametrize("bad", [{"a": 1}, "text", iter([1]), 3, type("IterableDataset", (Squares,), {})(), {1, 2}])
def test_what_has_no_samples_by_index_is_refused(bad):
    with pytest.raises(PipelineError):
        source(bad)


def test_only_builtin_containers_are_thread_safe():
    assert source([1, 2]).thread_safe
    assert not source(Squares()).thread_safe


def test_as_source_knows_what_is_accepted():
    made = arrays([1, 2])
    stream = iterable(lambda: [1])
    pipeline = type("Pipeline", (), {"as_source": lambda self: made})()
    assert as_source(made) is made
    assert as_source(stream) is stream
    assert as_source(pipeline) is made
    assert as_source(np.zeros((3, 2))).columns is not None
    assert isinstance(as_source(Squares()), ItemsSource)
    assert as_source([4, 5])[1] == 5


@pytest.mark.parametrize("bad", [None, 3, {"x": [1]}, "text", (i for i in range(3))])
def test_as_source_says_what_it_accepts(bad):
    with pytest.raises(PipelineError, match=r"accepted are.*__getitem__"):
        as_source(bad)


def test_an_as_source_method_that_makes_none_is_named():
    with pytest.raises(PipelineError, match="returned a int"):
        as_source(type("Pipeline", (), {"as_source": lambda self: 3})())
