"""However a program ends, it ends soon, with one traceback at most, and leaves nothing behind."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from typing import Any

import psutil
import pytest

import infeed
from tests.engine.scripts import environment, run, start

LOOP = """
import os, sys, time
import numpy as np
import infeed

def work(sample):
    time.sleep({pause})
    return sample

pipeline = infeed.arrays(x=np.zeros((10000, 4))).map(work).batch(4)
loader = infeed.Loader(pipeline, workers=2, mode={mode!r}, start_method={method!r}, epochs=None)
iterator = iter(loader)
next(iterator)
crew = loader._stream.crew
print("ready", *crew.pids(), getattr(crew, "helper_pid", 0))
{then}
"""
FOREVER = "for batch in iterator: pass"


def begin(
    mode: str = "processes", method: str | None = None, pause: float | str = 0.002, then: str = FOREVER
) -> Any:
    """A script in the middle of its loop, and the processes that work for it."""
    program = start(LOOP.format(mode=mode, method=method, pause=pause, then=then))
    assert select.select([program.stdout], [], [], 60)[0]
    words = program.stdout.readline().split()
    assert words[:1] == ["ready"], program.communicate()
    return program, [int(word) for word in words[1:] if word != "0"]


def are_gone(pids: list[int]) -> bool:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        left = [pid for pid in pids if psutil.pid_exists(pid) and _alive(pid)]
        if not left:
            return True
        time.sleep(0.02)
    return False


def _alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def finish(program: subprocess.Popen[str]) -> tuple[str, str]:
    try:
        out, errors = program.communicate(timeout=30)
    finally:
        program.kill()
    return out, errors


@pytest.mark.parametrize(
    ("mode", "method"),
    [("inline", None), ("threads", None), ("processes", None), ("processes", "fork"), ("processes", "spawn")],
)
def test_ctrl_c_ends_everything_with_one_traceback(mode, method):
    program, pids = begin(mode, method)
    os.killpg(program.pid, signal.SIGINT)
    out, errors = finish(program)
    assert out == ""
    assert errors.count("Traceback") == 1
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert program.returncode == -signal.SIGINT
    assert are_gone(pids)


def test_ctrl_c_in_a_with_block_while_a_worker_is_stuck_ends_everything():
    program, pids = begin(pause=0.002, then="""
with loader:
    for batch in iterator:
        time.sleep(1000)
""")  # fmt: skip
    os.killpg(program.pid, signal.SIGINT)
    _, errors = finish(program)
    assert errors.count("Traceback") == 1
    assert are_gone(pids)


def test_ctrl_c_may_be_caught_and_the_loop_goes_on():
    program, pids = begin(pause=0.05, then="""
caught = 0
while caught < 3:
    try:
        print("waiting")
        for batch in iterator:
            pass
    except KeyboardInterrupt:
        caught += 1
steps = [next(iterator) for _ in range(3)]
loader.close()
print("done", caught)
""")  # fmt: skip
    for _ in range(3):
        assert program.stdout.readline() == "waiting\n"
        time.sleep(0.3)
        os.killpg(program.pid, signal.SIGINT)
    out, errors = finish(program)
    assert (out, errors) == ("done 3\n", "")
    assert are_gone(pids)


@pytest.mark.parametrize("method", [None, "fork", "spawn"])
def test_killing_the_loop_leaves_no_process(method):
    program, pids = begin(method=method)
    assert len(pids) == 3
    program.kill()
    finish(program)
    assert are_gone(pids)


@pytest.mark.parametrize("method", [None, "fork", "spawn"])
def test_killing_the_loop_leaves_no_process_that_is_stuck_in_the_users_code(method):
    program, pids = begin(method=method, pause="1000 if sample['x'][0] else 0", then=f"""
with loader:
    pass
pipeline = infeed.arrays(x=np.ones((100, 4))).map(work).batch(4)
loader = infeed.Loader(pipeline, workers=2, mode="processes", start_method={method!r}, timeout=1)
try:
    next(iter(loader))
except infeed.Stalled:
    crew = loader._stream.crew
    print("stuck", *crew.pids(), crew.helper_pid)
