"""Creative: stories, poems, dialogues, slogans and scenes."""

from treewise.data.own_prompts.family import Family

FAMILIES = (
    Family(
        "distill",
        (
            "Write a short story of about 200 words about {who} who discovers {what}.",
            "Write the opening scene of a novel in which {who} finds {what}. End on a question that makes me read on.",
            "Tell me a bedtime story: {who} stumbles upon {what} and learns something about friendship.",
            "Write a diary entry by {who}, on the evening after finding {what}.",
        ),
        {
            "who": (
                "a lighthouse keeper",
                "a retired watchmaker",
                "a young ferry pilot",
                "a night nurse",
                "a shy cartographer",
                "a baker's apprentice",
                "an old circus horse",
                "a robot gardener",
            ),
            "what": (
                "a door behind the bookshelf",
                "a letter addressed to her grandchildren",
                "a radio that receives tomorrow's news",
                "an egg that hums",
                "a map of a street that does not exist",
            ),
        },
        30,
    ),
    Family(
        "distill",
        (
            "Write a poem in four stanzas about {theme}. It does not need to rhyme, but it should have a clear rhythm.",
            "Write a rhyming poem for a friend's birthday card that is secretly about {theme}.",
            "Compose song lyrics about {theme}, with two verses, a chorus and a bridge.",
        ),
        {
            "theme": (
                "the first snow of the year",
                "a train station at midnight",
                "learning to cook late in life",
                "an empty house by the sea",
                "the smell of old books",
                "a garden after rain",
                "moving to a new city",
                "a grandmother's kitchen table",
            )
        },
        20,
    ),
    Family(
        "distill",
        (
            "Write a humorous dialogue between {pair}. Each of them should have a distinct voice.",
            "Imagine {pair} stuck in a lift for an hour. Write the scene as a short play with stage directions.",
        ),
        {
            "pair": (
                "a cat and a robot vacuum cleaner",
                "a famous chef and a very picky child",
                "the Moon and a street lamp",
                "a medieval knight and a parking attendant",
                "two rival ghosts",
                "a poet and an accountant",
            )
        },
        11,
    ),
    Family(
        "distill",
        ("Think of five names and matching slogans for {product}, and explain the idea behind each.",),
        {
            "product": (
                "a café that only opens at night",
                "a line of umbrellas for dogs",
                "a repair shop for toys",
                "an app that teaches bird songs",
                "a cargo-bike delivery service",
                "a small mountain hotel",
                "a podcast about forgotten inventions",
                "a honey from city rooftops",
                "a reading club for trains",
            )
        },
    ),
    Family(
        "policy",
        (
            "Invent a myth that explains {why}, told in the manner of an old village tale.",
            "Describe {why} as a sports commentator would, in one breathless page.",
        ),
        {
            "why": (
                "how mountains learned to be silent",
                "how the fox got its white tail tip",
                "the reason rivers never turn back",
                "why thunder follows lightning",
                "where lost keys go",
            )
        },
        10,
    ),
    Family(
        "demo",
        (
            "Write a warm, slightly funny short story about a village postman who one day decides to deliver the "
            "letters that were never sent. Use about 250 words and end with a surprising last line.",
        ),
    ),
)
