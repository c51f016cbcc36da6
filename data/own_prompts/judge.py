"""Prompts that policies are judged on: each stands alone, none shares a template or a passage with another split."""

from treewise.data.own_prompts.family import Family

_TEXTS: dict[str, tuple[str, ...]] = {
    "knowledge": (
        "Why is the sky dark at night if there are stars in every direction?",
        "What are the duties of a notary, and in which situations would an ordinary person need one?",
        "Tell me how sourdough bread rises without any packaged yeast.",
        "Which gases make up the air that we breathe, and what is each of them good for?",
    ),
    "reasoning": (
        "A train leaves at 9:40 and arrives at 13:15 with two stops of ten minutes each. How long is it "
        "moving? Show your steps.",
        "Three boxes hold red, green and mixed marbles, and every label is wrong. You may draw one marble "
        "from one box. Which box do you draw from, and how do you fix the labels?",
        "My plan costs 12 euros a month plus 5 cents a minute; my friend's costs 20 euros with no extra "
        "charge. From how many minutes a month is my friend's plan cheaper?",
        "If all bakers in Lorne get up early, and nobody who gets up early likes loud music, can a baker in "
        "Lorne like loud music? Explain the argument step by step.",
    ),
    "creative": (
        "Write the opening paragraph of a mystery novel in which the detective is a retired gardener.",
        "Compose a short lullaby about a lighthouse and a sleepy whale.",
        "Invent a holiday for people who are always late, and describe how it is celebrated.",
        "Write a dialogue between a teapot and a coffee machine who share a kitchen shelf.",
    ),
    "structured": (
        "Write a Python class `Stack` with push, pop, peek and a length, and a few lines that show how it is used.",
        "Give me a JSON object for a library member: name, address, a list of borrowed books with due dates, and fees.",
        "Write an SQL query that lists, for each customer, the number of orders and the date of the latest one.",
        "Make a Markdown table that compares bicycle, bus and car for a five kilometre commute: time, cost, comfort.",
    ),
    "instruction": (
        "List exactly five house rules for a shared office. Start every rule with a verb and keep it under ten words.",
        "Explain recursion in three paragraphs: the first for a child, the second for a student, the third "
        "for an expert. Do not use the word 'function'.",
        "Rewrite this so that it is polite, in two sentences, without exclamation marks: 'Send me the report "
        "now! I have been waiting for days!'",
        "Give me a packing list for a week of winter hiking, grouped by category, at most four items in each group.",
    ),
    "translation": (
        "Translate into Spanish: 'The museum closes at six, but the garden stays open until sunset during the summer.'",
        "How do you say in German: 'I would like to change my appointment to next Thursday afternoon'? Give a"
        " formal and an informal version.",
        "Translate this Italian sentence into English: 'Domani mattina prendiamo il traghetto per l'isola e "
        "torniamo prima di cena.'",
        "Please put this into French: 'Mix the flour with the butter, add the eggs one by one, and let the "
        "dough rest for an hour.'",
    ),
    "summarization": (
        "Summarize in two sentences: The harbour of Quelm was rebuilt after the storm of 1962. Engineers "
        "raised the quay by a metre, moved the fish market uphill and planted a belt of pines against the "
        "wind. The work took eleven years because money ran out twice. Today the pines are taller than the "
        "market hall, and old photographs of the bare shore surprise the visitors who come for the summer "
        "regatta.",
        "What is the main point of this notice? From the first of March, parcels that do not fit the boxes at"
        " the entrance are no longer left with neighbours. The carrier takes them to the kiosk in Mill Lane, "
        "where they can be fetched for seven days between eight and eight. Please bring the card from your "
        "letter box and an identity document. Parcels that nobody fetches go back to the sender.",
        "Shorten this e-mail to three bullet points: Hello all, the new heating was installed on Friday and "
        "seems to work well, though the second floor was still cold this morning. The technician comes back "
        "on Wednesday to balance the valves, so please leave your office doors unlocked. Also, the coffee "
        "machine is finally repaired, and the old one may be taken home by whoever asks first.",
        "Give a one-paragraph summary for a newspaper: In a trial with two hundred volunteers, people who "
        "wrote down three tasks for the next day before going to bed fell asleep nine minutes sooner on "
        "average than people who wrote about finished tasks. The longer and more concrete the list, the "
        "larger the difference. The researchers caution that the volunteers were young and healthy and that "
        "only one night was measured.",
    ),
    "rag": (
        "Use only this text to answer. Text: 'The Ostrel ferry runs every forty minutes from April to October"
        " and every two hours in winter. Bicycles travel free, dogs need a ticket of two crowns.' Question: "
        "What does it cost to take a dog and a bicycle along in July, and how often does the ferry leave?",
        "Document 1: The pump P-7 must be oiled every 400 hours. Document 2: The pump P-9 is sealed for life "
        "and must not be opened. Document 3: Pumps bought before 2015 carry a red plate. Question: A pump "
        "with a red plate is marked P-9. What maintenance does it need? Cite the documents.",
        "According to the passage, who may use the archive? 'The town archive of Belhaven is open to "
        "residents on Tuesdays. Scholars with a letter of introduction are admitted on every working day. "
        "Photography is allowed without flash; maps may only be seen in the presence of the archivist.'",
        "Read the minutes and answer: who is to do what until when? 'Ines reported that the tent is torn; she"
        " will ask for a price by Monday. Paul books the hall as soon as the date is fixed. The date is to be"
        " fixed by Samira before the end of the month.'",
    ),
    "chat": (
        "I just adopted a cat and she hides under the bed all day. Is that normal, and what can I do?",
        "Hey, can you recommend three board games for four adults who do not like long rules?",
        "I have a job interview by video tomorrow and my flat is noisy. Any tips?",
        "What would be a good way to thank the nurses who looked after my father?",
    ),
}

FAMILIES: dict[str, tuple[Family, ...]] = {task: (Family("judge", texts),) for task, texts in _TEXTS.items()}
