"""Chat: everyday questions, advice and small talk."""

from treewise.data.own_prompts.family import Family

FAMILIES = (
    Family(
        "distill",
        (
            "Hi! {situation} What would you do in my place?",
            "{situation} Can you help me think of what to say and how to start?",
            "I could use some advice. {situation} Please be honest and practical.",
        ),
        {
            "situation": (
                "My flatmate never does the dishes and I don't want a fight.",
                "I start a new job on Monday and I'm really nervous.",
                "My best friend forgot my birthday for the second year in a row.",
                "I promised to give a speech at my sister's wedding and have no ideas.",
                "I have been procrastinating on my thesis for three weeks.",
                "My ten-year-old only wants to play video games after school.",
                "I would like to ask my boss for a raise, but I always lose my nerve.",
                "My neighbour's dog barks all night.",
                "I moved to a small town and know nobody here.",
                "I want to get back into reading but fall asleep after two pages.",
                "My parents want to visit for a whole month this summer.",
                "I said yes to too many things and now my calendar is full until May.",
            )
        },
        30,
    ),
    Family(
        "distill",
        (
            "I have {food} left in the fridge and half an hour. What can I cook tonight for two people?",
            "Can you suggest a weekly dinner plan that makes good use of {food}? One of us is vegetarian.",
        ),
        {
            "food": (
                "half a pumpkin and some feta",
                "six eggs and a bunch of spinach",
                "leftover rice and frozen peas",
                "a kilo of carrots",
                "stale bread and tomatoes",
                "a tin of chickpeas and a lemon",
                "a cauliflower and cream",
            )
        },
        12,
    ),
    Family(
        "distill",
        (
            "We're travelling to {place} for three days in spring. What should we see, and how would you split up "
            "the days?",
            "What's a good way to spend a rainy weekend in {place} without spending much money?",
        ),
        {"place": ("Lisbon", "Edinburgh", "Kyoto", "Hamburg", "Bologna", "Montreal", "Ljubljana")},
        12,
    ),
    Family(
        "distill",
        (
            "Recommend me a new hobby. I like {likes}, have about three hours a week and don't want to spend a lot.",
            "I'm someone who enjoys {likes}. What kind of books and films might I like, and why those?",
        ),
        {
            "likes": (
                "puzzles and quiet evenings",
                "being outdoors and working with my hands",
                "music and meeting people",
                "history and old maps",
                "animals and photography",
                "maths and strategy games",
                "cooking and chemistry",
            )
        },
        12,
    ),
    Family(
        "policy",
        (
            "Quick question: {thing}? I've read contradictory things about it online.",
            "Settle an argument between me and my brother, please: {thing}? He says no, I say yes.",
        ),
        {
            "thing": (
                "is it worth buying an expensive mattress",
                "do plants really improve the air in a room",
                "can you learn an instrument well after forty",
                "should you rinse pasta after boiling it",
                "does cracking your knuckles cause harm",
            )
        },
        10,
    ),
    Family(
        "demo",
        (
            "Hey, I have a free Saturday, a bicycle and about 30 euros. I'd like to do something a bit different "
            "from my usual weekend. Any ideas for how to plan the day from morning to evening?",
        ),
    ),
)
