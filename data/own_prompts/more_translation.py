"""More translation prompts: own sentences in English and eight other languages, joined from parts that fit."""

from treewise.data.own_prompts.forms import Forms, items, lines
from treewise.data.own_prompts.sentences import NEXT, WHAT, WHEN

_FORMS = (
    "Translate {pair}: {when} {what}",
    "Translate from {pair2}. {when} {what}",
    "Please translate this sentence ({pair}):\n\n{when} {what}",
)


def _into_english(language: str) -> Forms:
    slots = {
        "pair": (f"{language} to English",),
        "pair2": (f"{language} into English",),
        "when": lines(WHEN[language]),
        "what": lines(WHAT[language]),
    }
    joined = tuple(form.replace("} {", "}{") for form in _FORMS) if language in ("Chinese", "Japanese") else _FORMS
    return Forms(joined, 11, slots)


def _paragraphs(source: str, goal: str, each: int) -> Forms:
    slots = {"when": lines(WHEN[source]), "what": lines(WHAT[source]), "next": lines(NEXT[source])}
    return Forms((f"Translate the text from {source} to {goal}.\n\n{{when}} {{what}} {{next}}",), each, slots)


_OTHERS = tuple(language for language in WHEN if language != "English")

FORMS = (
    *(_into_english(language) for language in _OTHERS),
    *(_paragraphs(language, "English", 24) for language in NEXT if language != "English"),
    *(_paragraphs("English", language, 24) for language in _OTHERS),
    Forms(
        _FORMS,
        70,
        {
            "pair": tuple(f"English to {language}" for language in _OTHERS),
            "pair2": tuple(f"English into {language}" for language in _OTHERS),
            "when": lines(WHEN["English"]),
            "what": lines(WHAT["English"]),
        },
    ),
    Forms(
        lines(
            """
            How do you say "{phrase}" in {tongue}?
            Translate "{phrase}" into {tongue}, {tongue2} and {tongue3}.
            What does the {tongue} word for "{word}" look like, and how is it pronounced?
            Write a short dialogue in {tongue} in which two people talk about {topic}, with an English translation.
            Teach me five {tongue} sentences that help when talking about {topic}.
            Translate this message into simple {tongue}: "Dear {person}, {phrase} See you on {day}."
            """
        ),
        22,
        {
            "tongue": items(
                """German; French; Spanish; Italian; Portuguese; Dutch; Swedish; Polish; Turkish; Russian; Chinese;
                Japanese"""
            ),
            "phrase": lines(
                """
                Where can I buy a ticket?
                I would like to pay by card.
                The train is twenty minutes late.
                Could you please speak more slowly?
                My suitcase has not arrived.
                We need a table for four people.
                It was a pleasure to meet you.
                I forgot my password again.
                The shower does not work.
                What time does the pharmacy open?
                I am looking for my sister.
                This soup is too salty for me.
                Can I leave my bicycle here?
                The children are already asleep.
                Turn left after the church.
                I have had a headache since yesterday.
                We should have taken the other road.
                Nothing is as old as yesterday's newspaper.
                """
            ),
            "word": lines(
                "bridge\nbutterfly\nbread\nThursday\nneighbour\nsnow\nkey\nforest\nspoon\nheart\nwindow\nfriendship"
            ),
            "topic": lines(
                "the weather\na broken car\nfood\nwork\na new flat\nsport\na doctor's visit\nmusic\nshopping\nschool"
            ),
            "day": lines("Monday\nTuesday\nWednesday\nThursday\nFriday\nSaturday\nSunday"),
        },
    ),
)
