"""Running the device check: its parts in their order, each step inside the time that is left."""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from importlib import metadata
from typing import Any

from treewise.data.cost import CostProfile
from treewise.data.errors import AcceptanceWarning, CaptureWarning, ParameterError, TreewiseError
from treewise.device_check import DeviceCheck, DeviceCheckSettings
from treewise.policy.bundle import Bundle
from treewise.policy.learned import LearnedPolicy
from treewise.policy.registry import parse_policy

# What a step raises on a machine, or under versions, that nobody has tried: it must not cost the other steps' figures.
STEP_FAILURES = (TreewiseError, RuntimeError, TypeError, ValueError, AttributeError, AssertionError)
SET_UP_S = 20.0  # to make the models of a part, as long as nobody has seen it done
Tell = Callable[[str], None]


class Watch:
    """The time that is left, and what a step of each kind took so far."""

    def __init__(self, limit_s: float) -> None:
        self._ends = time.perf_counter() + limit_s
        self._taken: dict[str, float] = {}

    def fits(self, kind: str, guess_s: float) -> bool:
        """Whether a step is over in time if it takes what the last of its kind took, or the guess for the first."""
        return time.perf_counter() + self._taken.get(kind, guess_s) <= self._ends

    def took(self, kind: str, seconds: float) -> None:
        """Remember a step."""
        self._taken[kind] = seconds


def check_device(
    settings: DeviceCheckSettings,
    tell: Tell = lambda line: None,
    keep: Callable[[DeviceCheck], None] = lambda so_far: None,
) -> DeviceCheck:
    """Run every part that the time limit leaves room for.

    `tell` is given a line before each step and for each step that is left out, `keep` what is there after each part. A
    step that fails has a line in `failed`, and the next one goes on. Raises `ParameterError` where the device
    is not there or a shape does not fit it, and as `Bundle.load` does.
    """
    import torch

    from treewise.engine.collect import known_device

    place = torch.device(settings.device)
    if place.type == "cuda" and not torch.cuda.is_available():
        raise ParameterError("device must be one that is there, got 'cuda' without a GPU; `--dry-run` needs none")
    found = DeviceCheck(settings, known_device(place))
    found.versions = {name: metadata.version(name) for name in ("torch", "transformers", "numpy", "treewise")}
    bundle = None if settings.bundle is None else Bundle.load(settings.bundle)
    run = DeviceRun(found, Watch(settings.limit_s), tell, bundle)
    for name, work in (("texts", run.texts), ("curve", run.curve), ("speed", run.speed)):
        run.part(name, work)
        keep(found)
    return found


