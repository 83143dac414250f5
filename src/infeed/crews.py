"""`Workers`: who does the work, as a user says it; may be shared by several loaders."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal, get_args

from infeed.errors import PipelineError
from infeed.workers import Crew, InlineCrew, ThreadCrew

Mode = Literal["auto", "inline", "threads", "processes"]
START_METHODS = ("fork", "forkserver", "spawn")


class Workers:
    """A set of workers that several loaders can share, for instance training and validation.

    The workers are started by the first loader that needs them, and ended by `close()`, or at the end of a
    `with` block.

    >>> import numpy as np, infeed
    >>> with Workers(2, mode="threads") as workers:
    ...     train = infeed.Loader(infeed.arrays(np.arange(8)).batch(4), workers=workers)
    ...     test = infeed.Loader(infeed.arrays(np.arange(4)).batch(4), workers=workers)
    ...     sum(batch.sum() for batch in train) + sum(batch.sum() for batch in test)
    np.int64(34)
    """

    def __init__(
        self,
        count: int,
        mode: Mode = "processes",
        *,
        start_method: str | None = None,
        worker_setup: Callable[[int], Any] | None = None,
    ):
        check_count(count)
        check_mode(mode)
        if mode == "auto":
            raise PipelineError("shared workers need a mode: 'threads' or 'processes'")
        check_start(start_method, worker_setup)
        self.count = 0 if mode == "inline" else count
        self.mode: Mode = "inline" if self.count == 0 else mode
        self._start_method = start_method
        self._setup = worker_setup
        self._crew: Crew | None = None
        self._making = threading.Lock()
        self._owner = os.getpid()
        self._closed = False

    def crew(self) -> Crew:
        """The workers themselves, started at the first call."""
        with self._making:
            if self._closed:
                raise PipelineError("these workers are closed; make new ones")
            if self._crew is None:
                self._crew = self.make()
            return self._crew

    def make(self) -> Crew:
        """New workers as described."""
        if self.mode == "inline":
            return InlineCrew()
        if self.mode == "threads":
            return ThreadCrew(self.count, self._setup)
        from infeed.workers.processes import ProcessCrew

        return ProcessCrew(self.count, self._start_method, self._setup)  # type: ignore[arg-type]

    @property
    def described(self) -> str:
        """In words: `2 threads`.

        >>> Workers(2, mode="threads").described
        '2 threads'
        """
        return "inline" if self.mode == "inline" else f"{self.count} {self.mode}"

    @property
    def started(self) -> bool:
        """Whether there are living workers."""
        return self._crew is not None

    def close(self) -> None:
        """End the workers."""
        self._closed = True
        crew, self._crew = self._crew, None
        if crew is not None and self._owner == os.getpid():  # a fork of this process has no say
            crew.close()

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_crew", None) is not None:
            self.close()

    def __repr__(self) -> str:
        return f"Workers({self.count}, mode={self.mode!r})"


def check_count(count: Any) -> None:
    """`PipelineError` unless `count` is a number of workers.

    >>> check_count(4)
    """
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise PipelineError(f"workers={count!r}: give a number of workers, 0 for none, or 'auto'")


def check_mode(mode: Any) -> None:
    """`PipelineError` unless `mode` is known.

    >>> check_mode("threads")
    """
    if mode not in get_args(Mode):
        raise PipelineError(f"mode={mode!r} is unknown; use one of {', '.join(get_args(Mode))}")


def check_start(start_method: Any, setup: Any) -> None:
    """`PipelineError` unless workers can be started this way.

    >>> check_start("spawn", None)
    """
    if start_method is not None and start_method not in START_METHODS:
        raise PipelineError(f"start_method={start_method!r} is unknown; use one of {', '.join(START_METHODS)}")
    if setup is not None and not callable(setup):
        raise PipelineError(f"worker_setup takes a function of the worker's number, not {setup!r}")
