"""Results of the bench on disk: one JSON line each, so that a run goes on where it stopped."""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from treewise.data.whole_file import naming
from treewise.live import LiveFigures
from treewise.texts import Divergence

K = TypeVar("K", bound=Hashable)
K_co = TypeVar("K_co", bound=Hashable, covariant=True)
R = TypeVar("R", bound="Stored[Any]")

ROOMS = ("data", "policy", "engine")  # whose code decides what is decoded


@dataclass(frozen=True, slots=True)
class BenchKey:
    """What tells results apart within one file."""

    policy: str  # name
    temperature: float
    prompt_id: str


@dataclass(frozen=True, slots=True)
class BenchResult:
    """One prompt decoded with one policy at one temperature."""

    key: BenchKey
    tokens: tuple[int, ...]
    figures: LiveFigures
    divergence: Divergence | None  # from plain decoding

    def to_line(self) -> str:
        """One line of JSON; `from_line` reads it back."""
        value = {
            "policy": self.key.policy,
            "temperature": self.key.temperature,
            "prompt_id": self.key.prompt_id,
            "tokens": list(self.tokens),
            "figures": self.figures.to_json(),
            "divergence": None if self.divergence is None else self.divergence.to_json(),
        }
        return json.dumps(value) + "\n"

    @classmethod
    def from_line(cls, line: str) -> BenchResult | None:
        """The result in `line`; None where a killed run left half of one."""
        try:
            value: dict[str, Any] = json.loads(line)
            place = value["divergence"]
            return cls(
                BenchKey(value["policy"], value["temperature"], value["prompt_id"]),
                tuple(value["tokens"]),
                LiveFigures.from_json(value["figures"]),
                None if place is None else Divergence(**place),
            )
        except (ValueError, KeyError, TypeError):
            return None


class Stored(Protocol[K_co]):
    """A result that fits on a line."""

    @property
    def key(self) -> K_co:
        """What tells results apart within one file."""

    def to_line(self) -> str:
        """One line of JSON, its end included."""


class ResultStore(Generic[K, R]):
    """The results in `path`, those that are there and those that are added.

    `read` gives the result in a line, None where a killed run left half of one.
    """

    def __init__(self, path: Path, read: Callable[[str], R | None]) -> None:
        self.path = path
        self._found: dict[K, R] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file():
            content = path.read_text(encoding="utf-8")
            for line in content.splitlines():
                if (result := read(line)) is not None:
                    self._found[result.key] = result
            if content and not content.endswith("\n"):
                with path.open("a", encoding="utf-8") as file:
                    file.write("\n")  # so that the next line does not grow onto a torn one

    def __len__(self) -> int:
        return len(self._found)

    def __contains__(self, key: K) -> bool:
        return key in self._found

    def __getitem__(self, key: K) -> R:
        return self._found[key]

    def add(self, result: R) -> None:
        """Append one result."""
        with naming(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(result.to_line())
        self._found[result.key] = result


class BenchStore(ResultStore[BenchKey, BenchResult]):
    """Results of the bench."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, BenchResult.from_line)


def content_key(parts: Sequence[object]) -> str:
    """Sixteen hex digits over the JSON of `parts` and the code of `ROOMS`."""
    text = json.dumps([code_sha256(), *parts], sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]


def code_sha256(rooms: Sequence[str] = ROOMS) -> str:
    """SHA-256 over the sources of the rooms, in the order of their paths."""
    digest = hashlib.sha256()
    for room in rooms:
        folder = Path(str(importlib.import_module(f"treewise.{room}").__file__)).parent
        for path in sorted(folder.rglob("*.py")):
            digest.update(f"{room}/{path.relative_to(folder).as_posix()}\n".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()
