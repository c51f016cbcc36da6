"""Knowledge: explanations, comparisons and overviews of established facts."""

from treewise.data.own_prompts.family import Family

FAMILIES = (
    Family(
        "distill",
        (
            "Explain how {topic} works, in plain language, for someone without a technical background.",
            "What is the main idea behind {topic}? Give the key steps in order and one everyday example.",
            "I have to give a five-minute talk about {topic} tomorrow. Which facts should I mention, and why do "
            "they matter?",
            "What are three common misunderstandings about {topic}, and what is actually true?",
        ),
        {
            "topic": (
                "a refrigerator's cooling cycle",
                "vaccination",
                "the tides",
                "public-key encryption",
                "photosynthesis",
                "compound interest",
                "a jet engine",
                "plate tectonics",
                "noise-cancelling headphones",
                "sourdough fermentation",
                "the water cycle",
                "GPS positioning",
                "blood clotting",
                "a nuclear power station",
                "inflation",
                "the human ear",
                "a lithium-ion battery",
                "DNA replication",
                "touch screens",
                "the greenhouse effect",
                "a suspension bridge",
                "coral bleaching",
                "speech recognition",
                "the immune system",
                "fibre-optic cables",
            )
        },
        36,
    ),
    Family(
        "distill",
        (
            "Compare {pair}. Cover at least three differences and say when each one is the better choice.",
            "What is the difference between {pair}, and why do people often confuse them?",
        ),
        {
            "pair": (
                "viruses and bacteria",
                "TCP and UDP",
                "weather and climate",
                "a stock and a bond",
                "mitosis and meiosis",
                "stalactites and stalagmites",
                "alternating current and direct current",
                "baroque and romantic music",
                "a compiler and an interpreter",
                "jam and marmalade",
                "a republic and a constitutional monarchy",
                "alligators and crocodiles",
            )
        },
        17,
    ),
    Family(
        "distill",
        (
            "Give a short history of {thing}, with the approximate dates of the most important turning points.",
            "Why was {thing} so important for the people of its time? Name at least three lasting consequences.",
        ),
        {
            "thing": (
                "the printing press",
                "the Silk Road",
                "the steam engine",
                "the Suez Canal",
                "the Hanseatic League",
                "penicillin",
                "the telegraph",
                "the bicycle",
                "the potato in Europe",
                "the Roman road network",
            )
        },
        17,
    ),
    Family(
        "policy",
        (
            "Could you describe what happens inside {topic}, from beginning to end?",
            "Which scientific principles make {topic} possible? List them with a sentence on each.",
        ),
        {
            "topic": (
                "a volcano before it erupts",
                "a microwave oven",
                "a beehive in winter",
                "a solar panel",
                "the human eye when it focuses",
            )
        },
        10,
    ),
    Family(
        "demo",
        (
            "Why is the sky blue during the day but red at sunset? Explain the physics in three short paragraphs "
            "that a curious fourteen-year-old would understand.",
        ),
    ),
)
