"""More prompts of several parts: roles with rules, tasks with a follow-up, documents to answer from, small data."""

from treewise.data.own_prompts.forms import Forms, items, lines
from treewise.data.own_prompts.more_rag import FACTS

CREATIVE = (
    Forms(
        lines(
            """
            From now on you are a(n) {job} with {3..30} years of experience. {manner} {limit} Here is my case: {case}
            You will be my {guide}. {manner} {limit} Begin with this: {case}
            Let us play a game. You are {figure}, I am a(n) {job}. {manner} You speak first.
            I would like you to be {figure} for this conversation. {limit} My question: what do you think of {issue}?
            Play a(n) {job} who is asked by a child about {science}. {manner}
            Two characters, {figure} and a(n) {job}, are stuck in {place}. Write what they say to each other. {limit}
            Write the beginning of a story about {figure}, then a second ending in which {feeling} plays a part.
            Write about {small_thing} in the voice of {figure}.
            Write a review of a concert by {figure}.
            Draw up the rules of a club for {figure} and friends.
            """
        ),
        15,
        {
            "guide": items(
                """travel guide; language partner; rival in a debate; writing coach; cook; fitness coach; financial
                adviser; gardening expert; personal shopper; interviewer; teacher of logic; museum guide; film
                critic; editor; mentor"""
            ),
            "manner": items(
                """Be brief.; Ask one question at a time.; Stay in the role whatever I say.; Use simple words.; Be
                sceptical.; Never mention that you are a program.; Use a dry sense of humour.; Answer with a list.;
                Encourage me.; Give an example each time.; Explain your reasons.; Speak like a sailor.; Be strict
                but kind."""
            ),
            "limit": items(
                """Use at most 80 words.; Do not give legal advice.; Write no code.; End with a question.; Only reply
                in the role.; Avoid technical terms.; Offer three options.; Say so when you are not sure.; Put the
                most important thing first."""
            ),
            "case": items(
                """"I want to sell my old {object} for a good price."; "My neighbour plays the trumpet at night."; "I
                have to give a speech about {issue}."; "My plants die every summer."; "I eat too much in the
                evening."; "I am afraid of {city} traffic."; "I would like to cook {food} for ten people."; "My son
                hates reading."; "I want to learn {hobby} in a month."; "We have two days in {city} and very little
                money."; "My boss wants a report about {economy}."; "I keep losing at chess."; "I need a present for
                a(n) {job}."; "My essay on {history} is too long."; "I feel {feeling} when I am alone."; "My
                {object} is broken again.\""""
            ),
            "figure": items(
                """a retired pirate; a tired superhero; the last dragon; a time traveller from 1890; a vain parrot; a
                polite ghost; a robot that collects stamps; the owner of the moon; a cat with a driving licence; a
                forgetful wizard; a lighthouse keeper; an honest fox; a talking suitcase; a queen without a country;
                a very old tree; a spy who cannot lie; a weather god on holiday; a penguin in the desert; a
                detective of thirteen"""
            ),
        },
    ),
)

INSTRUCTION = (
    Forms(
        lines(
            """
            First describe {object_} in two sentences. Then rewrite the description without any adjectives.
            Write three sentences about {history}, one from each of these views: a(n) {job}, a child, a historian.
            Compose an email to a(n) {job} about {event}. Then list what information is still missing in it.
            Decide for each item whether it is alive, and give the reason: {animal}, {object}, {food}, {animal2}.
            Rank these by weight, from light to heavy: {animal}, {object}, {animal2}, {object2}.
            Complete the sentence in five ways: "Since I began with {hobby}, ..."
            Find a word that fits with all three: {object}, {animal}, {city}. Explain.
            Turn these notes into a text: {city}; {job}; {object}; rain; {feeling}; end in laughter.
            Use these words in one paragraph, each once: {object}, {animal}, {feeling}, {food}.
            Write a sentence of exactly {7..15} words about {hobby}. Then one with {4..6} words.
            Give me a metaphor, a comparison and a hyperbole for {feeling}.
            Suggest three research questions about {issue} and a method for each.
            Write an abstract of 100 words for an invented study on {issue}.
            Write an acceptance speech for the "best {job} of {city}" prize.
            Explain {economy} with a comparison from {hobby}.
            Explain {tech} to a(n) {job} who has never used it.
            Explain how {science} and {tech} are connected.
            What would the world be like without {science}? Name five consequences in order.
            Here is a list: {food}, {food2}, {food3}. Add a fourth one that fits, and say what they have in common.
            Name the tone of this sentence and rewrite it in the opposite tone: \
              "Of course the {object} broke on Monday."
            Make an agenda of one hour for a meeting about {issue}, with times.
            Draft a contract clause about the lending of a(n) {object}.
            Write instructions so that a robot can use a(n) {object}.
            Write safety rules for {hobby} in capital letters.
            Fill the gaps: The ___ of {city} bought a(n) {object} because ___, but the {animal} ___.
            """
        ),
        11,
        {
            "object_": items(
                "a kettle; a bridge; an orchard; a market stall; a key; a "
                "ferry; a snowman; a chess set; a well; a stage"
            )
        },
    ),
)

