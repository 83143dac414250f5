"""iterable(): a fresh iterator for every shard and epoch."""

import functools
import itertools

import cloudpickle
import pytest

from infeed.errors import PipelineError
from infeed.sources import iterable


def read(source, shard="0", epoch=0):
    return list(source.open(shard, epoch))


def test_a_function_is_called_anew_for_every_epoch():
    calls = itertools.count()
    source = iterable(lambda: [next(calls)])
    assert (source.shards, read(source), read(source, epoch=1)) == (("0",), [0], [1])


@pytest.mark.parametrize(
    ("factory", "expected"),
    [
        (lambda shard: [shard], ["b"]),
        (lambda epoch, shard: [epoch, shard], [7, "b"]),
        (lambda *, shard, epoch: [epoch, shard], [7, "b"]),
        (lambda path: [path], ["b"]),
        (lambda path, epoch: [path, epoch], ["b", 7]),
        (lambda path, buffer=3: [path, buffer], ["b", 3]),
        (lambda *paths: [*paths], ["b"]),
        (functools.partial(lambda root, shard: [root, shard], "r"), ["r", "b"]),
    ],
)
def test_shard_and_epoch_reach_the_function_by_name_or_first(factory, expected):
    assert read(iterable(factory, shards=["a", "b"]), "b", 7) == expected


def test_without_shards_only_what_is_named_is_passed():
    assert read(iterable(lambda epoch: [epoch]), epoch=4) == [4]
    assert read(iterable(lambda size=2: range(size))) == [0, 1]
    assert read(iterable(lambda shard: [shard])) == [0]


def test_a_number_of_shards_is_passed_as_numbers():
    source = iterable(lambda shard: range(shard, 10, 3), shards=3)
    assert source.shards == ("0", "1", "2")
    assert [read(source, shard) for shard in source.shards] == [[0, 3, 6, 9], [1, 4, 7], [2, 5, 8]]


def test_one_named_shard_is_passed_too():
    assert read(iterable(lambda path: [path], shards=["only"]), "only") == ["only"]


def test_an_object_that_can_be_iterated_again_is_taken_as_it_is():
    source = iterable([1, 2])
    assert read(source) == read(source, epoch=1) == [1, 2]


def test_a_class_is_a_function_that_makes_iterators():
    class Numbers:
        def __init__(self, epoch):
            self.epoch = epoch

        def __iter__(self):
            return iter([self.epoch])

    assert read(iterable(Numbers), epoch=3) == [3]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: iterable(i for i in range(3)), "used up after one epoch"),
        (lambda: iterable(iter([1])), "used up after one epoch"),
        (lambda: iterable("abc"), "single string"),
        (lambda: iterable(3), "was given int"),
        (lambda: iterable(lambda: [1], shards=2), "takes no shard"),
        (lambda: iterable(lambda epoch: [], shards=["a"]), "takes no shard"),
        (lambda: iterable(lambda *, path: [], shards=["a"]), "takes no shard"),
        (lambda: iterable([1], shards=2), "has no shards"),
        (lambda: iterable(lambda path: []), "needs an argument 'path'"),
        (lambda: iterable(lambda shard, size: [], shards=2), "needs an argument 'size'"),
        (lambda: iterable(lambda shard: [], shards=0), "at least 1"),
        (lambda: iterable(lambda shard: [], shards=True), "number or a list"),
        (lambda: iterable(lambda shard: [], shards="abc"), "number or a list"),
        (lambda: iterable(lambda shard: [], shards=[]), "at least one"),
        (lambda: iterable(lambda shard: [], shards=[1, 2]), "must be names"),
        (lambda: iterable(lambda shard: [], shards=["a", "a"]), "'a' is named twice"),
    ],
)
def test_what_cannot_work_is_refused_at_construction(make, message):
    with pytest.raises(PipelineError, match=message):
        make()


def test_a_function_that_returns_no_iterator_is_named():
    with pytest.raises(PipelineError, match="returned a int"):
        iterable(lambda: 3).open("0", 0)


def test_an_unknown_shard_is_refused():
    with pytest.raises(PipelineError, match="no shard 'z'; there are a, b"):
        iterable(lambda shard: [], shards=["a", "b"]).open("z", 0)


def test_it_survives_pickling():
    source = cloudpickle.loads(cloudpickle.dumps(iterable(lambda shard: [shard], shards=["a", "b"])))
    assert read(source, "b") == ["b"]
    assert repr(source) == "<IterableSource: <lambda>, 2 shards>"
