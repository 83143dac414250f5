"""Runs small programs as a user would, in an interpreter of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

import infeed

ROOT = Path(__file__).parents[2]
SOURCE = Path(infeed.__file__).parents[1]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{SOURCE}:{ROOT}", "PYTHONUNBUFFERED": "1"}


def run(text: str, *options: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Run a script to its end."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "script.py")
        script.write_text(textwrap.dedent(text))
        return subprocess.run(
            [sys.executable, "-W", "error", *options, str(script)],
            capture_output=True,
            text=True,
            timeout=timeout,
            env=environment(),
            cwd=folder,
        )


def start(text: str, **settings: Any) -> subprocess.Popen[str]:
    """Begin a script, in a process group of its own, as a terminal would."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(text)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        process_group=0,
        **settings,
    )
