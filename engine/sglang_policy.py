"""SGLang: an `AdaptiveSpecPolicy`, so that a policy in chain mode chooses `speculative_num_steps` per batch.

The protocol, read at sglang 0.5.23 (`sglang/srt/speculative/adaptive_runtime_state.py`): `candidate_steps`,
`set_cuda_graph_bs`, `get_steps_for_batch`, `on_verify_complete`, `cuda_graph_bs_for_step`; later copies of its main
branch add `num_steps` to `on_verify_complete`, and `on_state_activated`. SGLang 0.5.23 builds its own policy in the
worker, so `register`, an entry point of its plug-in group `sglang.srt.plugins`, puts this one in that place:

    TREEWISE_SGLANG='{"policy": "frontier", "cost": "profile.json"}' python -m sglang.launch_server ...
        --speculative-algorithm EAGLE3 --speculative-eagle-topk 1 --speculative-adaptive

No clock decides anything: the ranks of a tensor-parallel group each ask their own copy and must get one answer.
"""

from __future__ import annotations

import bisect
import importlib
import json
import os
import warnings
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from treewise.data.cost import CostProfile
from treewise.data.errors import ParameterError, require
from treewise.engine.tried_versions import warn_if_untried
from treewise.policy.chain_controller import ChainController, ChainSignals
from treewise.policy.chain_signals import UNLIMITED
from treewise.policy.controller import ControllerCounters
from treewise.policy.controller_settings import is_whole
from treewise.policy.hook import TreePolicy
from treewise.policy.progress import RecentShare

TRIED_VERSIONS = ("0.5.23",)
OPTIONS_VARIABLE = "TREEWISE_SGLANG"
OPTIONS = ("policy", "cost", "context_tokens")
OWN_PARAMS = "sglang.srt.speculative.adaptive_spec_params.AdaptiveSpeculativeParams"
MOST_WAITING = 4  # decisions whose outcome is still to come