time.sleep(1000)
""")  # fmt: skip
    assert are_gone(pids)
    words = program.stdout.readline().split()
    assert words[0] == "stuck"
    assert len(words) == 4
    program.kill()
    finish(program)
    assert are_gone([int(word) for word in words[1:]])


def test_a_terminated_loop_leaves_no_process():
    program, pids = begin()
    program.terminate()
    finish(program)
    assert are_gone(pids)


def test_an_exception_in_the_loop_ends_everything_with_one_traceback():
    program, pids = begin(then="raise ZeroDivisionError('in the training step')")
    _, errors = finish(program)
    assert errors.count("Traceback") == 1
    assert program.returncode == 1
    assert are_gone(pids)


@pytest.mark.parametrize(
    "ending",
    ["sys.exit(3)", "os._exit(3)", "import threading; threading.Thread(target=lambda: None).start(); sys.exit(3)"],
)
def test_every_way_to_leave_leaves_no_process(ending):
    program, pids = begin(then=ending)
    _, errors = finish(program)
    assert (program.returncode, errors) == (3, "")
    assert are_gone(pids)


def test_a_script_without_a_main_guard_works_with_lambdas_and_classes_of_its_own():
    done = run("""
        import dataclasses
        import infeed

        @dataclasses.dataclass
        class Sample:
            x: int

        class Dataset:
            def __len__(self):
                return 10
            def __getitem__(self, index):
                return Sample(index)

        FACTOR = 3
        for method in (None, "fork", "forkserver", "spawn"):
            pipeline = infeed.source(Dataset()).map(lambda sample: Sample(sample.x * FACTOR)).batch(5)
            with infeed.Loader(pipeline, workers=2, mode="processes", start_method=method) as loader:
                batches = list(loader)
            assert all(type(batch) is Sample for batch in batches), batches
            print([batch.x.tolist() for batch in batches])
    """)
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["[[0, 3, 6, 9, 12], [15, 18, 21, 24, 27]]"] * 4


def test_exceptions_of_a_scripts_own_class_can_be_caught_by_it():
    done = run("""
        import infeed
        class Mine(Exception):
            pass
        def failing(sample):
            raise Mine("of the script")
        with infeed.Loader(infeed.source([1, 2]).map(failing).batch(2), workers=1, mode="processes") as loader:
            try:
                list(loader)
            except Mine as error:
                print("caught", error)
    """)
    assert (done.stdout, done.stderr) == ("caught of the script\n", "")


def test_a_script_read_from_standard_input_works():
    done = subprocess.run(
        [sys.executable, "-"],
        input="import infeed\npipeline = infeed.source([1, 2]).map(lambda x: x + 1).batch(2)\n"
        "loader = infeed.Loader(pipeline, workers=1,"
        " mode='processes')\nprint(*loader)\n",
        capture_output=True, text=True, timeout=60, env=environment(),
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("[2 3]\n", "")


def test_what_was_printed_before_a_fork_is_seen_once():
    done = run("""
        import infeed
        def loud(sample):
            print("sample", sample, flush=True)
            return sample
        print("begin", end=" ")
        pipeline = infeed.source([7]).map(loud).batch(1)
        with infeed.Loader(pipeline, workers=1, mode="processes", start_method="fork") as loader:
            list(loader)
        print("end")
    """)
    assert done.stdout.count("begin") == 1
    assert "sample 7" in done.stdout


@pytest.mark.parametrize("mode", ["threads", "processes"])
def test_user_code_may_fork_and_run_programs(mode):
    done = run(f"""
        import os, subprocess, multiprocessing, infeed
        def forking(sample):
            pid = os.fork()
            if pid == 0:
                os._exit(5)
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        def running(sample):
            return int(subprocess.run(["sh", "-c", "exit 4"]).returncode) + sample
        pipeline = infeed.source(list(range(8))).map(forking).map(running).batch(4)
        with infeed.Loader(pipeline, workers=2, mode={mode!r}) as loader:
            print([batch.tolist() for batch in loader])
            pid = os.fork()
            if pid == 0:
                os._exit(0)
            os.waitpid(pid, 0)
            print([batch.tolist() for batch in loader])
    """, "-W", "ignore::DeprecationWarning")  # fmt: skip
    assert done.stderr == ""
    assert done.stdout == "[[9, 9, 9, 9], [9, 9, 9, 9]]\n" * 2


def test_a_child_of_the_loop_that_outlives_it_keeps_no_worker_alive():
    done = run("""
        import os, sys, time, numpy as np, infeed
        loader = infeed.Loader(infeed.arrays(x=np.zeros((64, 4))).batch(4), workers=2, mode="processes")
        next(iter(loader))
        crew = loader._stream.crew
        print(*crew.pids(), crew.helper_pid, flush=True)
        pid = os.fork()
        if pid == 0:
            os.close(1); os.close(2)
            time.sleep(2)
            os._exit(0)
        os._exit(0)
    """, "-W", "ignore::DeprecationWarning")  # fmt: skip
    assert done.stderr == ""
    assert are_gone([int(word) for word in done.stdout.split()])


def test_a_forked_child_that_leaves_the_ordinary_way_ends_no_worker_of_its_parent():
    done = run("""
        import os, sys, numpy as np, infeed
        loader = infeed.Loader(infeed.arrays(x=np.arange(64)).batch(4), workers=2, mode="processes")
        iterator = iter(loader)
        next(iterator)
        pid = os.fork()
        if pid == 0:
            sys.exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        print(sum(len(batch["x"]) for batch in iterator), loader.stats().worker_deaths)
        loader.close()
    """, "-W", "ignore::DeprecationWarning", timeout=30)  # fmt: skip
    assert (done.stdout, done.stderr) == ("60 0\n", "")


class Unloadable:
    """Cannot be unpickled anywhere, and says so at great length."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return index

    def __setstate__(self, state):
        raise ValueError("x" * 500_000)

    def __getstate__(self):
        return {"a": 1}


def test_a_pipeline_that_fails_to_load_with_a_very_long_message_is_still_told_of():
    with (
        infeed.Loader(infeed.source(Unloadable()).batch(2), workers=1, mode="processes", timeout=20) as loader,
        pytest.raises(RuntimeError, match="ValueError: xxx"),
    ):
        next(iter(loader))
