"""The order of the samples that remain of a scanned pipeline."""

import numpy as np
import pytest

import infeed


def walk(loader):
    """Batches and exceptions in the order they come."""
    found, iterator = [], iter(loader)
    while True:
        try:
            found.append(next(iterator).tolist())
        except StopIteration:
            return found
        except ZeroDivisionError:
            found.append("error")


@pytest.mark.parametrize("workers", [0, 2])
def test_what_raises_comes_in_its_place_and_takes_nothing_with_it(workers):
    pipeline = infeed.source(range(10)).filter(lambda sample: 1 / (sample - 6)).batch(2)
    with infeed.Loader(pipeline, workers=workers, mode="threads" if workers else "inline") as loader:
        assert walk(loader) == [[0, 1], [2, 3], [4, 5], "error", [7, 8], [9]]


def test_shards_take_turns_of_sixteen():
    def count(shard):
        return iter(range(100 * shard, 100 * shard + 40))

    pipeline = infeed.iterable(count, shards=3).batch(8)
    with infeed.Loader(pipeline, workers=0) as loader:
        order = np.concatenate(list(loader)).tolist()
    turns = [order[start : start + 16] for start in range(0, 96, 16)]
    assert [turn[0] // 100 for turn in turns] == [0, 1, 2, 0, 1, 2]
    assert sorted(order) == [100 * shard + i for shard in range(3) for i in range(40)]


def test_a_shard_that_ends_early_leaves_its_turns_to_the_others():
    sizes = {"a": 5, "b": 0, "c": 40}
    pipeline = infeed.iterable(lambda shard: iter([shard] * sizes[shard]), shards=list(sizes)).batch(
        9, collate=list
    )
    with infeed.Loader(pipeline, workers=0) as loader:
        assert [name for batch in loader for name in batch] == ["a"] * 5 + ["c"] * 40


def test_drop_last_loses_at_most_one_step_over_all_shards():
    pipeline = infeed.iterable(lambda shard: iter(range(11)), shards=7).batch(4, drop_last=True)
    with infeed.Loader(pipeline, workers=3, mode="threads") as loader:
        assert sum(len(batch) for batch in loader) == 76