class SglangPolicy:
    """Chooses among SGLang's candidate steps what `ChainController` would draft.

    SGLang says how many requests there are and what they accepted, nothing else: recent acceptance stands for every
    request, `context_tokens` for their lengths. Where the policy fails the batch drafts `initial_steps`, SGLang's own
    setting; `counters.fallbacks` counts that.

    Args:
        policy: a policy or spec string that has a draft length in chain mode.
        cost: the deployment's cost profile; its rows and tokens are those of the whole batch.
        candidate_steps: draft lengths that SGLang holds ready, or such lists by the smallest batch size they serve.
        initial_steps: SGLang's `speculative_num_steps`; None: the largest candidate.
        context_tokens: typical tokens of cache per request, for costs that depend on it.
    """

    def __init__(
        self,
        policy: TreePolicy | str,
        *,
        cost: CostProfile,
        candidate_steps: Sequence[int] | Mapping[int, Sequence[int]] = (0, 1, 3, 5, 7),
        initial_steps: int | None = None,
        context_tokens: int = 1024,
    ) -> None:
        slots = candidate_steps if isinstance(candidate_steps, Mapping) else {1: candidate_steps}
        for size, steps in slots.items():
            fits = isinstance(steps, Sequence) and len(steps) > 0 and is_whole(size) and size >= 1
            fits = fits and all(is_whole(step) and 0 <= step <= 64 for step in steps)
            require(fits, "candidate_steps", "lists of steps between 0 and 64, by batch sizes of at least 1", slots)
        require(len(slots) > 0, "candidate_steps", "at least one list", slots)
        fits = initial_steps is None or (is_whole(initial_steps) and 0 <= initial_steps <= 64)
        require(fits, "initial_steps", "None or between 0 and 64", initial_steps)
        fits = is_whole(context_tokens) and 1 <= context_tokens <= UNLIMITED
        require(fits, "context_tokens", f"at least 1 and at most {UNLIMITED}", context_tokens)
        self._slots = {size: sorted(set(steps)) for size, steps in sorted(slots.items())}
        self._initial = self.candidate_steps[-1] if initial_steps is None else initial_steps
        self._context_tokens = context_tokens
        self._controller = ChainController(policy, cost=cost, max_depth=max(1, self.candidate_steps[-1]))
        self._cuda_graph_bs: list[int] | None = None
        self._accepted, self._agreement = RecentShare(), RecentShare()
        self._waiting: deque[tuple[int, int]] = deque(maxlen=MOST_WAITING)  # (batch size, steps), oldest first
        self._warned = False

    @property
    def counters(self) -> ControllerCounters:
        """Of all batches; a round is one of one request."""
        return self._controller.counters

    @property
    def candidate_steps(self) -> list[int]:
        """Every draft length that may be asked for, ascending."""
        return sorted({step for steps in self._slots.values() for step in steps})

    def set_cuda_graph_bs(self, cuda_graph_bs: list[int] | None) -> None:
        """Take the batch sizes that graphs are captured for; None: no graphs."""
        self._cuda_graph_bs = sorted(cuda_graph_bs) if cuda_graph_bs else None

    def cuda_graph_bs_for_step(self, step: int) -> list[int] | None:
        """The captured batch sizes at which `step` may be asked for; None without graphs."""
        if self._cuda_graph_bs is None:
            return None
        return [size for size in self._cuda_graph_bs if step in self._candidates(size)]

    def get_steps_for_batch(self, batch_size: int) -> int:
        """Draft length of the next decode step of `batch_size` requests; `initial_steps` where that is no number."""
        try:
            size = max(1, int(batch_size))
        except (TypeError, ValueError, OverflowError) as error:
            self._fail(error)
            self.counters.fallbacks += 1
            return self._snapped(self._initial, 1)
        steps = self._snapped(self._wanted(size), size)
        self._waiting.append((size, steps))
        return steps

    def on_verify_complete(
        self, num_correct_drafts_per_req: list[int], batch_size: int = 0, num_steps: int | None = None, **later: Any
    ) -> int | None:
        """Take what every request of a batch accepted. The steps change at the next `get_steps_for_batch`: None.

        Without `num_steps` the batch is the oldest of its size whose outcome is still to come; verification may be
        told of a step late. `later` swallows what later versions tell. What cannot be read is counted as a failure.
        """
        try:
            accepted = [int(count) for count in num_correct_drafts_per_req]
            if not accepted:
                return None
            decided = self._decided(batch_size or len(accepted))
            steps = decided if num_steps is None else int(num_steps)
            self._take(np.asarray(accepted), max(steps, *accepted))
        except Exception as error:
            self._fail(error)
        return None

    def on_state_activated(self, steps: int) -> None:
        """Nothing to do: what was drafted is told with the outcome, or was decided here."""

    def _wanted(self, size: int) -> int:
        """The policy's draft length, SGLang's own setting where it fails."""
        try:
            known = {"accepted_recent": self._accepted.mean, "draft_agreement": self._agreement.mean}
            return self._controller.depth(ChainSignals.of([self._context_tokens] * size, **known))
        except Exception as error:
            self._fail(error)
            self.counters.fallbacks += 1
            return self._initial

    def _take(self, accepted: np.ndarray[Any, np.dtype[np.int64]], steps: int) -> None:
        self._controller.observe(accepted, steps)
        if steps:
            self._accepted.add(float(accepted.mean()))
            self._agreement.add(float(accepted.sum() / np.minimum(accepted + 1, steps).sum()))

    def _decided(self, size: int) -> int:
        """Steps of the oldest decision for a batch of `size` that has no outcome yet; older ones never get one."""
        for place, (asked, steps) in enumerate(self._waiting):
            if asked == size:
                for _ in range(place + 1):
                    self._waiting.popleft()
                return steps
        return self._initial

    def _candidates(self, batch_size: int) -> list[int]:
        sizes = list(self._slots)
        return self._slots[sizes[max(0, bisect.bisect_right(sizes, batch_size) - 1)]]

    def _snapped(self, wanted: int, size: int) -> int:
        """The largest candidate that is not above `wanted`, at the batch size that the graphs pad to.

        Where that is 0 a probe drafts the next larger one: rounded away, it would never find out that drafts are good.
        """
        captured = self._cuda_graph_bs or []
        place = bisect.bisect_left(captured, size)
        steps = self._candidates(captured[place] if place < len(captured) else size)
        floor = max(0, bisect.bisect_right(steps, wanted) - 1)
        if wanted > 0 and steps[floor] == 0 and self._controller.is_probe_due:
            floor = min(floor + 1, len(steps) - 1)
        return steps[floor]

    def _fail(self, error: Exception) -> None:
        self.counters.failures += 1
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"the policy failed, SGLang's own {self._initial} steps took over ({type(error).__name__}: {error}); "
                "further failures are counted without a warning",
                RuntimeWarning,
                stacklevel=4,
            )


