"""Settings of a live engine."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from treewise.data.envelope import Envelope, PriorTable
from treewise.data.errors import require
from treewise.data.trace_manifest import EXACT
from treewise.engine.passes import EAGER
from treewise.engine.static_model import ROW_BUCKETS
from treewise.engine.static_slot_model import row_buckets_up_to
from treewise.engine.verification import Verification
from treewise.policy.draft_ranking import BOTH, PLAIN, RANKINGS


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What an engine may grow and how it runs its passes."""

    envelope: Envelope = field(default_factory=Envelope)
    prior_table: PriorTable = field(default_factory=PriorTable)
    row_buckets: tuple[int, ...] = ()  # verify passes are padded up to these rows; empty: no padding
    use_lookup: bool = True
    use_recycled: bool = True  # the target's own earlier guesses, behind the pair's corpus of them if it has one
    ranking: str = ""  # of the draft's candidates above temperature 0, see `treewise.policy.draft_ranking`; empty: both
    verification: str = EXACT  # or a lossy rule, see `treewise.engine.verification`
    time_limit_ms: float = 50.0  # of one policy call
    passes: str = EAGER  # how the models' passes run: see `treewise.engine.passes`
    slot_buckets: tuple[int, ...] = ()  # of several requests: how many static passes are padded to; empty: own choice
    reads_ahead: bool | None = None  # read every verified row in one copy, not the path's; None: on accelerators

    @property
    def deployed_buckets(self) -> tuple[int, ...]:
        """Rows that verify passes are padded up to; static passes always are."""
        return self.row_buckets or (() if self.passes == EAGER else ROW_BUCKETS)

    def for_batch(self, max_batch: int) -> EngineSettings:
        """Those of an engine of up to `max_batch` requests, whose rows are those of the whole pass."""
        if self.row_buckets or self.passes == EAGER:
            return self
        return replace(self, row_buckets=row_buckets_up_to(max_batch))


def ranking_of(settings: EngineSettings, verification: Verification) -> str:
    """The ranking of the draft's candidates under that verification. Raises `ParameterError`."""
    asked = settings.ranking
    require(asked in ("", *RANKINGS), "ranking", f"one of {', '.join(RANKINGS)}", asked)
    if verification.is_exact:
        return asked or BOTH
    # Noise may rank guesses only where a guess is accepted iff it is the token that the noise draws.
    require(asked in ("", PLAIN), "ranking", f"{PLAIN} with the lossy verification {verification.spec!r}", asked)
    return PLAIN
