"""The command `infeed`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import infeed
from infeed import cli, demo

COMMAND = [sys.executable, "-W", "error", "-c", "import sys; from infeed.cli import main; sys.exit(main())"]


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"infeed {infeed.__version__}\n"


def test_the_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--help"])
    assert ended.value.code == 0
    assert "demo" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "COMMAND"),
        (["unknown"], "unknown"),
        (["demo", "--workers", "0"], "from 1 up"),
        (["demo", "--workers", "two"], "from 1 up"),
        (["demo", "--json", "no/such/folder/figures.json"], "cannot write there"),
    ],
)
def test_bad_arguments_are_told_before_anything_is_done(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def test_an_error_of_infeed_is_one_line_and_not_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(settings: demo.Settings) -> demo.Report:
        raise infeed.OutOfMemory("there is no room")

    monkeypatch.setattr(demo, "run", fails)
    assert cli.main(["demo"]) == 1
    assert capsys.readouterr().err == "infeed: there is no room\n"


def test_a_stream_that_differs_is_a_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = demo.Report({}, killing=demo.Killing(batches=8, received=8, identical=7, deaths=1))
    monkeypatch.setattr(demo, "run", lambda settings: broken)
    assert cli.main(["demo", "--json", str(tmp_path / "figures.json")]) == 1
    assert '"sound": false' in (tmp_path / "figures.json").read_text()


def test_ctrl_c_ends_the_demo_with_one_line() -> None:
    with subprocess.Popen(
        [*COMMAND, "demo"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "\n"  # it has begun
        os.killpg(running.pid, signal.SIGINT)
        _, told = running.communicate(timeout=60)
    assert running.returncode == 130
    assert told == "infeed: stopped\n"


def test_importing_the_command_imports_neither_rich_nor_psutil() -> None:
    code = "import sys, infeed.cli; print({'rich', 'psutil', 'cloudpickle'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
