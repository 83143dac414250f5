"""infeed.testing: our own sources and workers keep to the contracts, and what does not is caught."""

import dataclasses
import functools
import itertools
import os

import numpy as np
import pytest

import infeed
from infeed.sources import Column, Columns, Source
from infeed.testing import SourceContract, WorkersContract, check_resume, check_stream, difference
from infeed.trees import LEAF
from infeed.workers import InlineCrew


class TestArraysSource(SourceContract):
    def make_source(self):
        x = np.arange(60, dtype=np.float32).reshape(20, 3)
        return infeed.arrays(x=x, reversed=x[::-1], name=[f"sample {i}" for i in range(20)])


class Accessor:
    def __len__(self):
        return 20

    def __getitem__(self, indices):
        return [np.full((index % 4 + 1, 2), index) for index in indices]


class TestArraysSourceWithAnAccessor(SourceContract):
    collate = "list"

    def make_source(self):
        return infeed.arrays(image=Accessor(), label=np.arange(20))


class Items:
    def __len__(self):
        return 20

    def __getitem__(self, index):
        return {"x": np.full(3, index), "pair": (index, str(index))}


class ManyItems(Items):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


@pytest.mark.parametrize("items", [Items, ManyItems])
class TestItemsSource(SourceContract):
    @pytest.fixture(autouse=True)
    def _items(self, items):
        self.items = items

    def make_source(self):
        return self.items()


class TestItemsSourceOfManyStrings(SourceContract):
    def make_source(self):
        return infeed.source([f"line {i}" for i in range(2000)])


class TestFilesSource(SourceContract):
    @pytest.fixture(autouse=True)
    def _files(self, tmp_path):
        for number in range(20):
            (tmp_path / f"{number:02}.txt").write_text("line\n" * number)
        self.folder = tmp_path

    def make_source(self):
        return infeed.files(self.folder, read=os.path.getsize)


class TestZipSource(SourceContract):
    def make_source(self):
        return infeed.zip(left=np.arange(40).reshape(20, 2), right=infeed.arrays(a=np.arange(20)), item=Items())


class TestZipSourceOfColumns(SourceContract):
    def make_source(self):
        return infeed.zip(np.arange(40).reshape(20, 2), infeed.arrays(a=np.arange(20)))


class TestConcatSource(SourceContract):
    def make_source(self):
        return infeed.concat(np.arange(12), np.arange(100, 108), np.arange(5))


class TestChooseSource(SourceContract):
    def make_source(self):
        return infeed.choose([np.arange(12), np.arange(100, 108)], weights=[2, 1], stop="all")


class TestWindowSource(SourceContract):
    def make_source(self):
        return infeed.arrays(x=np.arange(50), t=np.arange(50) / 10).window(5, stride=2)


class TestWindowSourceOfItems(SourceContract):
    def make_source(self):
        return infeed.source([{"x": i} for i in range(50)]).window(5, stride=2)


def doubled(sample, rng):
    return {"x": 2 * sample["x"], "drawn": rng.random()}


class TestPipelineAsASource(SourceContract):
    def make_source(self):
        return infeed.arrays(x=np.arange(30)).shuffle(seed=3).map(doubled)


class TestInlineWorkers(WorkersContract):
    def make_workers(self):
        return infeed.Workers(0, mode="inline")


@pytest.mark.parametrize("count", [1, 3])
class TestThreadWorkers(WorkersContract):
    @pytest.fixture(autouse=True)
    def _count(self, count):
        self.count = count

    def make_workers(self):
        return infeed.Workers(self.count, mode="threads")


@pytest.mark.parametrize("method", [None, "fork", "spawn"])
class TestProcessWorkers(WorkersContract):
    @pytest.fixture(autouse=True)
    def _method(self, method):
        self.method = method

    def make_workers(self):
        return infeed.Workers(2, mode="processes", start_method=self.method)


# -- what breaks a contract is caught


class Broken(Source):
    def __len__(self):
        return 12

    def fetch(self, indices, epoch):
        return [int(index) for index in indices]


