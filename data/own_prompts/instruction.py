"""Instruction: writing tasks with several constraints at once."""

from treewise.data.own_prompts.family import Family

FAMILIES = (
    Family(
        "distill",
        (
            "Write an email to {reader} about {subject}. Use at most 120 words, no exclamation marks, exactly two "
            "paragraphs, and close with a question.",
            "Draft a polite but firm message to {reader} about {subject}. Mention a date, propose two options, and "
            "put the most important sentence first.",
            "Prepare an announcement for {reader} concerning {subject}. It needs a headline in capital letters, "
            "three bullet "
            'points of one sentence each, and a closing line that starts with "Please".',
        ),
        {
            "subject": (
                "a postponed delivery",
                "noise in the stairwell",
                "a change of meeting time",
                "a broken heating system",
                "an unpaid invoice",
                "a new recycling rule",
                "a lost parcel",
                "the summer party",
            ),
            "reader": ("a landlord", "the neighbours", "a long-standing customer", "the whole team", "a supplier"),
        },
        26,
    ),
    Family(
        "distill",
        (
            "Give me {count} tips on {topic}. Number them, start every tip with a verb, keep each under 25 words, "
            "and do not "
            'use the word "should".',
            "Write a guide to {topic} with {count} steps. Each step has a bold title and two sentences; finish with "
            "a warning about the most common mistake.",
            "Explain {topic} twice: first in {count} sentences for an expert, then in {count} sentences for a "
            "child. Label both parts and use no jargon in the second.",
        ),
        {
            "topic": (
                "growing tomatoes on a balcony",
                "preparing for a job interview",
                "saving energy at home",
                "learning vocabulary",
                "packing for a week with hand luggage only",
                "keeping a bicycle in good condition",
                "sleeping better",
                "taking useful notes",
                "reading a contract",
                "training for a first 10 km run",
            ),
            "count": ("four", "five", "seven"),
        },
        26,
    ),
    Family(
        "distill",
        (
            "Rewrite the following sentence in five styles: formal, cheerful, sarcastic, poetic and as a newspaper "
            "headline. "
            'Label each version. Sentence: "{sentence}"',
            "Turn this sentence into a paragraph of exactly four sentences that keeps its meaning, adds a reason, "
            "an example "
            'and a consequence: "{sentence}"',
        ),
        {
            "sentence": (
                "The bus was late again and nobody told us why.",
                "Our new coffee machine is far too complicated.",
                "The museum will stay closed until the roof is repaired.",
                "I would rather walk than wait.",
                "The children built a raft from old doors.",
                "Nobody noticed that the clock had stopped.",
                "The soup was cold, but the service was kind.",
                "Her plan worked better than anyone expected.",
            )
        },
        16,
    ),
    Family(
        "policy",
        (
            "Plan {event} on a budget of 200 euros. Answer in three sections named Before, During and After, with "
            "no more than four lines in each, and give a cost to every line.",
            "Create a checklist for {event}: twelve items, sorted by urgency, each with a person in charge and a "
            "deadline in brackets. Do not repeat any verb.",
        ),
        {
            "event": (
                "a street chess tournament",
                "a surprise farewell for a colleague",
                "a class trip to a farm",
                "a clothes swap in a school hall",
                "a rooftop film night",
            )
        },
        10,
    ),
    Family(
        "demo",
        (
            "Write a product description for a foldable travel kettle. Requirements: 100 to 130 words, three "
            "paragraphs, the second one as a bulleted list of four features, no superlatives, mention the weight "
            "and the capacity, and end with a sentence that contains a number.",
        ),
    ),
)
