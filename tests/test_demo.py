"""The demo: what it measures, what it says, and that it would say so if a stream were wrong."""

from __future__ import annotations

import io
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import infeed
from infeed import cli
from infeed.demo import killing, measuring, running, works
from infeed.demo.killing import Killing
from infeed.demo.measuring import Run
from infeed.demo.report import Comparison, Report
from infeed.demo.screen import Screen
from infeed.demo.words import about, about_killing, about_streams, sentences

MACHINE: dict[str, Any] = {"infeed": "0.1.0", "cores": 2, "python": "3.11", "numpy": "2"}


def nothing() -> None:
    """Where the screen would be drawn again."""


def finished(mode: measuring.Mode, rate: float, waited: float, digest: str = "same") -> Run:
    """A run of one second."""
    workers = 0 if mode == "inline" else 2
    return Run(
        mode,
        workers,
        samples=round(rate),
        batches=1,
        trained=1 - waited,
        waited=waited,
        digest=digest,
        status="done",
    )


def compared(*rates: float, work: works.Work | None = None) -> Comparison:
    """The inline loop, threads and processes with these rates."""
    modes: tuple[measuring.Mode, ...] = ("inline", "threads", "processes")
    return Comparison(work or works.toy(), [finished(m, rate, 0.25) for m, rate in zip(modes, rates, strict=False)])