class Sorted(Broken):
    def fetch(self, indices, epoch):
        return sorted(super().fetch(indices, epoch))


class Counting(Broken):
    calls = 0

    def fetch(self, indices, epoch):
        self.calls += 1
        return [index + 100 * self.calls for index in super().fetch(indices, epoch)]


class Spoiling(Broken):
    def fetch(self, indices, epoch):
        samples = super().fetch(indices, epoch)
        indices[:] = 0
        return samples


class Wrapping(Broken):
    def __getitem__(self, index):
        return index % 12


class Unpicklable(Broken):
    def __reduce__(self):
        raise TypeError("no")


class WrongColumn(Column):
    dtype, shape = np.dtype(np.int64), ()

    def __init__(self, rows):
        self.rows = rows

    def take(self, indices, out=None):
        return self.rows[: len(indices)]


class WrongColumns(Broken):
    own = np.arange(12)

    @property
    def columns(self):
        return Columns(LEAF, [WrongColumn(self.own)])


@pytest.mark.parametrize(
    ("broken", "test"),
    [
        (Sorted, "samples_come_in_the_order_asked_for"),
        (Sorted, "a_sample_can_be_asked_for_twice_in_one_call"),
        (Counting, "one_sample_alone_is_the_same_as_among_others"),
        (Counting, "reading_again_gives_the_same_samples_in_every_epoch"),
        (Spoiling, "the_indices_asked_for_are_left_alone"),
        (Wrapping, "an_index_beyond_the_end_is_refused"),
        (WrongColumns, "a_column_writes_into_the_memory_it_is_given"),
        (WrongColumns, "what_a_column_gives_is_not_the_sources_own_memory"),
    ],
)
def test_a_source_that_breaks_the_contract_is_caught(broken, test):
    class Contract(SourceContract):
        def make_source(self):
            return broken()

    with pytest.raises(AssertionError):
        getattr(Contract(), f"test_{test}")()


def test_a_source_that_keeps_to_the_contract_passes_what_others_fail():
    class Contract(SourceContract):
        def make_source(self):
            return Broken()

    for name in dir(Contract):
        if name.startswith("test_"):
            getattr(Contract(), name)()


def test_a_source_that_cannot_travel_is_caught():
    class Contract(SourceContract):
        def make_source(self):
            return Unpicklable()

    with pytest.raises(TypeError, match="no"):
        Contract().test_a_pickled_copy_gives_the_same_samples()


def test_an_iterable_is_no_source_for_the_contract():
    class Contract(SourceContract):
        def make_source(self):
            return infeed.iterable(lambda: iter(range(3))).source

    with pytest.raises(TypeError, match="check_stream"):
        Contract().test_it_can_be_printed()


@pytest.mark.parametrize("contract", [SourceContract, WorkersContract])
def test_a_contract_says_what_to_define(contract):
    tests = [name for name in dir(contract) if name.startswith("test_")]
    assert len(tests) > 10
    with pytest.raises(NotImplementedError, match="must define make_"):
        getattr(contract(), tests[0])()


class Doubling(InlineCrew):
    """Answers every task twice."""

    def wait(self, ready, timeout=None):
        jobs = list(self.jobs.values())
        there = super().wait(ready, timeout)
        for job in jobs:
            job.replied(None, job.replies[0])
        return there


class Unlocked(InlineCrew):
    """Brings replies without the lock."""

    def wait(self, ready, timeout=None):
        self.lock.release()
        try:
            return super().wait(ready, timeout)
        finally:
            self.lock.acquire()


class Keeping(InlineCrew):
    """Goes on with what was cancelled."""

    def cancel(self, job):
        return [task for task in self._tasks if task.job == job.number]

    def wait(self, ready, timeout=None):
        while self._tasks:
            super().wait(self._once(), timeout)
        return super().wait(ready, timeout)

    @staticmethod
    def _once():
        answers = iter([False])
        return lambda: next(answers, True)


