"""Many strings in two arrays: a list of a million paths without a million Python objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, AnyStr, cast, overload

import numpy as np
from numpy.typing import NDArray

from infeed.errors import PipelineError
from infeed.slots import shared_if_large

# Lone surrogates occur in file names that are not valid UTF-8; this keeps them as they are.
_ENCODING = ("utf-8", "surrogatepass")
_CHUNK = 65_536


class Strings(Sequence[AnyStr]):
    """An immutable sequence of `str`, or of `bytes`, held in two numpy arrays.

    Worker processes share the arrays instead of each getting a copy of every string, and no reference
    count is touched when one is read, which is what makes a forked list of strings grow.

    >>> names = Strings(["cat", "dog", "bird"])
    >>> names[1], names[-1], len(names)
    ('dog', 'bird', 3)
    >>> list(names[::2])
    ['cat', 'bird']
    >>> names
    <Strings: 3 str, 10 bytes>
    """

    def __init__(self, strings: Iterable[AnyStr]):
        if isinstance(strings, str | bytes):
            raise PipelineError("Strings takes many strings, and was given a single one: wrap it in a list")
        blob = bytearray()
        lengths: list[NDArray[np.int64]] = [np.zeros(1, np.int64)]
        kind: type | None = None
        rest = iter(strings)
        while chunk := list(islice(rest, _CHUNK)):
            kind = _kind_of(chunk, kind)
            encoded = _encoded(chunk, kind)
            blob += b"".join(encoded)
            lengths.append(np.fromiter(map(len, encoded), np.int64, len(encoded)))
        self.text = kind is not bytes
        self.blob: NDArray[np.uint8] = shared_if_large(np.frombuffer(blob, np.uint8))
        self.offsets: NDArray[np.int64] = shared_if_large(np.cumsum(np.concatenate(lengths)))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> AnyStr: ...
    @overload
    def __getitem__(self, index: slice) -> Strings[AnyStr]: ...
    def __getitem__(self, index: int | slice) -> AnyStr | Strings[AnyStr]:
        if isinstance(index, slice):
            return self._slice(range(*index.indices(len(self))))
        length = len(self)
        if not -length <= index < length:
            raise IndexError(f"there is no string {index}: there are {length}")
        index %= length
        raw = self.blob[self.offsets[index] : self.offsets[index + 1]].tobytes()
        return cast(AnyStr, raw.decode(*_ENCODING) if self.text else raw)

    def __getitems__(self, indices: Sequence[int] | NDArray[np.int64]) -> list[AnyStr]:
        """Many at once, which is several times faster than one by one; indices in `[0, len)`."""
        at = np.asarray(indices, np.int64)
        blob = self.blob.data
        spans = zip(self.offsets[at].tolist(), self.offsets[at + 1].tolist(), strict=True)
        if self.text:
            return cast(list[AnyStr], [str(blob[start:stop], *_ENCODING) for start, stop in spans])
        return cast(list[AnyStr], [bytes(blob[start:stop]) for start, stop in spans])

    def _slice(self, wanted: range) -> Strings[AnyStr]:
        if wanted.step != 1 or not wanted:
            made: Strings[AnyStr] = Strings(self.__getitems__(wanted))
            made.text = self.text
            return made
        # neighbours stay neighbours, so a plain slice needs no decoding
        made = cast("Strings[AnyStr]", object.__new__(Strings))
        offsets = self.offsets[wanted.start : wanted.stop + 1]
        made.text = self.text
        made.blob = self.blob[offsets[0] : offsets[-1]].copy()
        made.offsets = offsets - offsets[0]
        return made

    def __iter__(self) -> Iterator[AnyStr]:
        for start in range(0, len(self), _CHUNK):
            yield from self.__getitems__(range(start, min(start + _CHUNK, len(self))))

    def __contains__(self, value: object) -> bool:
        return any(value == string for string in self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Strings):
            return NotImplemented
        return (
            (self.text == other.text or not len(self))
            and np.array_equal(self.offsets, other.offsets)
            and np.array_equal(self.blob, other.blob)
        )

    __hash__ = None  # type: ignore[assignment]  # equal content would need a pass over all bytes

    def __repr__(self) -> str:
        kind = "str" if self.text else "bytes"
        return f"<Strings: {len(self)} {kind}, {self.blob.nbytes} bytes>"


def _encoded(chunk: list[Any], kind: type) -> list[bytes]:
    return [string.encode(*_ENCODING) for string in chunk] if kind is str else chunk


def _kind_of(chunk: list[Any], before: type | None) -> type:
    kinds = set(map(type, chunk)) | ({before} if before else set())
    if kinds <= {str} or kinds <= {bytes}:
        return kinds.pop()
    names = ", ".join(sorted(kind.__name__ for kind in kinds))
    raise PipelineError(f"Strings holds either str or bytes, and was given: {names}")
