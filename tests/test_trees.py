"""The structure of samples."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.errors import LayoutError
from infeed.trees import LEAF, StructureMismatch, Tree, tree_map


class Pair(NamedTuple):
    left: Any
    right: Any


class Checked(NamedTuple("Checked", [("a", Any)])):
    """A named tuple whose constructor does more than store."""

    def __new__(cls, a: int) -> Checked:
        if not isinstance(a, int):
            raise TypeError("an int, please")
        return super().__new__(cls, a)


@dataclass
class Box:
    size: Any
    label: Any = None


@dataclass(frozen=True, slots=True)
class Frozen:
    size: Any
    double: Any = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "double", self.size * 2)


def nested(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.dictionaries(st.text("abc", min_size=1, max_size=2), inner, max_size=3),
            st.lists(inner, max_size=3),
            st.lists(inner, max_size=3).map(tuple),
            st.tuples(inner, inner).map(lambda pair: Pair(*pair)),
            st.tuples(inner, inner).map(lambda pair: Box(*pair)),
        ),
        max_leaves=8,
    )


@given(nested(st.integers()))
def test_a_sample_taken_apart_and_built_again_is_the_same(sample: Any) -> None:
    tree = Tree.of(sample)
    leaves = tree.leaves(sample)
    assert tree.build(leaves) == sample
    assert type(tree.build(leaves)) is type(sample)
    assert tree.size == len(tree.names) == len(leaves)


@given(nested(st.integers()), st.integers(1, 4))
def test_columns_hold_one_value_per_sample(sample: Any, count: int) -> None:
    tree = Tree.of(sample)
    assert tree.columns([sample] * count) == [[leaf] * count for leaf in tree.leaves(sample)]


@given(nested(st.integers()))
def test_trees_are_values_that_can_be_compared_hashed_and_sent(sample: Any) -> None:
    tree = Tree.of(sample)
    assert tree == Tree.of(sample)
    assert hash(tree) == hash(Tree.of(sample))
    assert pickle.loads(pickle.dumps(tree)) == tree


def test_names_lead_to_the_leaf() -> None:
    assert Tree.of({"a": (1, {"b": 2}), "c": Pair(3, Box(4))}).names == (
        "a.0",
        "a.1.b",
        "c.left",
        "c.right.size",
        "c.right.label",
    )
    assert Tree.of(5).names == ("",)


def test_what_is_no_container_is_a_leaf() -> None:
    for leaf in (1, 2.0, "text", b"bytes", None, np.zeros(3), {1, 2}, Box):
        assert Tree.of(leaf) is LEAF


def test_the_order_of_keys_does_not_matter() -> None:
    tree = Tree.of({"x": 1, "y": 2})
    assert tree.columns([{"x": 1, "y": 2}, {"y": 4, "x": 3}]) == [[1, 3], [2, 4]]


def test_kinds_of_dicts_fit_together() -> None:
    assert Tree.of({"x": 1}).columns([{"x": 1}, OrderedDict(x=2)]) == [[1, 2]]


def test_dataclasses_are_built_without_their_constructor() -> None:
    tree = Tree.of(Frozen(2))
    built = tree.build(["many", "doubles"])
    assert (built.size, built.double) == ("many", "doubles")


def test_named_tuples_are_built_without_their_constructor() -> None:
    built = Tree.of(Checked(2)).build(["no int"])
    assert type(built) is Checked
    assert built.a == "no int"


@pytest.mark.parametrize(
    ("sample", "other", "message"),
    [
        ({"x": 1}, {"y": 1}, "{x} was expected, {y} came"),
        ({"x": 1}, {"x": 1, "y": 1}, "{x} was expected, {x, y} came"),
        ({"x": 1}, 5, "{x} was expected, * came"),
        ((1, 2), (1, 2, 3), "(*, *) was expected, (*, *, *) came"),
        ((1, 2), [1, 2], "(*, *) was expected, [*, *] came"),
        (Pair(1, 2), (1, 2), "Pair(*, *) was expected, (*, *) came"),
        (Box(1), {"size": 1}, "Box(size, label) was expected, {size} came"),
        ({"x": {"y": 1}}, {"x": 1}, "field 'x': {y} was expected, * came"),
        ({"x": (1, {"y": 1})}, {"x": (1, 2)}, "field 'x.1': {y} was expected, * came"),
        (Pair(1, (1,)), Pair(1, 2), "field 'right': (*) was expected, * came"),
        (Box(1, {"a": 1}), Box(1), "field 'label': {a} was expected, * came"),
        (
            [1, 2],
            [1],
            (
                "a list of 2 was expected, a list of 1 came (rows of different lengths should be arrays, not "
                "lists: np.asarray in a map)"
            ),
        ),
    ],
)
def test_another_structure_is_refused_with_its_row_and_place(sample: Any, other: Any, message: str) -> None:
    with pytest.raises(StructureMismatch) as caught:
        Tree.of(sample).columns([sample, sample, other])
    assert caught.value.row == 2
    assert str(caught.value) == message
    assert isinstance(caught.value, LayoutError)


def test_a_mismatch_survives_the_way_between_processes() -> None:
    error = pickle.loads(pickle.dumps(StructureMismatch(3, "something else")))
    assert (error.row, error.what, str(error)) == (3, "something else", "something else")


def test_a_list_in_the_place_of_a_leaf_is_the_leaf() -> None:
    tree = Tree.of({"name": "cat", "size": 1})
    assert tree.leaves({"name": ["cat", "dog"], "size": np.arange(2)})[0] == ["cat", "dog"]


def test_no_samples_give_empty_columns() -> None:
    assert Tree.of({"x": (1, 2), "y": 3}).columns([]) == [[], [], []]


def test_tree_map_reaches_every_leaf() -> None:
    assert tree_map(str, {"a": [1, Pair(2, 3)]}) == {"a": ["1", Pair("2", "3")]}