class Losing(InlineCrew):
    """Loses what comes from the second half of a slot: rows stay as they were in the slot."""

    def submit(self, task):
        if task.high - task.low > 1 and task.layout >= 0:
            task = dataclasses.replace(task, high=task.high - 1)
        super().submit(task)


class Of(infeed.Workers):
    def __init__(self, crew):
        super().__init__(0, "inline")
        self.kind = crew

    def make(self):
        return self.kind()


@pytest.mark.parametrize(
    ("crew", "test"),
    [
        (Doubling, "every_task_is_answered_once"),
        (Losing, "every_task_is_answered_once"),
        (Losing, "rows_are_the_same_as_inline"),
        (Unlocked, "replies_come_with_the_lock_held"),
        (Keeping, "a_cancelled_task_is_never_answered"),
    ],
)
def test_workers_that_break_the_contract_are_caught(crew, test):
    class Contract(WorkersContract):
        def make_workers(self):
            return Of(crew)

    with pytest.raises(AssertionError):
        getattr(Contract(), f"test_{test}")()


# -- check_stream and check_resume


def numbers():
    return infeed.arrays(x=np.arange(20)).shuffle(seed=7)


def test_a_loader_is_checked_with_its_own_workers_and_keeps_its_place():
    with infeed.Loader(numbers().batch(4), workers=2, mode="threads", prefetch=3, epochs=3) as loader:
        iterator = iter(loader)
        first = next(iterator)["x"].tolist()
        check_stream(loader, modes=["inline"])
        rest = [batch["x"].tolist() for batch in loader]
        wanted = [loader.batch_at(*divmod(step, 5))["x"].tolist() for step in range(15)]
        assert [first, *rest] == wanted


def test_an_endless_loader_can_be_checked():
    with infeed.Loader(numbers().batch(4), workers=0, epochs=None) as loader:
        check_stream(loader, modes=["inline", "threads"])


def test_a_function_that_makes_loaders_gets_the_workers():
    made = []

    def make(**how):
        made.append(how["workers"].mode)
        return infeed.Loader(numbers().batch(4), prefetch=2, **how)

    check_stream(make, modes=["threads", "inline"])
    assert made == ["threads", "inline"]
    check_resume(functools.partial(infeed.Loader, numbers().batch(8), prefetch=1), modes=["threads", "inline"])


def test_workers_given_to_a_check_stay_alive():
    with infeed.Workers(2, mode="threads") as workers:
        check_stream(numbers().batch(4), modes=[workers, "inline"])
        check_resume(numbers().batch(8), modes=[workers])
        assert workers.started


def which_worker(sample):
    return {**sample, "pid": os.getpid()}


def test_a_stream_that_depends_on_the_worker_is_caught():
    pipeline = numbers().map(which_worker).batch(4)
    with pytest.raises(AssertionError, match=r"mode='processes'.*batch 0 is not the same: pid: row 0 is"):
        check_stream(pipeline, modes=["inline", "processes"])


class Remembering:
    """A map whose result depends on what it was called with before."""

    def __init__(self):
        self.calls = itertools.count()

    def __call__(self, sample):
        return {**sample, "call": next(self.calls)}


def test_a_stream_that_depends_on_the_schedule_is_caught():
    with pytest.raises(AssertionError, match="call"):
        check_stream(numbers().map(Remembering()).batch(4), modes=["inline", "threads"])


class Forgetful(infeed.Loader):
    """Loses a step when it is resumed."""

    def load_state_dict(self, loaded):
        super().load_state_dict({**loaded, "position": loaded["position"] + 4})


def test_a_step_lost_in_a_resume_is_caught():
    pipeline = numbers().batch(4)
    check_stream(functools.partial(Forgetful, pipeline), modes=["inline"])
    with pytest.raises(AssertionError, match=r"resumed after step 0: .* batch 0 is not the same"):
        check_resume(functools.partial(Forgetful, pipeline), modes=["inline"])


class Repeating(infeed.Loader):
    """Gives the first step twice and leaves out the last."""

    def __iter__(self):
        before = None
        for batch in super().__iter__():
            yield batch if before is None else before
            before = batch


