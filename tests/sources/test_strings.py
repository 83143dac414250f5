"""Strings behaves as the list of strings it was made from."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.errors import PipelineError
from infeed.sources import Strings

anything = st.text(st.characters(exclude_categories=()), max_size=6)  # lone surrogates too
lists = st.lists(anything, max_size=8) | st.lists(st.binary(max_size=6), max_size=8)


@given(lists)
def test_it_holds_the_strings_it_was_given(strings):
    made = Strings(iter(strings))
    assert len(made) == len(strings)
    assert list(made) == strings
    assert [made[i] for i in range(len(strings))] == strings
    assert made.__getitems__(range(len(strings))) == strings


@given(lists, st.slices(8))
def test_a_slice_is_the_slice_of_the_list(strings, part):
    made = Strings(strings)[part]
    assert isinstance(made, Strings)
    assert list(made) == strings[part]
    assert made == Strings(strings[part])


@given(lists, lists)
def test_two_are_equal_when_their_lists_are(left, right):
    assert (Strings(left) == Strings(right)) == (left == right)
    assert Strings(left) == Strings(list(left))


def test_text_and_bytes_of_the_same_letters_are_not_equal():
    assert Strings(["a"]) != Strings([b"a"])
    assert Strings(["ab", "c"]) != Strings(["a", "bc"])
    assert Strings(["a"]) != ["a"]


def test_more_strings_than_one_chunk_keep_their_places():
    made = Strings(map(str, range(150_000)))
    assert made[65_535:65_538].__getitems__([0, 1, 2]) == ["65535", "65536", "65537"]
    assert made[149_999] == "149999"
    assert sum(1 for _ in made) == 150_000


def test_file_names_that_are_not_valid_text_are_kept():
    strange = ["caf\udce9", "\ud800", "a"]
    made = Strings(strange)
    assert list(made) == strange
    assert made[0] == strange[0]


def test_negative_indices_count_from_the_end():
    made = Strings([b"x", b"yz"])
    assert (made[-1], made[-2]) == (b"yz", b"x")
    for beyond in (2, -3):
        with pytest.raises(IndexError, match="there are 2"):
            made[beyond]


def test_it_is_a_sequence():
    made = Strings(["a", "b", "a"])
    assert "b" in made
    assert "c" not in made
    assert made.index("b") == 1
    assert made.count("a") == 2
    assert list(reversed(made)) == ["a", "b", "a"]


def test_it_takes_a_few_bytes_a_string_and_pickles_as_two_buffers():
    made = Strings(f"{i:07}" for i in range(10_000))
    assert made.blob.nbytes + made.offsets.nbytes < 16 * 10_001
    buffers = []
    raw = pickle.dumps(made, 5, buffer_callback=buffers.append)
    assert len(raw) < 1000
    assert pickle.loads(raw, buffers=buffers) == made


@pytest.mark.parametrize("strings", [["a", b"b"], ["a", 3], "single", b"single", [None]])
def test_anything_but_all_str_or_all_bytes_is_refused(strings):
    with pytest.raises(PipelineError, match=r"str or bytes|many strings"):
        Strings(strings)
