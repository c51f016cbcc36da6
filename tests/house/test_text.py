"""What the tracked text must not say: nothing may point outside the checkout."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from tests.house.layout import ROOT

# Spelled in pieces, so that this file passes its own test.
FORBIDDEN = re.compile(r"(?<![\w.)}])/wor" + r"k(?![\w-])|\.\./shar" + r"ed\b")


def tracked_files() -> list[str]:
    """Tracked and not-yet-ignored files, relative to the root."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [name for name in listed.split("\0") if name and (ROOT / name).is_file()]


@pytest.mark.skipif(not (ROOT / ".git").exists() or shutil.which("git") is None, reason="needs a git checkout")
def test_no_text_points_outside_the_checkout() -> None:
    names = tracked_files()
    assert "pyproject.toml" in names
    found = []
    for name in names:
        content = (ROOT / name).read_bytes()
        if b"\0" in content:
            continue
        for number, line in enumerate(content.decode("utf-8").splitlines(), start=1):
            if FORBIDDEN.search(line):
                found.append(f"{name}:{number}: {line.strip()[:80]}")
    assert found == []


@pytest.mark.parametrize(
    ("text", "forbidden"),
    [
        ("see /wor" + "k/main", True),
        ("in /wor" + "k", True),
        ("cd ../shar" + "ed/x", True),
        ("a dead/work split", False),
        ("/workers", False),
        ("../sharedness", False),
    ],
)
def test_the_rule_itself(text: str, forbidden: bool) -> None:
    assert bool(FORBIDDEN.search(text)) is forbidden
