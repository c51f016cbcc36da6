"""Summarization: short versions of a passage in several shapes."""

from treewise.data.own_prompts import passages
from treewise.data.own_prompts.family import Family

FAMILIES = (
    Family(
        "distill",
        (
            "Summarize the following text in three sentences.\n\n{passage}",
            "{passage}\n\nTL;DR, please, as a bulleted list with at most five points.",
            "Condense this text to about half its length without losing any important fact:\n\n{passage}",
            "What is the main point of this text? Summarize it first in one sentence and then in a short "
            "paragraph.\n\n{passage}",
            "Write a summary for a newspaper's news-in-brief column, with a headline.\n\nText: {passage}",
            "Retell the following in simple words for a ten-year-old, in no more than six sentences.\n\n{passage}",
            "Please summarize the passage below under the three headings Background, What happened, and Open "
            "questions.\n\n{passage}",
            "Outline this text: one line for each step or argument, in the order in which it appears.\n\n{passage}",
        ),
        {"passage": passages.SUMMARY_DISTILL},
    ),
    Family(
        "policy",
        (
            "Give me the gist of this in about sixty words.\n\n{passage}",
            "Boil the text down to cause, effect and reaction.\n\n{passage}",
            "I have no time to read this. What do I need to know?\n\n{passage}",
            "Turn this into an abstract with a title and four keywords.\n\n{passage}",
            "Summarize the advantages and disadvantages that come up here, in two short paragraphs.\n\n{passage}",
        ),
        {"passage": passages.SUMMARY_POLICY},
    ),
    Family(
        "demo",
        (
            "Summarize this article in four sentences: what happened, how people reacted, what stayed, and what it "
            "shows.\n\n{passage}",
        ),
        {"passage": (passages.SUMMARY_DEMO,)},
    ),
)
