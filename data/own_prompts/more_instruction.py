"""More instruction prompts: constraints that can be checked, edits, classification, lists, letters, plans, how-to."""

from treewise.data.own_prompts.forms import Forms, items, lines

FORMS = (
    Forms(
        lines(
            """
            {act} {matter}. {rule}
            {act} {matter}. {rule} {rule2}
            {rule} {act} {matter}.
            {act} {matter} for {reader}. {rule}
            {act} {matter}. {rule} {rule2} {rule3}
            """
        ),
        44,
        {
            "act": items(
                """Write a paragraph about; Write an essay about; Write a riddle about; Write an email about; Write a
                poem about; Give me advice on; Write a blog post about; Explain; Write a rubric for; Write an
                advertisement for; Draft a speech about; Write a letter to a friend about; Write a summary of what
                people know about; Write a dialogue about; Give two opinions on; Write a list of questions about;
                Tell me about"""
            ),
            "matter": items(
                """the first day in a new school; a lost suitcase; winter in the mountains; cooking for one; a broken
                promise; the use of phones at dinner; a trip by night train; growing old; the price of bread;
                neighbours who sing; sleep; a garden on a roof; learning to drive; saving water; the best season;
                moving house; small lies; a street market; the sound of rain; remote work; fear of heights; a family
                recipe; sharing a flat; the moon; public libraries; a slow computer; wild animals in cities;
                birthdays; team sports; keeping a diary; bridges; second-hand clothes; a surprise visit; learning
                from mistakes; a city without cars; online reviews; honey; the history of chess; a power cut; making
                friends; a job interview; the desert; handwriting; old maps"""
            ),
            "rule": lines(
                """
                Use exactly four sentences.
                Use fewer than 60 words.
                Write at least 200 words.
                Do not use any commas.
                Write everything in lower case.
                Answer in capital letters only.
                End with the words "and that is all there is to it".
                Put the whole answer in quotation marks.
                Include the word "river" at least three times.
                Avoid the words "very", "good" and "nice".
                Use three bullet points that begin with an asterisk.
                Give it a title in double angular brackets, such as <<title>>.
                Add a postscript that begins with P.S.
                Split the text into three sections, marked Section 1 to Section 3.
                Separate two paragraphs with three asterisks.
                Highlight two phrases with *asterisks*.
                Leave two gaps in square brackets, such as [name].
                Begin the second paragraph with the word "However".
                Do not use the letter "z" anywhere.
                Repeat my request word for word before you answer.
                Use the letter "q" no more than twice.
                Finish with a question.
                Begin every sentence with the same letter.
                Give the answer as a JSON object with the keys "title" and "text".
                Write it in two languages: English first, then Spanish.
                Mention at least two numbers.
                Use no word longer than eight letters.
                Number every sentence.
                Offer two different versions, separated by six asterisks.
                """
            ),
            "reader": items(
                """teenagers; a busy manager; small children; experts; tourists; people who dislike reading; my
                grandmother; new colleagues; a landlord; an angry customer; students of law; beginners; sceptics; a
                newspaper"""
            ),
        },
    ),
    Forms(
        lines(
            """
            {edit}¶¶{text}
            {edit} "{text}"
            """
        ),
        70,
        {
            "edit": lines(
                """
                Correct the grammar and spelling of the following text.
                Rewrite this more politely.
                Shorten this to one sentence.
                Turn this into a formal announcement.
                Rewrite this from the point of view of another person.
                Replace every adjective by its opposite.
                Put this text into the past tense.
                Change the tone to humorous.
                Which feeling does the writer express? Answer with one word, then explain.
                Is this text positive, negative or neutral? Give your reason.
                List all nouns in this text.
                Make a headline for this text.
                Expand this into a paragraph of six sentences.
                Ask three questions that this text leaves open.
                Rewrite this as a conversation between two people.
                Simplify this for someone who is learning English.
                Extract names, places and times as a JSON object.
                Split this into a list of separate facts.
                Turn this into a social media post with two hashtags.
                Rewrite this in the style of a fairy tale.
                """
            ),
            "text": lines(
                """
                The meeting was suppose to start at nine but nobody have the key, so we waits in the corridor for an \
                  hour.
                I ordered a blue jacket in size M two weeks ago and received a green one in size S, and your hotline \
                  never answers.
                On Saturday, Nora and Till took the ferry from Harlow to the island and came back at six, wet and happy.
                The new update made the app slower, the buttons are tiny now, and my playlists are gone. Two stars.
                our town need more bench, because old peoples can not walk from the market to home without a rest
                After the storm, volunteers cleared the beach path in four hours; the mayor thanked them with soup.
                The hotel room was small but spotless, the breakfast was generous, and the lady at the desk knew \
                  every bus.
                Me and him was going to the cinema when it begun to rain, so we runned back and watched a old film \
                  at home.
                The council will vote on Tuesday on whether the swimming pool in Weir Lane stays open through the \
                  winter.
                My grandfather mends clocks. He says that a clock which stops is only asking for company.
                We regret to inform you that the course on beekeeping is full; a second one begins on the third of May.
                The soup came cold, the waiter laughed, and still I would go back for the bread.
                Sales in the north rose by 12 percent in spring, while the south lost 5 percent after two shops had \
                  closed.
                Send me the figures today. I asked twice. This is not acceptable and you know it.
                Ada parked the van behind the bakery at 5 a.m. and found three kittens asleep on the warm bonnet.
                The experiment failed because the sensor was wet, the notes were lost, and nobody had checked the \
                  battery.
                Lena told Paul that she would have left the job long before if the team had not been so kind.
                Yesterday the museum have opened it's new wing, their is a room where childrens can touch everything.
                The bridge is closed for repairs until October, so cyclists must follow the yellow signs along the \
                  canal.
                I was happy about the gift at first, but the longer I look at it, the more I think it was meant for \
                  someone else.
                """
            ),
        },
    ),
    Forms(
        lines(
            """
            Write a letter to a(n) {job} to ask for help with {matter}.
            Write a cover letter for a job as a(n) {job}.
            Write a short message that cancels {event} without giving the real reason.
            Write a complaint about {product} that arrived broken.
            Write a reference for a(n) {job} who is leaving after five years.
            Make a plan for {event} with a schedule and a budget of {200..900/100} dollars.
            Make a checklist for {event}.
            Write an outline of a talk about {tech} with five slides.
            Write the table of contents of a book about {hobby}.
            Write a recipe for {food} with ingredients and numbered steps.
            How do I make {food} without an oven?
            Replace the unhealthy ingredients in {food} and explain each change.
            Plan meals for {3..7} days around {food}.
            Make a training plan of {4..10} weeks for {hobby}.
            Write a lesson plan on {science} for pupils aged {9..16}.
            Write five quiz questions about {history} with answers.
            Write three multiple-choice questions on {science} and mark the right options.
            Suggest {5..9} interview questions for a(n) {job}.
            List {4..10} things you can do with a(n) {object} besides its usual purpose.
            List ten words that come to mind with {feeling} and sort them by strength.
            Sort these into groups and name the groups: {food}, {animal}, {object}, {food2}, {animal2}, {object2}.
            Which of these does not belong, and why: {city}, {city2}, {country}, {city3}?
            Write a user manual of one page for {product}.
            Write frequently asked questions for {product}.
            Describe {product} in one sentence, then in fifty words.
            Suggest a title, a subtitle and three keywords for an article about {issue}.
            Write a pros and cons list about {issue}, then decide.
            Write a short debate about {issue} between a(n) {job} and a(n) {job2}.
            Create an itinerary of {2..6} days in {city} for a(n) {job} on holiday.
            Create a dialogue in a shop where someone returns a(n) {object}.
            """
        ),
        10,
        {
            "matter": items(
                """a noisy heating system; a school project; a parking fine; a lost document; an old photograph; a
                leaking roof; a strange bill; a sick tree; a wedding cake; a speech; a broken window; a tax form; a
                family tree; a visa"""
            )
        },
    ),
    Forms(
        lines(
            """
            How do I {task} in {tool}?
            My {tool} stopped working after an update. What should I check first, in which order?
            Explain the most common mistakes beginners make with {tool}.
            Compare {tool} with {tool2} for a team of {2..9} people.
            How can a company move from {tool} to {tool2} without losing data?
            Write a short tutorial for {tool}: the first {3..7} steps after installing it.
            Design a system that {system}. Name the parts, the data they keep and the weak points.
            Design a system that {system} for {1..9} million users. What breaks first?
            What tests would you write for software that {system}?
            """
        ),
        14,
        {
            "task": items(
                """undo the last change; import a large file; share my work with others; find out why it is slow; make
                a backup; rename many things at once; restrict access for one person; run a job every night; search
                for a pattern; draw a chart of two columns; connect to another program; read an error log; clean up
                old data; write a test"""
            ),
            "system": items(
                """shortens web addresses; books seats in a cinema; counts visitors of a museum; warns of frost in
                vineyards; sends reminders to patients; matches tutors with pupils; tracks parcels; detects leaks in
                water pipes; plans the routes of snow ploughs; plays music in many rooms; lends bicycles; scores
                quiz games live; stores photographs of a whole family; checks homework for copied text; measures
                noise in a city"""
            ),
        },
    ),
)
