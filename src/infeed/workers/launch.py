"""Starts the helper process: a fresh interpreter, or, when asked for, a fork of this one."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import warnings
from typing import Any, Literal

from infeed.errors import PipelineError
from infeed.workers.channel import Channel, Gone
from infeed.workers.helper import helper_main

StartMethod = Literal["forkserver", "fork", "spawn"]
START_METHODS = ("forkserver", "fork", "spawn")
_ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


class HelperProcess:
    """The helper as the loop sees it: a control socket and a process to wait for."""

    def __init__(self, control: Channel, pid: int, process: subprocess.Popen[bytes] | None = None):
        self.control = control
        self.pid = pid
        self._process = process

    def end(self) -> None:
        """Tell the helper to end the workers and itself, and wait for it."""
        with contextlib.suppress(Gone, OSError):
            self.control.send(("stop",))
        self.control.close()
        if self._process is not None:
            try:
                self._process.wait(timeout=2)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            return
        try:
            os.waitpid(self.pid, 0)
        except ChildProcessError:
            pass  # someone else in this program waits for all children


def start_helper(method: StartMethod, recipes: dict[int, Any], setup: Any) -> HelperProcess:
    """Start a helper. Only a forked one has the recipes already; others must be sent them."""
    mine, theirs = Channel.pair()
    if method == "fork":
        return _forked(mine, theirs, recipes, setup)
    code = (
        f"import sys; sys.path[:] = {sys.path!r}; from infeed.workers.helper import main; "
        f"main({theirs.fileno()}, {os.getcwd()!r}, spawn={method == 'spawn'})"
    )
    environment = {**dict.fromkeys(_ONE_THREAD, "1"), **os.environ}
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env=environment,
            process_group=0,
        )
    except OSError as error:
        raise PipelineError(f"the helper process could not be started: {error}") from error
    theirs.close()
    return HelperProcess(mine, process.pid, process)


def _forked(mine: Channel, theirs: Channel, recipes: dict[int, Any], setup: Any) -> HelperProcess:
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # asked for: the caller knows about threads
        pid = os.fork()
    if pid == 0:
        mine.close()
        os.setpgid(0, 0)
        helper_main(theirs, spawn=False, recipes=dict(recipes), setup=setup)
    theirs.close()
    return HelperProcess(mine, pid)