class DeviceRun:
    """The parts in their order; each step looks at the watch first."""

    def __init__(self, found: DeviceCheck, watch: Watch, tell: Tell, bundle: Bundle | None) -> None:
        self.found, self.watch, self.tell, self.bundle = found, watch, tell, bundle
        self.settings = found.settings
        self.on_gpu = found.settings.device.startswith("cuda")

    def part(self, name: str, work: Callable[[], None]) -> None:
        """Run one part, timed, if its models can still be made; recordings that fall back are noted, not shown."""
        if not self.watch.fits(name, SET_UP_S):
            self._leave_out(name)
            return
        began = time.perf_counter()
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always", CaptureWarning)
            warnings.simplefilter("ignore", AcceptanceWarning)
            work()
        self.found.warnings += [str(entry.message) for entry in heard]
        self.found.seconds[name] = time.perf_counter() - began
        self._forget()

    def step(self, kind: str, what: str, guess_s: float, work: Callable[[], None]) -> None:
        """Run one step if there is time for it, else say that it was left out."""
        if not self.watch.fits(kind, guess_s):
            self._leave_out(what)
            return
        self.tell(what)
        began = time.perf_counter()
        try:
            work()
        except STEP_FAILURES as error:
            self.found.failed.append(f"{what}: {type(error).__name__}: {error}")
            self.tell(f"failed: {self.found.failed[-1]}")
        self.watch.took(kind, time.perf_counter() - began)

    def _leave_out(self, what: str) -> None:
        line = f"{what}: left out, the time limit of {self.settings.limit_s:.0f} s would be passed"
        self.found.skipped.append(line)
        self.tell(line)

    def texts(self) -> None:
        """Exactness in fp32."""
        from treewise.engine.exact_texts import ExactTexts
        from treewise.engine.shapes import dtype_of, random_pair, random_prompts
        from treewise.engine.verify_curve import ways

        own = self.settings
        shape = own.text_shape
        pair = random_pair(shape, shape, dtype=dtype_of("fp32"), device=own.device)
        prompts = random_prompts(pair, own.text_prompts, own.prompt_tokens)
        exact = ExactTexts(pair, prompts, own.text_tokens)
        policies = [name for name in own.policies if name not in ("plain", "learned")]
        for temperature in own.temperatures:
            for way in ways(self.on_gpu):
                what = f"texts at temperature {temperature:g}, {' '.join(way)}"
                work = lambda way=way: self.found.texts.extend(exact.rows([way], policies, temperature))  # noqa: E731,B023
                self.step("texts", what, 20.0, work)
                what = f"texts at temperature {temperature:g}, {' '.join(way)}, batch of {len(prompts)}"
                batched = lambda way=way: self.found.texts.append(exact.side_by_side(way, policies[-1], temperature))  # noqa: E731,B023
                self.step("text batches", what, 10.0, batched)
        if self.on_gpu or own.dry_run:
            warm = own.temperatures[-1]
            add = lambda: self.found.texts.append(exact.on_the_cpu(warm, own.text_tokens // 2))  # noqa: E731
            self.step("cpu", f"texts at temperature {warm:g}, on the CPU", 20.0, add)

    def curve(self) -> None:
        """What a verify pass costs by rows and capacity."""
        from treewise.engine.draft_model import decoder_of
        from treewise.engine.shapes import dtype_of, random_model
        from treewise.engine.verify_curve import CurvePlan, measure_capacity, unmasked_ms, ways

        own = self.settings
        model = random_model(own.shape, dtype_of(own.dtype), own.device)
        layers = int(model.config.num_hidden_layers)
        plan = CurvePlan(own.rows, own.capacities, own.repeats)

        def floor(capacity: int) -> None:
            self.found.floor_ms[capacity] = unmasked_ms(model, layers, capacity, own.repeats)

        def cells(capacity: int, way: tuple[str, str]) -> None:
            made = measure_capacity(model, decoder_of(model), layers, plan, capacity, *way)
            self.found.curve.extend(made)
            self._forget()

        for capacity in own.capacities:
            self.step("floor", f"one unmasked token at capacity {capacity}", 5.0, lambda at=capacity: floor(at))  # type: ignore[misc]
            for way in ways(self.on_gpu):
                what = f"{own.shape}, capacity {capacity}, {' '.join(way)}"
                self.step("curve", what, 15.0, lambda at=capacity, way=way: cells(at, way))  # type: ignore[misc]

    def speed(self) -> None:
        """Tokens per second of policies, alone and in batches."""
        from treewise.engine.scripted_speed import ScriptedSpeed
        from treewise.engine.shapes import dtype_of, random_pair, random_prompts

        own = self.settings
        pair = random_pair(own.shape, own.draft_shape, dtype=dtype_of(own.dtype), device=own.device)
        prompts = random_prompts(pair, max(own.requests, *own.batches), own.prompt_tokens)
        cost = self._cost(pair)
        envelope = None if self.bundle is None else self.bundle.envelope  # all policies in the one that it knows
        bench = ScriptedSpeed(pair, cost, prompts, own.new_tokens, own.rows, envelope)
        policies = self.policies(pair)

        def alone(passes: str, attention: str) -> None:
            for name in policies:
                for hit in own.hits[: 1 if name == "plain" else len(own.hits)]:
                    what = f"{name}, hit {hit:g}, {passes} {attention}"
                    arguments = (hit, passes, attention, own.requests)
                    work = lambda name=name, arguments=arguments: self.found.speed.append(  # noqa: E731
                        bench.single(name, policies[name](), *arguments)
                    )
                    self.step(f"speed {passes}", what, 15.0, work)

        alone(*self._best_way())
        passes, attention = self._fastest_way()
        for size in own.batches:
            for name in policies:
                what = f"{name}, hit {own.hits[-1]:g}, batch of {size}, {passes} {attention}"
                work = lambda name=name, size=size: self.found.speed.append(  # noqa: E731
                    bench.batch(name, policies[name](), own.hits[-1], size, passes, attention)
                )
                self.step(f"batch {size}", what, 12.0, work)
        bench.forget()
        alone("eager", "sdpa")  # last: what is left out if time runs short

    def policies(self, pair: Any) -> dict[str, Callable[[], Any]]:
        """Makers by name; `learned` serves this pair although it was trained on another."""
        makers: dict[str, Callable[[], Any]] = {}
        for name in self.settings.policies:
            if name != "learned":
                makers[name] = lambda name=name: parse_policy(name)  # type: ignore[misc]
            elif self.bundle is None:
                self.found.skipped.append("learned: left out, no bundle was named")
                self.tell(self.found.skipped[-1])
            else:
                bundle = replace(self.bundle, pair=pair.description)
                makers[name] = lambda bundle=bundle: LearnedPolicy(bundle)  # type: ignore[misc]
        return makers

    def _best_way(self) -> tuple[str, str]:
        """The fastest way other than the eager one to run a middling tree; without a curve, by sdpa."""
        passes = "captured" if self.on_gpu else "static"
        middle = self.settings.rows[len(self.settings.rows) // 2]
        first = self.settings.capacities[0]
        known = {
            cell.attention: cell.ms
            for cell in self.found.curve
            if (cell.passes, cell.rows, cell.capacity) == (passes, middle, first)
        }
        return passes, min(known, key=lambda name: known[name], default="sdpa")

    def _fastest_way(self) -> tuple[str, str]:
        """The fastest way of all to run a middling tree; without a curve, as `_best_way`."""
        middle, first = self.settings.rows[len(self.settings.rows) // 2], self.settings.capacities[0]
        cells = [cell for cell in self.found.curve if (cell.rows, cell.capacity) == (middle, first)]
        best = min(cells, key=lambda cell: cell.ms, default=None)
        return self._best_way() if best is None else (best.passes, best.attention)

    def _cost(self, pair: Any) -> CostProfile:
        """The profile that policies read: the measured curve and a draft curve; an example where there is none."""
        from treewise.engine.verify_curve import CurvePlan, grid_of, measure_capacity

        own, (passes, attention) = self.settings, self._best_way()
        chosen = [cell for cell in self.found.curve if (cell.passes, cell.attention) == (passes, attention)]
        whole = len(chosen) % len(own.rows) == 0 and len(chosen) > 0
        if not whole or not self.watch.fits("curve", 15.0):
            return CostProfile.load("example-a100-70b")
        draft = pair.draft
        plan = CurvePlan(own.draft_tokens, own.capacities[:1], own.repeats)
        at = own.capacities[0]
        drafted = measure_capacity(draft.model, draft.model, draft.num_layers, plan, at, passes, attention, draft.head)
        return CostProfile(
            name=pair.name,
            verify=grid_of(chosen),
            draft=grid_of(drafted),
            policy_ms=0.1,
            device=self.found.device,
            dtype=own.dtype,
            attention=attention,
            pair=pair.name,
            origin=f"measured on this machine, {passes} passes, median of {own.repeats}; random weights",
        )

    def _forget(self) -> None:
        if self.on_gpu:
            import torch

            gc.collect()
            torch.cuda.empty_cache()
