"""Randomness as a function of (seed, epoch, position, stage), for generators we hand out and global ones.

A map that takes `rng` gets a generator keyed by the sample's position, so the draw does not depend on
which worker makes the sample. Functions that draw from the global generators of `random`, numpy or
torch are noticed, because their state has moved, and from then on these are re-seeded per sample.
"""

from __future__ import annotations

import ctypes
import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

_WORD = (1 << 64) - 1


def mix(*numbers: int) -> int:
    """One well-stirred 64-bit number out of several (splitmix64 over each in turn).

    >>> mix(1, 2) != mix(2, 1)
    True
    """
    state = 0
    for number in numbers:
        state = (state + (number & _WORD) + 0x9E3779B97F4A7C15) & _WORD
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _WORD
        state ^= state >> 31
    return state


class KeyedRng:
    """One Philox generator, set to the stream of a given sample and stage in about a microsecond.

    >>> keyed = KeyedRng(seed=7)
    >>> a = keyed.at(epoch=0, position=5, stage=1).random()
    >>> _ = keyed.at(epoch=0, position=6, stage=1).random()
    >>> a == keyed.at(epoch=0, position=5, stage=1).random()
    True
    """

    def __init__(self, seed: int):
        self._philox = np.random.Philox(key=0)
        self._state: Any = dict(self._philox.state)
        self._key = self._state["state"]["key"]
        self._counter = self._state["state"]["counter"]
        self._key[0] = mix(seed)
        self._state["buffer_pos"] = 4
        self._state["has_uint32"] = 0
        self.generator = np.random.Generator(self._philox)

    def at(self, epoch: int, position: int, stage: int) -> np.random.Generator:
        """The generator, at the start of the stream that belongs to these three numbers."""
        counter = self._counter
        counter[0] = counter[1] = 0
        counter[2] = position
        counter[3] = epoch
        self._key[1] = stage
        self._philox.state = self._state
        return self.generator


class _Generator:
    """One global generator: a cheap fingerprint of its state, a way to seed, save and restore it."""

    def __init__(
        self,
        name: str,
        fingerprint: Callable[[], Any],
        seed: Callable[[int], Any],
        save: Callable[[], Any],
        restore: Callable[[Any], Any],
    ):
        self.name = name
        self.fingerprint = fingerprint
        self.seed = seed
        self.save = save
        self.restore = restore


def _python_generator() -> _Generator:
    """`random`. Its place in the state block is read straight from the object where that is safe."""
    instance = random._inst
    fingerprint: Callable[[], Any] = random.getstate
    probe = random.Random(1)
    place = ctypes.c_int.from_address(id(probe) + object.__basicsize__)
    before = place.value
    probe.random()
    if (before, place.value) == (624, 2):  # CPython's layout: the index is the first field
        block = (ctypes.c_uint32 * 3).from_address(id(instance) + object.__basicsize__)

        def fingerprint() -> Any:
            return block[0], block[1], block[2]

    return _Generator("random", fingerprint, random.seed, random.getstate, random.setstate)


def _numpy_generator() -> _Generator:
    """numpy's global `RandomState`: a Mersenne twister, whose state block has a public address."""
    bits = np.random.mtrand.get_bit_generator()
    fingerprint: Callable[[], Any]
    if isinstance(bits, np.random.MT19937):
        block = (ctypes.c_uint32 * 625).from_address(bits.ctypes.state_address)

        def fingerprint() -> Any:
            return block[624], block[0], block[1]
    else:

        def fingerprint() -> Any:
            return repr(bits.state)

    def seed(value: int) -> None:
        np.random.seed(value & 0xFFFFFFFF)

    return _Generator("numpy.random", fingerprint, seed, np.random.get_state, np.random.set_state)


def _torch_generator() -> _Generator:
    torch = sys.modules["torch"]

    def fingerprint() -> Any:
        return torch.get_rng_state().numpy().tobytes()

    def seed(value: int) -> None:
        torch.default_generator.manual_seed(value & 0x7FFFFFFFFFFFFFFF)

    return _Generator("torch", fingerprint, seed, torch.get_rng_state, torch.set_rng_state)


class GlobalGenerators:
    """Watches the global generators and, once a stage was seen to use one, seeds it per sample.

    >>> watch = GlobalGenerators(seed=0)
    >>> before = watch.look()
    >>> _ = random.random()
    >>> watch.moved(before)
    ('random',)
    """

    def __init__(self, seed: int):
        self._seed = seed
        self._all = {"random": _python_generator(), "numpy.random": _numpy_generator()}
        self._used: dict[int, list[_Generator]] = {}

    def look(self) -> tuple[Any, ...]:
        """A fingerprint of each generator that exists by now (torch counts once it is imported)."""
        if "torch" not in self._all and hasattr(sys.modules.get("torch"), "default_generator"):
            self._all["torch"] = _torch_generator()
        return tuple(generator.fingerprint() for generator in self._all.values())

    def moved(self, before: tuple[Any, ...]) -> tuple[str, ...]:
        """The names of the generators that were used since `before`."""
        now = self.look()
        if now == before:
            return ()
        old = dict(zip(self._all, before, strict=False))  # a torch imported since may have been used
        return tuple(name for name, mark in zip(self._all, now, strict=True) if old.get(name) != mark)

    def note_use(self, stage: int, names: tuple[str, ...]) -> bool:
        """Remember that `stage` uses these; True if one of them was not known."""
        known = self._used.setdefault(stage, [])
        new = [self._all[name] for name in names if self._all[name] not in known]
        known.extend(new)
        return bool(new)

    def used_by(self, stage: int) -> bool:
        """Whether the stage must be run one sample at a time, seeded before each."""
        return bool(self._used.get(stage))

    def seed(self, epoch: int, position: int, stage: int) -> None:
        """Seed what `stage` uses for one sample."""
        value = mix(self._seed, epoch, position, stage)
        for generator in self._used.get(stage, ()):
            generator.seed(value)

    def save(self) -> list[tuple[_Generator, Any]]:
        """The full state of all generators, for `restore`: inline work must not disturb the caller's."""
        self.look()
        return [(generator, generator.save()) for generator in self._all.values()]

    @staticmethod
    def restore(saved: list[tuple[_Generator, Any]]) -> None:
        """Put back what `save` returned."""
        for generator, state in saved:
            generator.restore(state)
