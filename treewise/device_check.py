"""The device check: one run that says whether a machine does what the GPU path promises, and how fast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treewise.data.errors import require

if TYPE_CHECKING:
    from treewise.engine.exact_texts import TextRow
    from treewise.engine.scripted_speed import SpeedRow
    from treewise.engine.verify_curve import CurveCell

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class DeviceCheckSettings:
    """What is measured. The defaults are for one large GPU, under eight minutes."""

    device: str = "cuda"
    dtype: str = "bf16"
    shape: str = "llama-8b"  # of curve and speed
    draft_shape: str = "llama-1b"
    text_shape: str = "smollm2-135m"  # of the texts, in fp32
    limit_s: float = 450.0
    rows: tuple[int, ...] = (1, 2, 4, 8, 12, 16, 24, 36, 48, 64, 96, 128)
    draft_tokens: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    capacities: tuple[int, ...] = (512, 2048, 8192)
    repeats: int = 15
    prompt_tokens: int = 64
    text_prompts: int = 2
    text_tokens: int = 48
    temperatures: tuple[float, ...] = (0.0, 0.8)
    hits: tuple[float, ...] = (0.6, 0.8)
    new_tokens: int = 96
    requests: int = 2  # of each measurement of an engine of one request
    policies: tuple[str, ...] = ("plain", "chain", "topn", "frontier", "learned")
    batches: tuple[int, ...] = (1, 8, 32)
    bundle: Path | None = None  # of the learned policy
    dry_run: bool = False

    def __post_init__(self) -> None:
        require(self.limit_s > 0, "limit_s", "> 0", self.limit_s)
        require(len(self.rows) >= 2 and self.rows[0] == 1, "rows", "at least two counts, the first 1", self.rows)
        require(len(self.capacities) >= 1, "capacities", "at least one", self.capacities)
        require(self.repeats >= 3, "repeats", ">= 3", self.repeats)

    def dry(self) -> DeviceCheckSettings:
        """The same parts on tiny shapes on the CPU: seconds, and figures that say nothing."""
        return replace(
            self,
            device="cpu",
            dtype="fp32",
            shape="tiny",
            draft_shape="tiny-draft",
            text_shape="tiny",
            rows=(1, 4, 16, 36),
            draft_tokens=(1, 4),
            capacities=(16, 64),
            repeats=3,
            prompt_tokens=12,
            text_prompts=2,
            text_tokens=6,
            new_tokens=8,
            requests=1,
            policies=("plain", "topn", "learned"),
            hits=(0.8,),
            batches=(1, 2),
            dry_run=True,
        )


@dataclass(frozen=True, slots=True)
class Target:
    """One promise."""

    name: str
    limit: float
    value: float | None  # None: it was not measured
    unit: str

    @property
    def is_met(self) -> bool | None:
        """None where it was not measured."""
        return None if self.value is None else self.value <= self.limit


@dataclass(slots=True)
class DeviceCheck:
    """What the check found so far; parts that were left out have a line in `skipped`."""

    settings: DeviceCheckSettings
    device: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    texts: list[TextRow] = field(default_factory=list)
    floor_ms: dict[int, float] = field(default_factory=dict)  # capacity -> one unmasked token
    curve: list[CurveCell] = field(default_factory=list)
    speed: list[SpeedRow] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)  # steps that raised, and what
    warnings: list[str] = field(default_factory=list)  # of recordings that fell back
    seconds: dict[str, float] = field(default_factory=dict)  # of each part

    @property
    def base_ms(self) -> float | None:
        """The best one-token pass without a mask at the smallest capacity, however it is run."""
        first = self.settings.capacities[0]
        known = [self.floor_ms[first]] if first in self.floor_ms else []
        # One eager row that sees everything is run without a mask.
        known += [cell.ms for cell in self.curve if (cell.capacity, cell.rows, cell.passes) == (first, 1, "eager")]
        return min(known, default=None)

    def ratio(self, rows: int) -> float | None:
        """The best pass of `rows` rows at the smallest capacity over `base_ms`."""
        first = self.settings.capacities[0]
        taken = [cell.ms for cell in self.curve if cell.capacity == first and cell.rows == rows]
        return min(taken) / self.base_ms if taken and self.base_ms else None

    @property
    def targets(self) -> list[Target]:
        """What was promised of such a machine."""
        calls = [row.policy_ms for row in self.speed if row.batch == 0]
        equal = [row.differing for row in self.texts]
        return [
            Target("texts that are not plain decoding's", 0, sum(equal) if equal else None, "texts"),
            Target("16 rows over one unmasked token", 1.12, self.ratio(16), "times"),
            Target("36 rows over one unmasked token", 1.15, self.ratio(36), "times"),
            Target("dearest policy call", 150.0, max(calls) * 1e3 if calls else None, "us"),
        ]

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping."""
        settings = asdict(self.settings)
        settings["bundle"] = None if self.settings.bundle is None else self.settings.bundle.name
        speed = [
            {**asdict(row), "tokens_per_second": row.tokens_per_second, "tokens_per_round": row.tokens_per_round}
            for row in self.speed
        ]
        return {
            "schema_version": SCHEMA_VERSION,
            "dry_run": self.settings.dry_run,
            "weights": "random",
            "device": self.device,
            "versions": self.versions,
            "settings": settings,
            "targets": [{**asdict(target), "met": target.is_met} for target in self.targets],
            "texts": [asdict(row) for row in self.texts],
            "base_ms": self.base_ms,
            "floor": [{"capacity": capacity, "ms": ms} for capacity, ms in self.floor_ms.items()],
            "curve": [asdict(cell) for cell in self.curve],
            "speed": speed,
            "skipped": self.skipped,
            "failed": self.failed,
            "warnings": self.warnings,
            "seconds": self.seconds,
        }


def missed(targets: Sequence[Target]) -> list[str]:
    """One line for each target that was measured and not met."""
    return [
        f"{target.name}: {target.value:.3g} {target.unit}, at most {target.limit:g} were promised"
        for target in targets
        if target.is_met is False
    ]
