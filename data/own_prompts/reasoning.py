"""Reasoning: arithmetic word problems, logic puzzles, estimates and decisions with steps."""

from treewise.data.own_prompts.family import Family

FAMILIES = (
    Family(
        "distill",
        (
            "A bakery sells {n} loaves on Monday. Each following day until Saturday it sells {k} more than the day "
            "before. How many loaves does it sell in the whole week, and what does it earn at 3.20 euros a loaf? "
            "Show every step.",
            "{n} litres of water flow into a tank each minute and {k} litres leak out. The tank holds 1,500 litres "
            "and starts one third full. After how many minutes does it overflow? Explain your reasoning.",
            "Two cyclists start 180 km apart and ride towards each other, one at {k} km/h and the other 9 km/h "
            "faster. The first one had a head start of {n} minutes. Where do they meet? Work it out step by step.",
            "A school orders {n} boxes with {k} notebooks each. A quarter of the notebooks go to the first year, "
            "two fifths of the rest to the second year. How many are left? Check the answer at the end.",
        ),
        {"n": ("24", "36", "48", "60"), "k": ("8", "12", "15", "20")},
        22,
    ),
    Family(
        "distill",
        (
            "Ana, Ben, Cleo and Dan sit in a row at the cinema. Ana does not sit at either end, Ben sits directly "
            "left of Ana, and Dan is not next to Ben. List all possible orders and explain how you ruled out the "
            "others.",
            "Eva, Finn, Gita, Hugo and Ida have their birthdays in different months from May to September. Gita's "
            "is in July, Hugo's is in the month right after Eva's, Ida's is neither the first nor the last, and "
            "Finn's comes after Ida's. Who has a birthday in which month? Show the argument.",
            "Someone ate the last piece of cake. Lea says it was Max. Max says it was Nils. Nils says it was not "
            "him, and Ole says the same of himself. Exactly one of the four statements is true. Who ate it, and how "
            "do you know?",
            "Among eight keys that look the same, one is slightly heavier. How can you find it with only two "
            "weighings on a balance? Describe what to do in every case.",
            "A kitchen clock loses four minutes every hour. It was set correctly at noon. What is the true time "
            "when it shows six in the evening? Explain why the obvious answer is wrong.",
            "You have an unmarked seven-litre can, an unmarked four-litre can and a tap. How do you measure exactly "
            "five litres? Give the contents of both cans after each step.",
            "Six guests sit at a round table. Pia and Ravi sit opposite each other, Sol sits beside Pia, Tess "
            "refuses to sit beside Sol, and Uma sits beside Ravi. Where can Vito sit? Go through the cases one by "
            "one.",
            "A drawer holds ten blue, eight grey and six red socks. It is dark. How many socks must I take to be "
            "sure of a pair, of a blue pair, and of one pair in each colour? Justify each number.",
        ),
    ),
    Family(
        "distill",
        (
            "Estimate {quantity}. State each assumption, give a range, and say which assumption matters most.",
            "How would you make a rough back-of-the-envelope calculation of {quantity}? Walk me through it with "
            "numbers.",
        ),
        {
            "quantity": (
                "how many piano tuners could live in a city of two million people",
                "the number of words an average person speaks in a lifetime",
                "how much water a family of four uses for showers in a year",
                "how many tennis balls fit into a school bus",
                "the weight of all the books in a small town library",
                "the daily number of cups of coffee drunk in Vienna",
                "how many trees are needed for one year of newspapers",
                "the electricity that street lamps use in one night in a mid-sized town",
            )
        },
        15,
    ),
    Family(
        "distill",
        (
            "I must decide between {choice}. Think through the costs, the risks and what I would need to know, then "
            "recommend one of them.",
            "Help me reason about this choice: {choice}. Start with what would have to be true for each to be the "
            "right one.",
        ),
        {
            "choice": (
                "repairing a twelve-year-old car for 1,900 euros and buying a used one for 6,500 euros",
                "a fixed-rate mortgage and a variable one when rates have just fallen",
                "taking the night train and flying for a trip of 900 kilometres",
                "renting a small flat near work and a larger one that is an hour away",
                "learning to drive now and waiting until after graduation",
                "hiring one senior engineer and hiring two juniors for the same budget",
            )
        },
        12,
    ),
    Family(
        "distill",
        (
            'Find the flaw in this argument and rewrite it so that it is sound: "{argument}"',
            'Is the following conclusion justified? Name what is missing and suggest a test. "{argument}"',
        ),
        {
            "argument": (
                "Towns with more storks have more births, so storks raise the birth rate.",
                "Everybody I asked at the gym exercises weekly, so most people in the city do.",
                "The new sign went up in May and accidents fell in June, so the sign works.",
                "My grandfather smoked and lived to ninety, so smoking is harmless.",
                "The coin landed on heads six times, so tails is due now.",
                "All the successful founders in this book left university, so leaving university leads to success.",
            )
        },
        12,
    ),
    Family(
        "policy",
        (
            "A gardener plants {n} tulips in rows so that every row has two more than the one before. The first row "
            "has five. How many full rows are there and how many bulbs remain? Explain.",
            "A parking garage charges 2 euros for the first hour and {n} cents for each further half hour, with a "
            "maximum of 14 euros. From which duration on is the maximum reached? Give the calculation.",
            "If {n} identical printers finish a job in six hours, how long do they need when a third of them break "
            "down after two hours? Lay out the solution clearly.",
        ),
        {"n": ("45", "75", "90", "105")},
        10,
    ),
    Family(
        "demo",
        (
            "Three friends share a taxi that costs 54 euros in all. Mara gets out after 6 km, Noel after 12 km and "
            "Oda after 18 km. What is a fair way to split the fare? Describe two methods, compute what each person "
            "pays under both, and say which one you find fairer.",
        ),
    ),
)
