"""What travels to worker processes, and how exceptions travel back."""

import os
import threading

import numpy as np
import pytest
import torch

import infeed
from infeed.slots import share
from infeed.workers.channel import Channel, Gone
from infeed.workers.shipping import LARGE, error_from_bytes, error_to_bytes, pack, unpack


def sent(thing):
    shipment = pack(thing)
    sizes, fds = shipment.message()
    copies = [os.dup(fd) for fd in fds]
    found = unpack(sizes, copies)
    shipment.close()
    return found, sizes


def test_large_arrays_travel_beside_the_pickle_and_only_once():
    array = np.arange(LARGE)
    (first, second, small), (length, nbytes, _) = sent([array, array, np.arange(3)])
    assert (first == array).all()
    assert first is second
    assert small.tolist() == [0, 1, 2]
    assert length < 5000
    assert nbytes < 2 * array.nbytes


def test_a_worker_that_writes_into_its_array_changes_only_its_own_view():
    shipment = pack(np.zeros(LARGE))
    sizes, fds = shipment.message()
    one, other = (unpack(sizes, [os.dup(fd) for fd in fds]) for _ in range(2))
    one[:] = 1
    assert (other == 0).all()
    shipment.close()


def test_strided_arrays_and_tensors_travel_too():
    array, tensor = np.arange(4 * LARGE).reshape(4, -1)[:, ::2], torch.arange(LARGE)
    (found, other), _ = sent((array, tensor))
    assert (found == array).all()
    assert torch.equal(other, tensor)


def test_a_memory_map_travels_as_the_name_of_its_file(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.arange(LARGE))
    mapped = np.load(path, mmap_mode="r")
    (whole, part), (_, nbytes, _) = sent((mapped, mapped[100:]))
    assert isinstance(whole, np.memmap)
    assert nbytes == 0
    assert part[0] == 100


def test_a_shared_array_travels_as_a_descriptor():
    array = share(np.arange(LARGE))
    (found, tail), (_, nbytes, blocks) = sent((array, array[5:]))
    assert nbytes == 0
    assert len(blocks) == 1
    assert (found == array).all()
    assert tail[0] == 5


def test_what_cannot_travel_is_named_with_what_to_do():
    with pytest.raises(infeed.PipelineError, match=r"lock.*worker_setup"):
        pack({"lock": threading.Lock()})


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a", 1),
        KeyError("k"),
        FileNotFoundError(2, "gone", "x.txt"),
        UnicodeDecodeError("utf-8", b"a", 0, 1, "odd"),
    ],
)
def test_exceptions_keep_type_arguments_and_words(error):
    error.add_note("first")
    found = error_from_bytes(error_to_bytes(error, "the trace"))
    assert type(found) is type(error)
    assert str(found) == str(error)
    assert found.__notes__ == ["first", "In the worker:\nthe trace"]


def test_a_channel_carries_messages_and_descriptors():
    left, right = Channel.pair()
    read, write = os.pipe()
    left.send(("hello", 1), (write,))
    message, (fd,) = right.receive()
    os.write(fd, b"x")
    assert (message, os.read(read, 1)) == (("hello", 1), b"x")
    for number in (read, write, fd):
        os.close(number)
    assert right.receive(block=False) is None
    left.close()
    with pytest.raises(Gone):
        right.receive()
    with pytest.raises(Gone):
        right.send("anyone?")
    right.close()
