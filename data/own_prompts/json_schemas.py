"""JSON documents to write after a drawn JSON schema."""

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from treewise.data.own_prompts.forms import items, lines

# What is described: its text fields; its whole numbers; its choices.
_THINGS = lines(
    """
    A public library branch | name, address, librarian | shelves, visitors_per_day | status: open, closed, moving
    A pet in a shelter | name, breed, story | age_years, cage | size: small, medium, large
    A bus line | label, first_stop, last_stop | stops, minutes | fuel: diesel, electric, hydrogen
    A hiking trail | title, region, surface | length_m, climb_m | difficulty: easy, moderate, hard
    A configuration of a web server | host, log_file, user | port, timeout_s | log_level: debug, info, error
    A chess game | white, black, opening | moves, rating_gap | result: white, black, draw
    A seed packet | plant, variety, advice | depth_mm, days_to_harvest | season: spring, summer, autumn
    A theatre performance | play, director, stage | seats, price | language: English, French, sign
    A bug report | summary, steps, reporter | line, severity_points | state: new, fixed, rejected
    A football club | name, city, coach | founded, members | league: first, second, amateur
    A coffee order | customer, blend, note | cups, shots | milk: none, cow, oat
    A museum object | title, artist, origin | inventory, year | condition: good, fair, fragile
    A weather station | station, operator, sensor | altitude_m, interval_min | climate: coastal, alpine, urban
    A software package | package, author, homepage | downloads, open_issues | licence: MIT, GPL, other
    A train ticket | passenger, origin, destination | coach, seat | class: first, second, sleeper
    A patient appointment | patient, doctor, reason | room, duration_min | urgency: low, normal, high
    A song in a playlist | title, artist, album | seconds, plays | mood: calm, happy, dark
    A satellite | designation, agency, orbit | mass_kg, launched | purpose: research, radio, weather
    A bank transfer | sender, receiver, reference | amount_cents, attempts | currency: EUR, USD, CHF
    A robot vacuum | model, room, error | battery_percent, area_m2 | mode: quiet, normal, turbo
    A parcel | tracking, sender, receiver | weight_g, stops | service: standard, express, pickup
    A garden bed | label, crop, neighbour | length_cm, width_cm | soil: sandy, clay, peat
    A school class | name, teacher, room | pupils, lessons | level: primary, secondary, evening
    A board game | title, designer, setting | players, minutes | kind: cards, dice, strategy
    """
)
_ASK = (
    "Invent one document that fits this JSON schema. Output the document alone.\n\n{schema}",
    "JSON schema:\n{schema}\n\nGive me two different valid documents as a JSON list.",
    "Fill in this schema with plausible data and return JSON, no comments: {schema}",
)
_LIST_OF = items("tags; notes; contacts; keywords; aliases; warnings; languages")
_FORMATS = items("date; date-time; email; uri; time")


@dataclass(frozen=True, slots=True)
class SchemaDocuments:
    """`each` schemas a thing, of varied size and layout."""

    each: int

    def draw(self, seed: str, shared: Mapping[str, tuple[str, ...]]) -> list[list[str]]:
        """One list of prompts; the things take turns."""
        prompts = []
        for turn in range(self.each):
            for place, thing in enumerate(_THINGS):
                rng = random.Random(f"{seed}/{thing}/{turn}")
                schema = json.dumps(_schema(thing, rng), indent=2 if rng.random() < 0.25 else None)
                prompts.append(_ASK[(turn + place) % len(_ASK)].replace("{schema}", schema))
        return [list(dict.fromkeys(prompts))]


def _schema(thing: str, rng: random.Random) -> dict[str, Any]:
    title, texts, numbers, choice = (part.strip() for part in thing.split("|"))
    name, _, values = choice.partition(":")
    fields: dict[str, Any] = {text: {"type": "string"} for text in texts.split(", ")}
    for number in numbers.split(", "):
        fields[number] = {"type": "integer", "minimum": rng.choice((0, 1, 5)), "maximum": rng.choice((50, 1000, 9999))}
    fields[name] = {"enum": values.strip().split(", ")}
    extras: list[tuple[str, Any]] = [
        (rng.choice(_LIST_OF), {"type": "array", "items": {"type": "string"}, "minItems": rng.randint(1, 3)}),
        (rng.choice(("active", "verified", "public")), {"type": "boolean"}),
        ("updated", {"type": "string", "format": rng.choice(_FORMATS)}),
        (
            "code",
            {"type": "string", "pattern": rng.choice(("^[A-Z]{3}-[0-9]{4}$", "^[a-z]{2}[0-9]+$", "^#[0-9a-f]{6}$"))},
        ),
        ("score", {"type": "number", "exclusiveMinimum": 0}),
        (
            rng.choice(("location", "origin_point", "place")),
            {
                "type": "object",
                "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}},
                "required": ["lat", "lon"],
            },
        ),
        (
            "history",
            {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"on": {"type": "string", "format": "date"}, "text": {"type": "string"}},
                },
            },
        ),
    ]
    fields.update(rng.sample(extras, rng.randint(1, 4)))
    chosen = rng.sample(list(fields), max(4, len(fields) - 2))
    schema: dict[str, Any] = {
        "type": "object",
        "title": title,
        "properties": {field: fields[field] for field in chosen},
    }
    schema["required"] = chosen[: rng.randint(2, 4)]
    if rng.random() < 0.5:
        schema["additionalProperties"] = False
    return schema
