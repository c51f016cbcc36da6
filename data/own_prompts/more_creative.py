"""More creative prompts: stories, poems, roles to play, dialogues, slogans, scripts and letters."""

from treewise.data.own_prompts.forms import Forms, items, lines

FORMS = (
    Forms(
        lines(
            """
            Write a short story about a(n) {job} who finds a(n) {object}.
            Write a story that takes place in {place} and begins with the sound of a(n) {object}.
            Write a fairy tale in which a(n) {animal} helps a(n) {job}.
            Tell a story in five sentences about {feeling} and a(n) {object}.
            Continue this story: The door of the house opened, and a(n) {animal} walked in carrying a(n) {object}.
            Write a scene between a(n) {job} and a(n) {job2} who meet in {place}.
            Describe {place} with all five senses.
            Write the first page of a crime novel set in {place}.
            Write the diary entry of a(n) {animal} on a rainy day.
            Write a monologue of a(n) {object} that has not been used for years.
            Invent a legend that explains why the {animal} behaves as it does.
            Write a letter from a(n) {job} to a younger self.
            Write a story with a surprising ending about {small_thing}.
            """
        ),
        20,
    ),
    Forms(
        lines(
            """
            Write a poem about {small_thing}.
            Write a haiku about {small_thing}.
            Write a limerick about a(n) {job}.
            Compose a sonnet on {feeling}.
            Write a rap verse about {food}.
            Write a song with two verses and a chorus about {small_thing}.
            Write a poem of four lines in which every line ends with the same sound, about a(n) {animal}.
            Write an ode to {food}.
            Write a nursery rhyme about a(n) {animal} and a(n) {object}.
            Write a free verse poem that compares {feeling} to {small_thing}.
            """
        ),
        17,
    ),
    Forms(
        lines(
            """
            I want you to play a(n) {job}. I will be the customer. My first sentence is: "{line}"
            Pretend to be a(n) {job} and answer in that voice only. "{line}"
            You are a grumpy {job}. Stay in character. User: {line}
            Be my {hobby} coach. Ask me questions and give one piece of advice at a time. Let us begin.
            Act like a storyteller who knows {history}. Tell me one evening's tale.
            Take the role of a debate coach; today's motion is about {issue}. Begin with the opening speech.
            Speak as if you were the city of {city} itself. What have you seen this year?
            You are the narrator of a text adventure in {place}. Describe the first room and wait for my command.
            Play an interviewer for the position of a(n) {job} and put the first question to me.
            Imagine you are a(n) {animal} giving a press conference about {issue}.
            """
        ),
        17,
        {
            "line": items(
                """I think something is wrong with my order.; How much will this cost me?; Can you fix it before
                Friday?; I have never done this before.; My friend told me you are the best in town.; What would you
                do in my place?; I am afraid it is too late.; Why is this so complicated?; Could you show me how it
                works?; I only have ten minutes.; Is there a cheaper way?; I would like to complain about last
                week.; Tell me how you started in this job.; What was your worst day?; I need a second opinion."""
            )
        },
    ),
    Forms(
        lines(
            """
            Write a slogan and a short advertisement for {product}.
            Invent five names for a shop that sells {food}.
            Write a radio spot of thirty seconds for {product}.
            Write a funny review of {product} by someone who misunderstood what it is for.
            Write a speech for {event}.
            Write an invitation to {event} in rhymes.
            Write a podcast script about {issue} for two hosts.
            Write a blog post about {hobby} for beginners.
            Write a travel report about a week in {country}.
            Write a news article from the year 2090 about {tech}.
            Write a dialogue between {tech} and {tech2} about who is more useful.
            Write a film plot about {history} as a comedy.
            Describe a painting called "{feeling}" that does not exist.
            Write a eulogy for a(n) {object}.
            Write a horoscope for a(n) {job}.
            Make up a new sport that combines {hobby} and {hobby2}, with rules.
            Write a thank-you letter to a(n) {job}.
            Write an apology from a(n) {animal} to a(n) {animal2}.
            """
        ),
        13,
    ),
)
