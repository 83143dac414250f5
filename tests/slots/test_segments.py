"""Memory: reserved first, shared without a name, checked against what is free."""

import os
import pickle

import numpy as np
import pytest

import infeed
from infeed.slots import Arena, Lease, Segment, segments, share, shared_if_large
from infeed.slots.segments import block_of, check_room


def test_a_shared_segment_is_the_same_memory_on_both_sides():
    segment = Segment.shared(5000)
    other = Segment.attach(os.dup(segment.fd), segment.nbytes, populate=True)
    other.memory[4999] = 7
    assert segment.memory[4999] == 7
    segment.close()


def test_memory_stays_while_an_array_looks_into_it():
    segment = Segment.shared(4096)
    view = segment.memory[:10]
    view[:] = 3
    segment.close()
    del segment
    assert view.tolist() == [3] * 10


def test_too_large_a_request_is_an_exception_before_anything_is_taken():
    with pytest.raises(infeed.OutOfMemory, match="free"):
        check_room(1 << 60, "a test")
    with pytest.raises(infeed.OutOfMemory):
        Arena(shared=True).new(1 << 60)


def test_the_containers_limit_counts(tmp_path, monkeypatch):
    (tmp_path / "memory.max").write_text("1000000")
    (tmp_path / "memory.current").write_text("400000")
    monkeypatch.setattr(segments, "_container_root", lambda: tmp_path)
    assert segments.free_memory() == 600_000


def test_a_shared_array_is_found_again_through_its_views():
    array = share(np.arange(100_000.0))
    block, offset = block_of(array[10:])
    assert offset == 80
    assert block.segment.nbytes >= array.nbytes
    assert block_of(np.arange(3)) is None


def test_a_shared_array_can_be_pickled_like_any_other():
    array = share(np.arange(1000))
    assert (pickle.loads(pickle.dumps(array)) == array).all()


def test_objects_cannot_be_shared():
    with pytest.raises(infeed.PipelineError, match="object"):
        share(np.array([None, 1], object))


def test_small_arrays_are_not_worth_a_segment():
    small = np.arange(3)
    assert shared_if_large(small) is small
    assert block_of(shared_if_large(np.zeros(100_000))) is not None


def test_a_lease_ends_with_the_last_view():
    arena = Arena(shared=False)
    slot = arena.new(1000)
    memory = Lease(slot).memory()
    view = memory[10:20].view("int16")
    del memory
    assert arena.take() is None
    del view
    assert arena.take() is slot


def test_the_slot_that_came_free_last_is_taken_first():
    arena = Arena(shared=False)
    first, second = arena.new(100), arena.new(100)
    first.release()
    second.release()
    assert arena.take() is second


def test_slots_that_have_become_too_small_are_let_go():
    arena = Arena(shared=False)
    small = arena.new(100)
    arena.wanted = 1000
    small.release()
    assert arena.take() is None
    assert arena.retired() == [small.number]
    assert not arena.slots


def test_a_lease_may_outlive_its_arena():
    arena = Arena(shared=True)
    memory = Lease(arena.new(4096)).memory()
    arena.close()
    memory[:] = 9
    assert memory.sum() == 9 * len(memory)