RAG = (
    Forms(
        (
            "Answer from these notes and name the note you used.\n\n[1] {note}\n[2] {note2}\n[3] {note3}\n\n{wish}",
            "Search results:\n1. {note}\n2. {note2}\n3. {note3}\n4. {note4}\n\n{wish}",
            "{note} {note2} {note3}\n\n{wish}",
        ),
        45,
        {
            **FACTS,
            "note": lines(
                """
                The library of {town} opens at {8..11} and closes at {17..21}, but on {day} it stays shut.
                {person} {surname} has been mayor of {town} since {1998..2021} and was a(n) {job} before.
                The bridge in {town} is {80..900/20} metres long and was paid for by {people}.
                In {month}, boats leave every {20..60/10} minutes; the trip costs {4..19} euros.
                The recipe for {food} from {town} needs {2..6} eggs and no butter.
                The oldest tree in {town} is {200..900/50} years old and stands behind the {building}.
                {firm} sells {product} in {4..30} countries; most buyers are {job}s.
                A(n) {animal} was last seen near {town} in {1950..2020}, {time}.
                The museum shows {30..400/10} kinds of {object}, given by a(n) {job} from {city}.
                Visitors of the {route} trail need {2..9} hours and should not go alone because of {reason}.
                The {building} of {town} burned down in {1700..1900} and was rebuilt with {good} from {country}.
                {Person} wrote a song about {town} that every child in {country} can sing.
                The school of {town} teaches {hobby} and {hobby2} on {day} afternoons.
                The village of {town} makes its own electricity from {tech} and sells the rest to {city}.
                """
            ),
            "wish": items(
                """What do the notes say about {town}?; Which of the places is the oldest?; Who is mentioned by name?;
                List every number with what it stands for.; Which note is about money?; Plan a day trip from these
                notes.; Which facts would interest a(n) {job}?; Is anything said about {food}?; Which statement
                seems least likely? Why?; Summarise the notes in two sentences.; Write three quiz questions that the
                notes answer.; What is missing if someone wants to travel there?"""
            ),
        },
    ),
)

REASONING = (
    Forms(
        lines(
            """
            {person} has {30..80/5} minutes. Packing one of the {goods} takes {4..9} minutes. How many can be \
              packed, and how much time is left?
            A jar holds {40..90} red and {20..60} blue beads. {person} takes out {5..15} of each. What share of the \
              rest is red?
            {person} walks {3..9} km on the first day and {1..3} km more on each following day. How far is it in \
              {4..7} days?
            A cinema has {10..25} rows of {12..30} seats. {60..200/10} seats are taken. How many are free?
            A printer needs {2..6} seconds a page. How many minutes do {90..600/30} pages take on {2..4} printers?
            {person} buys {goods} worth ${12..60} and {goods2} worth ${10..40} with a voucher of {10..25/5} percent. \
              What is to be paid?
            {person} mixes {200..600/50} ml of juice with {2..4} times as much water. How many glasses of 250 ml can \
              be filled?
            A plant of {10..40} cm grows {2..7} cm a week. After how many weeks is it taller than {60..120/10} cm?
            {person}, {person2} and {person3} share ${60..300/30} in the ratio 1:2:3. How much does each of them get?
            A lift carries {400..800/100} kg. How many people of {65..85/5} kg may enter with {2..6} boxes of \
              {15..30/5} kg?
            Every {3..5} minutes a tram leaves, every {6..9} minutes a bus. Both leave at {7..11}:00. When do they \
              next leave together?
            {person} scored {60..95}, {60..95} and {60..95} points in three tests. What is needed in the fourth for \
              an average of 80?
            A clock loses {2..9} minutes a day. After how many days is it wrong by one hour?
            {person} sold {15..60} {goods} in the morning, a third of that at noon and {5..20} in the evening at \
              ${2..6} each. What was the income?
            A field of {100..400/50} by {60..120/20} metres is divided into plots of {20..50/10} square metres. How \
              many plots are there?
            """
        ),
        13,
        {
            "goods": items(
                """lamps; baskets; scarves; puzzles; melons; bowls; pies; jars of honey; tickets; plants; shirts;
                books; lanterns; kites; cups; boxes of tea; necklaces"""
            )
        },
    ),
)
