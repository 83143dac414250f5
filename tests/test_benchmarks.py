"""The comparison with other loaders: what it computes from its measurements, and that all of it runs."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from benchmarks import data, limits, machine, report, run, turns
from benchmarks.memory import Footprint
from benchmarks.peers import LoopFeed
from benchmarks.rounds import Contestant, Standing, compete
from benchmarks.verdicts import Result, Spread
from benchmarks.works import AUTO, OURS, TORCH, TWO_THREADS, WORKS

ROOT = Path(__file__).parents[1]
ROWS = WORKS[0]
FIRST = next(work for work in WORKS if work.name == "first")


def rows_result(**changes):
    values = {
        OURS: ("infeed", [450.0, 500.0, 400.0]),
        AUTO: ("infeed", [600.0, 660.0, 540.0]),
        TORCH: ("torch", [10.0, 10.0, 10.0]),
        "BatchUp, inline": ("BatchUp", [400.0, 440.0, 360.0]),
        TWO_THREADS: ("limit", [1200.0, 1100.0, 900.0]),
    }
    return Result(
        ROWS, [Standing(name, family, changes.get(name, found)) for name, (family, found) in values.items()]
    )


def test_a_ratio_is_taken_within_each_round():
    torch, best, limit = rows_result().verdicts
    assert (torch.other, torch.ratio.median) == (TORCH, 45.0)
    assert best.other == "BatchUp, inline"
    assert best.ratio == Spread(1.5, 1.5, 1.5)  # every round was slower or faster for both
    assert limit.ratio.median == 0.6


def test_wanted_is_met_from_the_wanted_ratio_on():
    assert [verdict.met for verdict in rows_result().verdicts] == [True, True, True]
    slower = rows_result(**{OURS: [440.0, 440.0, 440.0]})
    assert [verdict.met for verdict in slower.verdicts] == [False, True, True]


def test_the_best_other_is_neither_ours_nor_a_limit():
    best = rows_result().best_other
    assert best is not None
    assert best.name == "BatchUp, inline"


def test_less_time_is_better_and_gives_the_larger_ratio():
    standings = [Standing(OURS, "infeed", [0.01]), Standing(TORCH, "torch", [0.09])]
    (verdict,) = Result(FIRST, standings).verdicts
    assert verdict.ratio.median == pytest.approx(9)
    assert verdict.met


def test_a_contestant_without_values_is_compared_with_nothing():
    failed = [Standing(OURS, "infeed", [], error="it broke"), Standing(TORCH, "torch", [1.0])]
    result = Result(ROWS, failed)
    assert result.verdicts == []
    assert [one.name for one in result.failed] == [OURS]


def test_memory_that_grows_is_not_met():
    flat = Footprint("memory-steps", OURS, before=100_000_000, epochs=[150_000_000] * 20, slots=10_000_000)
    growing = Footprint(
        "memory-steps", OURS, 100_000_000, [100_000_000 + 2_000_000 * epoch for epoch in range(20)], 10_000_000
    )
    large = Footprint("memory-steps", OURS, 100_000_000, [180_000_000] * 20, 10_000_000)
    assert flat.met
    assert growing.peak < growing.allowed
    assert not growing.met
    assert not large.met


def test_the_docs_page_has_a_place_for_the_tables():
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    changed = report.between_markers(page, "new tables")
    assert "new tables" in changed
    assert report.between_markers(changed, "newer tables").count("tables\n") == 1
    with pytest.raises(ValueError, match="table:begin"):
        report.between_markers("a page without markers", "new tables")


def outcome_of(*results, memory=()):
    return report.Outcome(machine.Machine.here(2), 3, False, list(results), list(memory))


@pytest.fixture(scope="module")
def fonts(tmp_path_factory):
    """matplotlib keeps the font files it has used open: let that be done before the test."""
    report.picture(outcome_of(rows_result()), tmp_path_factory.mktemp("fonts") / "any.png")


@pytest.mark.usefixtures("fonts")
def test_an_outcome_can_be_shown_in_every_form(tmp_path):
    footprint = Footprint("memory-steps", OURS, 100_000_000, [150_000_000] * 4, 10_000_000)
    failed = Standing("plain loop", "loop", [], error="it broke [here]")
    result = rows_result()
    result.standings.append(failed)
    outcome = outcome_of(result, memory=[footprint])
    page, console = tmp_path / "page.md", Console(file=io.StringIO(), width=200)
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    report.write_docs(outcome, page)
    for shown in (*report.tables(outcome), *report.remarks(outcome)):
        console.print(shown)
    report.picture(outcome, tmp_path / "page.png")
    assert "| 45.0 (42.5 to 47.5) | 45 | met |" in page.read_text()
    assert "old" not in page.read_text()
    assert "it broke [here]" in console.file.getvalue()
    assert json.loads(json.dumps(outcome.as_dict()))["works"][0]["verdicts"][0]["met"] is True
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")


def test_the_docs_are_written_only_by_a_whole_run(capsys):
    with pytest.raises(SystemExit):
        run.arguments(["--write-docs", "--quick"])
    assert "whole run" in capsys.readouterr().err


def test_every_work_is_explained_in_the_docs():
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    assert [work.name for work in WORKS if f"| `{work.name}` |" not in page] == []


def test_graphs_are_concatenated_as_our_collate_does_it():
    import infeed
    from infeed.collate import Heap

    graphs = [data.Graphs(4)[index] for index in range(4)]
    by_hand = data.concat_graphs(graphs)
    ours = infeed.Concat(shift={"edge_index": "x"}, axis={"edge_index": 1})(graphs, Heap())
    assert by_hand.keys() == ours.keys()
    for name, array in by_hand.items():
        np.testing.assert_array_equal(array, ours[name])
        assert array.dtype == ours[name].dtype


def test_a_loader_that_leaves_a_sample_out_is_found():
    items = data.Items(data.numbered(100, 4))
    turns.Loading(LoopFeed(items, 16, data.gather), 100, turns.first_batch).warm_up()
    with pytest.raises(RuntimeError, match="100 samples instead of each of the 101 once"):
        turns.Loading(LoopFeed(items, 16, data.gather), 101, turns.first_batch).warm_up()


def test_the_clock_sees_whole_epochs():
    class Feed:
        steps, note, begun, given = 10, "", 0, 0

        def epoch(self):
            self.begun += 1
            for step in range(self.steps):
                self.given += 1
                yield step

    feed = Feed()
    assert turns.rate(samples=160, seconds=0.0)(feed) > 0
    assert (feed.begun, feed.given) == (2, 16)  # from batch 5 of one epoch to batch 5 of the next


@pytest.mark.parametrize("threads", [1, 2])
def test_the_limit_gathers_every_step(threads):
    x = data.numbered(50, 3)
    take = limits.TakeRate(x, 16, threads, seconds=0.0)
    take.warm_up()
    assert take.turn() > 0
    assert take.buffers[0][0].any()


class Steady:
    note = "as always"

    def warm_up(self):
        pass

    def turn(self):
        return 2.0

    def close(self):
        pass


class Broken(Steady):
    def turn(self):
        raise RuntimeError("it broke [here]")


@pytest.mark.skipif(sys.platform != "linux", reason="contestants are forked")
def test_a_contestant_that_fails_does_not_stop_the_others():
    told = []
    standings = compete(
        [Contestant("a", "loop", Steady), Contestant("b", "loop", Broken), Contestant("c", "loop", Steady)],
        rounds=3,
        tell=told.append,
        quiet=0.0,
    )
    assert [standing.values for standing in standings] == [[2.0] * 3, [], [2.0] * 3]
    assert "it broke [here]" in standings[1].error
    assert standings[0].note == "as always"
    assert [text.split(": ")[1] for text in told if text.startswith("round 2")] == ["c", "a"]


@pytest.mark.soak
@pytest.mark.skipif(sys.platform != "linux", reason="contestants are forked")
def test_the_whole_comparison_runs_at_a_small_size(tmp_path):
    files = ["--json", tmp_path / "all.json", "--png", tmp_path / "all.png"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.run", "--quick", "--modes", *files],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "all.json").read_text())
    assert [work["name"] for work in found["works"]] == [work.name for work in WORKS]
    assert [one for work in found["works"] for one in work["contestants"] if one["error"]] == []
    assert all(one["epochs"] for one in found["memory"])
    assert (tmp_path / "all.png").stat().st_size > 10_000