@pytest.mark.parametrize(
    "pipeline",
    [numbers().batch(4), numbers().batch(4, collate="list"), numbers().batch(infeed.Plan(2, iterations=2))],
)
def test_a_sample_that_comes_twice_is_caught_though_all_modes_agree(pipeline):
    with pytest.raises(AssertionError, match="step 1 came otherwise than its samples say"):
        check_stream(functools.partial(Repeating, pipeline), modes=["inline"])


def is_odd(sample):
    return bool(sample["x"] % 2)


def test_a_filtered_stream_is_worked_out_sample_by_sample():
    filtered = numbers().map(doubled).filter(lambda sample: sample["x"] % 3).map(doubled)
    for batched in (filtered.batch(4), filtered.batch(4, drop_last=True)):
        check_stream(batched, modes=["inline", "threads"])
    with pytest.raises(AssertionError, match="step 1 came otherwise than its samples say"):
        check_stream(functools.partial(Repeating, numbers().filter(is_odd).batch(2)), modes=["inline"])


def shard_of_numbers(shard):
    return iter(range(10 * (shard + 1)))


def test_the_samples_of_an_iterable_are_counted():
    pipeline = infeed.iterable(shard_of_numbers, shards=3).batch(8)
    check_stream(pipeline, modes=["inline", "threads"])
    check_resume(pipeline, modes=["inline", "threads"])

    class Short(infeed.Loader):
        def __iter__(self):
            return itertools.islice(super().__iter__(), 7)

    with pytest.raises(AssertionError, match="epoch 0 has 56 samples; its shards hold 60"):
        check_stream(functools.partial(Short, pipeline), modes=["inline"])


def test_a_check_without_modes_is_refused():
    with pytest.raises(ValueError, match="at least one"):
        check_stream(numbers().batch(4), modes=[])


# -- comparing


@dataclasses.dataclass
class Point:
    x: float
    y: np.ndarray


class Plain:
    def __init__(self, value):
        self.value = value


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        (np.float32(1), np.float64(1), "is a float32 and a float64"),
        (np.zeros(2), np.zeros((2, 1)), "is float64[2] and float64[2, 1]"),
        (np.zeros(2), -np.zeros(2), "row 0 is 0.0 and -0.0"),
        (np.zeros((2, 9)), np.eye(2, 9), "row 0 differs: [0. 0. 0. 0.]... and [1. 0. 0. 0.]..."),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, "has the keys ['a', 'b'] and ['b', 'a']"),
        ([1, [2, 3]], [1, [2, 4]], "1.1: is 3 and 4"),
        ([1], [1, 2], "has 1 and 2 entries"),
        (Point(1.0, np.zeros(1)), Point(1.0, np.ones(1)), "y: row 0 is 0.0 and 1.0"),
        (Plain(1), Plain(2), "value: is 1 and 2"),
        (np.array(["a", None], object), np.array(["a", "b"], object), "1: is a NoneType and a str"),
        (np.array(1), np.array(2), "is 1 and 2"),
        ("a", "b", "is 'a' and 'b'"),
    ],
)
def test_a_difference_is_said_with_its_place(first, second, found):
    assert difference(first, second) == found


@pytest.mark.parametrize(
    "same", [float("nan"), np.array([np.nan]), None, Plain(np.arange(3)), Point(1.0, np.arange(3)), {"a": (1, "b")}]
)
def test_the_same_is_the_same(same):
    import copy

    assert difference(same, copy.deepcopy(same)) == ""


def test_tensors_are_compared_by_their_bytes():
    torch = pytest.importorskip("torch")
    assert difference(torch.arange(3), torch.arange(3)) == ""
    assert difference(torch.arange(3), torch.arange(1, 4)) == "row 0 is 0 and 1"
    assert difference(torch.zeros(2, dtype=torch.bfloat16), torch.zeros(2, dtype=torch.bfloat16)) == ""
    assert difference(torch.zeros(2, dtype=torch.bfloat16), torch.ones(2, dtype=torch.bfloat16)) == "differs"