class Terminal(io.StringIO):
    """A file that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


# -- all of it


def test_the_quick_demo_measures_everything_and_writes_the_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = tmp_path / "figures.json"
    assert cli.main(["demo", "--quick", "--workers", "2", "--json", str(figures)]) == 0
    printed = capsys.readouterr().out
    found = json.loads(figures.read_text())
    assert [work["work"] for work in found["works"]] == ["images", "python", "toy"]
    for work in found["works"]:
        assert [run["mode"] for run in work["runs"]] == ["inline", "threads", "processes"]
        assert work["same_stream"]
        assert work["title"] in printed
        for run in work["runs"]:
            assert run["samples_per_second"] > 0
            assert 0 <= run["waiting_share"] <= 1
    assert found["killing"]["deaths"] == 1
    assert found["killing"]["identical"] == found["killing"]["batches"]
    assert "What is gained" in printed
    assert "\x1b" not in printed, "no colours where there is no terminal"
    assert max(map(len, printed.splitlines())) <= 80


def test_without_worker_processes_the_demo_still_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delattr(os, "memfd_create")
    report = running.run(running.Settings(workers=2, seconds=0.02, warm_up=0.0, images=64, kill_samples=32))
    assert [run.name for run in report.comparisons[0].runs] == ["inline", "2 threads"]
    assert report.killing is None
    assert report.sound
    assert "worker processes need Linux" in capsys.readouterr().out


# -- the works


def test_images_take_a_quarter_of_the_free_memory_at_most() -> None:
    assert works.image_count(10_000, free=1 << 40) == 10_000
    assert works.image_count(10_000, free=1 << 28) * 4 * 128 * 128 <= 1 << 26
    assert works.image_count(10_000, free=0) == 16


def test_steps_shrink_with_the_images() -> None:
    assert works.images(16, shared=False).pipeline.plan.samples_per_step == 16
    assert works.images(960, shared=False).pipeline.plan.samples_per_step == 80


def test_the_busy_loop_is_work_for_the_processor_and_not_sleep() -> None:
    dataset = works.SlowItems(1, turns=2_000_000)
    spent = time.process_time()
    dataset[0]
    assert time.process_time() > spent
    assert works.spin(1, 10) != works.spin(1, 11), "every turn counts"


def test_twice_the_time_takes_more_turns() -> None:
    assert works.turns_for(0.1) > works.turns_for(0.001) > 0


# -- measuring


@pytest.mark.parametrize("mode", ["inline", "threads", "processes"])
def test_a_run_counts_what_it_received_and_times_all_of_the_loop(mode: measuring.Mode) -> None:
    run = Run(mode, 0 if mode == "inline" else 1)
    measuring.measure(run, works.toy(), seconds=0.05, warm_up=0.0, redraw=nothing)
    assert run.status == "done"
    assert run.samples == 16 * run.batches > 0
    assert run.trained == pytest.approx(0.010 * run.batches)
    assert run.waited > 0, "a training step lasts its ten milliseconds at least"
    assert run.seconds >= 0.05
    assert run.first > 0


def test_drawing_is_part_of_the_training_step() -> None:
    drawn: list[int] = []
    run = Run("inline", 0)
    measuring.measure(run, works.toy(), seconds=0.03, warm_up=0.0, redraw=lambda: drawn.append(run.batches))
    assert len(drawn) > run.batches


def test_bits_tell_apart_what_looks_equal() -> None:
    batch = {"x": np.zeros((2, 3), np.float32)}
    assert measuring.bits(batch) == measuring.bits({"x": np.zeros((2, 3), np.float32)})
    others = [
        {"x": -np.zeros((2, 3), np.float32)},
        {"x": np.zeros((3, 2), np.float32)},
        {"x": np.zeros((2, 3), np.int32)},
        {"y": np.zeros((2, 3), np.float32)},
    ]
    assert all(measuring.bits(batch) != measuring.bits(other) for other in others)


# -- killing


def test_a_killed_worker_does_not_change_the_stream() -> None:
    found = Killing()
    killing.kill(found, works.slow_items(128, seconds=0.0005).pipeline, 2, nothing)
    assert found.sound
    assert (found.batches, found.received, found.identical, found.after) == (8, 8, 8, 4)


def test_a_stream_that_depends_on_the_worker_is_found_out() -> None:
    def made_here(sample: Any) -> Any:
        return sample + os.getpid()

    found = Killing()
    killing.kill(found, infeed.source(np.arange(64)).map(made_here).batch(8), 2, nothing)
    assert found.identical == 0
    assert not found.sound
    assert "bug" in about_killing(found)


def test_a_worker_that_did_not_die_proves_nothing() -> None:
    found = Killing(batches=8, received=8, identical=8, deaths=0, pid=1)
    assert not found.sound
    assert "NOT" in about_killing(found)


# -- words


def test_gains_and_losses_are_told_as_they_are() -> None:
    assert "2 threads gave 1.5 times the samples per second of the inline loop, 2 processes 2.0 times" in about(
        compared(100, 150, 200)
    )
    assert "2 threads gave 0.5 times" in about(compared(100, 50, 90))
    assert "2 threads were as fast as the inline loop, 2 processes 0.9 times" in about(compared(100, 101, 90))


def test_the_interpreter_lock_is_blamed_only_where_it_is_to_blame() -> None:
    python = works.slow_items(seconds=1e-6)
    blamed = "one thread at a time"
    assert blamed in about(compared(100, 120, 200, work=python))
    assert blamed not in about(compared(100, 120, 110, work=python))
    assert blamed not in about(compared(100, 120, 200))


def test_a_mode_with_another_stream_makes_the_report_unsound() -> None:
    odd = Comparison(works.toy(), [finished("inline", 100, 0.1), finished("threads", 100, 0.1, "another")])
    assert not Report(MACHINE, [odd]).sound
    assert "NOT" in about_streams([odd])
    assert Report(MACHINE, [compared(1, 1, 1)]).sound


def test_a_busy_machine_is_mentioned_and_an_idle_one_is_not() -> None:
    assert any("Other programs used 40 %" in text for text in sentences(Report(MACHINE, elsewhere=0.4)))
    assert not any("Other programs" in text for text in sentences(Report(MACHINE, elsewhere=0.02)))


# -- the screen


def screen(file: io.StringIO, width: int = 80) -> Screen:
    """A screen on that file with one comparison, half measured."""
    report = Report(MACHINE, [compared(100, 150, 200)], Killing(batches=8))
    report.comparisons[0].runs[2] = Run("processes", 2)
    return Screen(report, Console(file=file, width=width, highlight=False))


def test_a_terminal_sees_the_table_grow() -> None:
    file = Terminal()
    shown = screen(file)
    with shown.shown():
        assert "to come" in file.getvalue()
        shown.report.comparisons[0].runs[2] = finished("processes", 200, 0.0)
        shown.tick()
    assert "2.0 x" in file.getvalue()


def test_elsewhere_the_table_is_printed_once() -> None:
    file = io.StringIO()
    shown = screen(file)
    with shown.shown():
        shown.tick()
        assert file.getvalue() == ""
    assert file.getvalue().count("samples/s") == 1


def test_a_bar_is_training_then_waiting() -> None:
    file = io.StringIO()
    shown = screen(file)
    with shown.shown():
        pass
    assert "█" * 24 + "░" * 8 in file.getvalue()


def test_a_killed_worker_is_marked_where_it_died() -> None:
    file = io.StringIO()
    shown = screen(file)
    shown.report.killing = Killing(batches=8, received=8, identical=8, deaths=1, pid=1, after=4)
    with shown.shown():
        pass
    assert "█" * 16 + "✖" + "█" * 15 in file.getvalue()
    assert "identical" in file.getvalue()


@pytest.mark.parametrize("width", [60, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    file = io.StringIO()
    shown = screen(file, width)
    shown.report.seconds = 1.0
    shown.opening()
    with shown.shown():
        pass
    shown.closing()
    assert max(len(line.rstrip()) for line in file.getvalue().splitlines()) <= width


def test_a_screen_without_such_characters_gets_plain_ones() -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    report = Report(MACHINE, [compared(100, 150, 200)], Killing(batches=8, received=8, identical=8, after=4))
    shown = Screen(report, Console(file=file, width=80))
    shown.opening()
    with shown.shown():
        pass
    shown.closing()
    file.flush()
    assert b"#" * 24 + b"." * 8 in file.buffer.getvalue()  # type: ignore[attr-defined]
