"""The README and the pages of docs/: their Python runs, their links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md")])
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)\s]*)?\)")


def blocks(text: str, language: str) -> list[str]:
    """The code blocks that are marked with exactly this language."""
    return [code for marked, code in FENCE.findall(text) if marked == language]


def program(text: str) -> str:
    """All Python blocks of a page as one program, each line at its own number."""
    lines = [""] * text.count("\n")
    for block in FENCE.finditer(text):
        if block[1] == "python":
            first = text.count("\n", 0, block.start(2))
            code = block[2].splitlines()
            lines[first : first + len(code)] = code
    return "\n".join(lines)


def test_a_program_keeps_the_line_numbers_of_its_page() -> None:
    page = "one\n```python\nx = 1\n```\nfive\n```text\nno code\n```\n```python\nassert x == 1\n```\n"
    assert [line for line in enumerate(program(page).split("\n"), 1) if line[1]] == [
        (3, "x = 1"),
        (10, "assert x == 1"),
    ]


PROGRAMS = [page for page in PAGES if blocks(page.read_text(), "python")]


@pytest.mark.parametrize("page", PROGRAMS, ids=lambda page: page.name)
def test_the_python_of_a_page_runs_as_one_script(page: Path, tmp_path: Path) -> None:
    script = tmp_path / f"{page.stem}.py"
    script.write_text(program(page.read_text()))
    done = subprocess.run(
        [sys.executable, "-W", "error", script.name], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_leads_to_one(page: Path) -> None:
    targets = LINK.findall(FENCE.sub("", page.read_text()))
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert missing == []


def test_the_readme_opens_with_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    assert blocks(text, "sh")[0] == "make demo\nmake test\n"
    assert text.index("```") < 20, "only the title comes before them"