class TreewiseParams(SglangPolicy):
    """What stands in for SGLang's `AdaptiveSpeculativeParams`: made from its arguments and `TREEWISE_SGLANG`.

    Candidate steps are those of SGLang's adaptive configuration, which also sizes its buffers.
    """

    def __init__(self, initial_steps: int, cfg_path: str | None = None) -> None:
        warn_if_untried("sglang", TRIED_VERSIONS)
        options = options_of(os.environ)
        super().__init__(
            options["policy"],
            cost=CostProfile.load(options["cost"]),
            candidate_steps=steps_of(cfg_path),
            initial_steps=initial_steps,
            context_tokens=options.get("context_tokens", 1024),
        )


def options_of(environment: Mapping[str, str]) -> dict[str, Any]:
    """The options in `TREEWISE_SGLANG`.

    Raises `ParameterError` where it is no JSON object with policy and cost, and on values of other types.
    """
    text = environment.get(OPTIONS_VARIABLE, "")
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        found = None
    if not isinstance(found, dict) or not {"policy", "cost"} <= set(found) <= set(OPTIONS):
        raise ParameterError(
            f"{OPTIONS_VARIABLE} must be a JSON object of policy, cost and perhaps context_tokens, got {text!r}"
        )
    for name in ("policy", "cost"):
        require(isinstance(found[name], str), f"{OPTIONS_VARIABLE} {name}", "a string", found[name])
    length = found.get("context_tokens", 1)
    require(is_whole(length) and length >= 1, f"{OPTIONS_VARIABLE} context_tokens", "a number, at least 1", length)
    return found


def steps_of(cfg_path: str | None) -> dict[int, list[int]]:
    """Candidate steps by batch size of SGLang's adaptive configuration, its default without a file.

    Raises `ParameterError`, naming the file, where it cannot be read or holds no lists of steps.
    """
    name = "SGLang's default adaptive configuration" if cfg_path is None else f"adaptive configuration {cfg_path}"
    config: Any
    if cfg_path is None:
        module = importlib.import_module("sglang.srt.speculative.adaptive_spec_params")
        config = module.DEFAULT_ADAPTIVE_CONFIG
    else:
        try:
            config = json.loads(Path(cfg_path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ParameterError(f"{name} must be a readable JSON file, got {type(error).__name__}: {error}") from error
    slots: dict[int, list[int]] = {}
    for key, entry in config.items() if isinstance(config, dict) else ():
        if key.isdecimal():
            steps = entry.get("candidate_steps") if isinstance(entry, dict) else None
            if not isinstance(steps, list | tuple) or not steps:
                raise ParameterError(f"{name} must be lists of candidate_steps by batch size, got {config!r}")
            slots[int(key)] = list(steps)
    require(bool(slots), name, "candidate_steps by batch size", config)
    return slots


def register() -> None:
    """SGLang's plug-in hook: put `TreewiseParams` in the place of its own policy where `TREEWISE_SGLANG` is set."""
    if not os.environ.get(OPTIONS_VARIABLE):
        return
    options_of(os.environ)
    hooks = importlib.import_module("sglang.srt.plugins.hook_registry")
    hooks.HookRegistry.register(OWN_PARAMS, TreewiseParams, hooks.HookType.REPLACE)
