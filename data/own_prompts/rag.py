"""Rag: questions that must be answered from a given passage."""

from treewise.data.own_prompts import passages
from treewise.data.own_prompts.family import Family

FAMILIES = (
    Family(
        "distill",
        (
            "Use only the following text to answer the question.\n\nText: {passage}\n\nQuestion: Which numbers are "
            "mentioned in the text, and what does each of them stand for?",
            "{passage}\n\nBased on the passage above, what problems or limits are mentioned, and how are they dealt "
            "with?",
            "Context:\n{passage}\n\nWhat are the three most important facts here for somebody who has never heard "
            "of this? Quote the words that support each of them.",
            "Here is a document:\n\n{passage}\n\nWrite five questions that this document answers, each followed by "
            "its answer.",
            "Answer from the context only; say so if the context does not contain the answer.\n\nContext: "
            "{passage}\n\nQuestion: What changed over time, why did it change, and who paid for it?",
            'I found this text:\n\n"{passage}"\n\nCan you tell me who is involved or affected and what each of them '
            "has to do?",
            "Read the passage and explain in your own words how the described thing works, step by "
            "step.\n\nPassage: {passage}",
        ),
        {"passage": passages.RAG_DISTILL},
    ),
    Family(
        "distill",
        (
            "Passage: {passage}\n\nA friend claims that everything about this is simple and without drawbacks. "
            "Reply to the friend, using evidence from the passage.",
        ),
        {"passage": passages.RAG_DISTILL},
    ),
    Family(
        "policy",
        (
            "Source: {passage}\n\nWhich rules apply according to the source? Give the sentence that states each one.",
            "Consider this excerpt.\n\n{passage}\n\nWhat is the most surprising detail, and how does it fit with "
            "the rest?",
            "{passage}\n\nUsing the information given, draft a reply to a person who asks whether to go there or "
            "buy it.",
            "Extract every limit, duration and amount from this text, one a line with its meaning.\n\n{passage}",
            "Text:\n{passage}\n\nQ: What would be different if the conditions described did not hold? Stay close to "
            "the text.",
        ),
        {"passage": passages.RAG_POLICY},
    ),
    Family(
        "demo",
        (
            "Answer the question with the help of the text and name the sentences that you rely on.\n\nText: "
            "{passage}\n\nQuestion: Was the change a good investment for the town, and what side effects did it "
            "have?",
        ),
        {"passage": (passages.RAG_DEMO,)},
    ),
)
