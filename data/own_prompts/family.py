"""A family of prompts: templates whose named slots are filled from lists."""

import itertools
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Family:
    """Templates and slot lists of one split; `count` prompts are drawn, or all of them when `count` is None.

    A slot `{name}` in a template is replaced by text; braces that name no slot stay, so templates may hold JSON.
    """

    split: str
    templates: tuple[str, ...]
    slots: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    count: int | None = None

    def expand(self, seed: str) -> list[str]:
        """The drawn prompts, each value of the first slot used about equally often; the same for the same seed."""
        names = tuple(self.slots)
        pool = [
            (values[0] if values else template, fill(template, dict(zip(names, values, strict=True))))
            for template in self.templates
            for values in itertools.product(*self.slots.values())
        ]
        random.Random(seed).shuffle(pool)
        seen: Counter[str] = Counter()
        ranked: list[tuple[int, str]] = []
        for key, text in pool:
            ranked.append((seen[key], text))
            seen[key] += 1
        # A stable sort by rank: every slot value's first prompt comes before any value's second one.
        ranked.sort(key=lambda item: item[0])
        texts = list(dict.fromkeys(text for _, text in ranked))
        return texts if self.count is None else texts[: self.count]


def fill(template: str, values: Mapping[str, str]) -> str:
    """The template with each `{name}` of `values` replaced."""
    for name, value in values.items():
        template = template.replace("{" + name + "}", value)
    return template
