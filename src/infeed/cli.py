"""The command `infeed`: one function adds a command's arguments, one runs it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import infeed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status.

    >>> main(["demo", "--workers", "0"])
    Traceback (most recent call last):
    SystemExit: 2
    """
    chosen = parser().parse_args(arguments)
    try:
        status: int = chosen.run(chosen)
    except KeyboardInterrupt:
        print("infeed: stopped", file=sys.stderr)
        return 130
    except infeed.InfeedError as error:
        print(f"infeed: {error}", file=sys.stderr)
        return 1
    return status


def parser() -> argparse.ArgumentParser:
    """All commands and their arguments.

    >>> parser().parse_args(["demo", "--quick"]).quick
    True
    """
    made = argparse.ArgumentParser(prog="infeed", description=(infeed.__doc__ or "").partition("\n")[0])
    made.add_argument("--version", action="version", version=f"infeed {infeed.__version__}")
    commands = made.add_subparsers(title="commands", metavar="COMMAND", required=True)
    add_demo(commands)
    return made


def add_demo(commands: Any) -> None:
    """The arguments of `infeed demo`."""
    text = "show what is gained by threads and processes on this machine, in about half a minute"
    made = commands.add_parser("demo", help=text, description=f"{text[0].upper()}{text[1:]}.")
    made.add_argument("--quick", action="store_true", help="a few seconds, for a look; the figures are rough")
    made.add_argument("--workers", type=_workers, metavar="N", help="how many (default: one for each core, 2 to 4)")
    made.add_argument("--json", type=_writable, metavar="FILE", help="write all figures to FILE as well")
    made.set_defaults(run=run_demo)


def run_demo(chosen: argparse.Namespace) -> int:
    """Fails when a stream was not what it should be, never for being slow."""
    from infeed import demo

    report = demo.run(demo.Settings.of(quick=chosen.quick, workers=chosen.workers))
    if chosen.json is not None:
        chosen.json.write_text(report.as_json())
    return 0 if report.sound else 1


def _workers(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of workers from 1 up")
    return int(text)


def _writable(text: str) -> Path:
    """A file to write to, tried now and not after half a minute of work."""
    try:
        Path(text).open("a").close()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"cannot write there: {error}") from None
    return Path(text)
