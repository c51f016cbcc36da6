"""Structured: code functions, JSON documents, SQL queries and tables."""

from treewise.data.own_prompts.family import Family

FAMILIES = (
    Family(
        "distill",
        (
            "Write a {language} function that {job}. Add a short docstring and handle empty input.",
            "Implement in {language}: a function that {job}. Then show three example calls with their results.",
            "Please write clean {language} code for a function that {job}, followed by unit tests for the edge cases.",
        ),
        {
            "job": (
                "merges overlapping intervals",
                "finds the longest common prefix of a list of strings",
                "counts words in a text and returns the ten most frequent",
                "rotates a square matrix by 90 degrees",
                "checks whether brackets in a string are balanced",
                "groups a list of records by a key",
                "converts Roman numerals to integers",
                "computes a moving average over a window",
                "validates an email address without a regular expression",
                "flattens a nested list of any depth",
                "finds the shortest path in a grid with obstacles",
                "removes duplicates while keeping the order",
                "formats a number of bytes as human-readable text",
            ),
            "language": ("Python", "Python", "JavaScript", "Rust", "Go", "TypeScript"),
        },
        32,
    ),
    Family(
        "distill",
        (
            "Return a JSON document that describes {thing}. Use the fields id, name, description, tags (a list), "
            "details (an object with at least four fields) and created_at. Output JSON only.",
            "Produce a JSON array with five realistic but invented records of {thing}. Each record has an id, a "
            "title, a price or number, a nested object and a list. No text outside the JSON.",
            "Write a JSON Schema for {thing} and then one example document that satisfies it.",
        ),
        {
            "thing": (
                "a library book",
                "a hotel booking",
                "a weather station reading",
                "a recipe",
                "a bus timetable entry",
                "a patient appointment",
                "a music playlist",
                "a warehouse delivery",
            )
        },
        16,
    ),
    Family(
        "distill",
        (
            "Given the tables customers(id, name, city), orders(id, customer_id, placed_on) and items(order_id, "
            "product, quantity, price), write an SQL query that returns {report}. Explain each clause briefly.",
        ),
        {
            "report": (
                "the total revenue per city for the last year",
                "the customers who never ordered anything",
                "the three best-selling products in each month",
                "the average order value per customer, highest first",
                "the customers who ordered in January but not in February",
                "each order with the running total per customer",
                "the cities with more than ten orders of over 100 euros",
            )
        },
    ),
    Family(
        "distill",
        (
            "Make a Markdown table that compares {items}, with one row each and columns for strengths, weaknesses, "
            "typical cost and best use.",
            "List the key data of {items} as CSV with a header line and a suitable set of six columns.",
        ),
        {
            "items": (
                "five kinds of home heating",
                "six programming languages",
                "the planets of the solar system",
                "five common woods for furniture",
                "four ways to travel across a city",
                "six kinds of cheese",
                "five database systems",
            )
        },
        13,
    ),
    Family(
        "policy",
        (
            "Define a Python class that models {model}, with type hints, a sensible constructor and two methods.",
            "Sketch the YAML configuration of {model}, with comments on every key.",
        ),
        {
            "model": (
                "a vending machine",
                "a chess clock",
                "a lift with three floors",
                "a coffee roasting profile",
                "a tournament bracket",
            )
        },
        10,
    ),
    Family(
        "demo",
        (
            'Write a Python function `parse_duration(text: str) -> int` that turns strings such as "1h 30m", '
            '"45s" or "2d 4h" into seconds. Raise ValueError with a helpful message for anything else, '
            "and add a docstring and four doctest examples.",
        ),
    ),
)
