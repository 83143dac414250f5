"""Messages between our own processes: one packet each, over private sockets, with descriptors beside them.

Both ends are ours and the sockets have no name, so pickle is safe here. A packet stays small (what is large
lies in a slot or travels as a descriptor), so it is sent whole or not at all, and a killed process leaves
no half of one.
"""

from __future__ import annotations

import array
import contextlib
import errno
import pickle
import socket
from typing import Any

LIMIT = 1 << 17
_FDS = 64
_BLOCKING = int(getattr(socket, "MSG_CMSG_CLOEXEC", 0))
_AT_ONCE = _BLOCKING | int(socket.MSG_DONTWAIT)
_ANCILLARY = socket.CMSG_SPACE(_FDS * array.array("i").itemsize)


class Gone(Exception):
    """The other side has closed its end, or died."""


class Channel:
    """One end of a private socket.

    >>> left, right = Channel.pair()
    >>> left.send(("hello", 1))
    >>> right.receive()
    (('hello', 1), [])
    >>> left.close(); right.close()
    """

    __slots__ = ("_buffer", "_view", "socket")

    def __init__(self, sock: socket.socket):
        self.socket = sock
        self._buffer = bytearray(LIMIT)
        self._view = memoryview(self._buffer)

    @staticmethod
    def pair() -> tuple[Channel, Channel]:
        """Two connected ends."""
        left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return Channel(left), Channel(right)

    def fileno(self) -> int:
        """The descriptor, for pollers."""
        return self.socket.fileno()

    def send(self, message: Any, fds: tuple[int, ...] = ()) -> None:
        """Send one message; `Gone` if nobody is there."""
        try:
            data = pickle.dumps(message, 5)
        except (pickle.PicklingError, AttributeError, TypeError):
            import cloudpickle

            data = cloudpickle.dumps(message, 5)  # a class of the user's script, in a layout
        try:
            if fds:
                socket.send_fds(self.socket, [data], list(fds))
            else:
                self.socket.send(data)
        except OSError as error:
            if error.errno in (errno.EPIPE, errno.ECONNRESET, errno.EBADF):
                raise Gone from None
            raise

    def receive(self, *, block: bool = True) -> tuple[Any, list[int]] | None:
        """The next message and its descriptors; None if there is none and `block` is False."""
        try:
            size, ancillary, _, _ = self.socket.recvmsg_into(
                [self._buffer], _ANCILLARY, _BLOCKING if block else _AT_ONCE
            )
        except BlockingIOError:
            return None
        except ConnectionResetError:
            raise Gone from None
        if size == 0:
            raise Gone
        fds = array.array("i")
        for _, _, data in ancillary:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
        return pickle.loads(self._view[:size]), fds.tolist()

    def finish(self) -> None:
        """Say that nothing more will be sent; what the other side has sent can still be read."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close this end."""
        self.socket.close()
