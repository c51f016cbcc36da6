"""Prometheus metrics of a decoding loop: accepted length, nodes, policy time, fallbacks, calibration.

    metrics = Metrics(labels={"model": "my-model"})
    ...
    metrics.step(tree, step)              # after each `controller.accept`
    metrics.update(controller.counters)   # now and then: every round, or once a second

Our own engine's rounds go in with `record`. Needs `pip install treewise[metrics]`. Serve them as any other metrics of
the process, for example with `prometheus_client.start_http_server(9400)`; `docs/dashboard.json` shows them in Grafana.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from treewise.data.errors import MissingExtraError, ParameterError
from treewise.policy.controller import AcceptedStep, ControllerCounters, ProposedTree
from treewise.policy.counters import BINS
from treewise.policy.outcome import RoundRecord

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

LENGTH_BUCKETS = (0, 1, 2, 3, 4, 5, 6, 8, 10, 16, 32)  # tokens
NODE_BUCKETS = (0, 1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128)
_COUNTERS = {
    "rounds": "Rounds: one draft-verify-commit cycle of one request.",
    "committed_tokens": "Tokens committed.",
    "accepted_tokens": "Guessed tokens accepted; the sum of accepted lengths.",
    "verified_nodes": "Guessed tokens verified.",
    "growths": "Forward passes of the draft.",
    "policy_calls": "Calls that reached the policy.",
    "policy_seconds": "Seconds spent in the policy.",
    "fallbacks": "Rounds that the fallback finished after the policy failed.",
    "suspensions": "Rounds without the policy, after it was too slow.",
    "failures": "Exceptions and rule violations of the policy.",
}
_CALIBRATION = {
    "nodes": "Verified nodes whose parent was accepted, by predicted match probability.",
    "predicted": "Sum of the match probabilities predicted for them.",
    "matched": "Those that were the target's token.",
}


class Metrics:
    """The metrics of one loop, registered on construction. Thread-safe as far as `prometheus_client` is.

    `labels` are constant and stand on every metric. Raises `MissingExtraError` without the extra, `ParameterError` on
    names that are no metric's or label's, and where the registry holds metrics of that prefix already.
    """

    def __init__(
        self,
        registry: CollectorRegistry | None = None,
        labels: Mapping[str, str] | None = None,
        prefix: str = "treewise",
    ) -> None:
        try:
            import prometheus_client as prometheus
        except ImportError as error:
            raise MissingExtraError("prometheus-client", "metrics") from error
        home = prometheus.REGISTRY if registry is None else registry
        constant = dict(labels or {})
        for name, user in (("bin", "calibration uses"), ("le", "the histograms use")):
            if name in constant:
                raise ParameterError(f"labels must be without {name!r}, which {user}, got one")
        names, values = list(constant), list(constant.values())

        def bound(metric: Any, *more: str) -> Any:
            return metric.labels(*values, *more) if names or more else metric

        try:
            self._lengths = bound(
                prometheus.Histogram(
                    f"{prefix}_accepted_length",
                    "Accepted guesses per round.",
                    names,
                    registry=home,
                    buckets=LENGTH_BUCKETS,
                )
            )
            self._nodes = bound(
                prometheus.Histogram(
                    f"{prefix}_round_nodes", "Verified guesses per round.", names, registry=home, buckets=NODE_BUCKETS
                )
            )
            self._counters = {
                name: bound(prometheus.Counter(f"{prefix}_{name}", words, names, registry=home))
                for name, words in _COUNTERS.items()
            }
            self._calibration: dict[str, list[Any]] = {}
            for name, words in _CALIBRATION.items():
                metric = prometheus.Counter(f"{prefix}_calibration_{name}", words, [*names, "bin"], registry=home)
                self._calibration[name] = [bound(metric, f"{place / BINS:.1f}") for place in range(BINS)]
        except ValueError as error:
            given = f"{error} (prefix {prefix!r}, labels {names})"
            raise ParameterError(f"prefix and labels must name metrics new to the registry, got {given}") from error
        # id -> counters as last read; those of a controller that is gone go with it
        self._seen: dict[int, tuple[weakref.ref[ControllerCounters], dict[str, Any]]] = {}
        self._engine = ControllerCounters()  # of the rounds that `record` was given

    def step(self, tree: ProposedTree, step: AcceptedStep) -> None:
        """The histograms of one round of a controller."""
        self.round(step.accepted_length, tree.num_nodes)

    def round(self, accepted_length: int, verified_nodes: int) -> None:
        """The histograms of one round of any loop; counters come with `update`."""
        self._lengths.observe(accepted_length)
        self._nodes.observe(verified_nodes)

    def update(self, counters: ControllerCounters) -> None:
        """Add what `counters` grew by since they were last given; several controllers may share these metrics."""
        now = counters.to_json()
        key = id(counters)
        before = self._seen[key][1] if key in self._seen else ControllerCounters().to_json()
        for name, metric in self._counters.items():
            metric.inc(max(0, now[name] - before[name]))
        for name, metrics in self._calibration.items():
            for metric, value, old in zip(metrics, now["calibration"][name], before["calibration"][name], strict=True):
                metric.inc(max(0, value - old))
        if key in self._seen:
            self._seen[key] = (self._seen[key][0], now)
        else:
            self._seen[key] = (weakref.ref(counters, lambda _: self._seen.pop(key, None)), now)

    def record(self, record: RoundRecord) -> None:
        """One round of our own engine, histograms and counters; its predicted match probabilities are the priors."""
        self.round(int(record.walk.accepted_length[0]), record.tree.num_nodes)
        self._engine.add_round(record, 0, np.nan_to_num(record.tree.forest.column("prior")))
        self._engine.failures += record.policy_failures
        self.update(self._engine)
