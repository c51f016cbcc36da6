"""More knowledge prompts: explanations, comparisons, beliefs to check and short factual questions."""

from treewise.data.own_prompts.forms import Forms, items, lines

FORMS = (
    Forms(
        lines(
            """
            What is {science}?
            How was {science} discovered or first understood?
            Explain {science} to a ten-year-old.
            Why does {science} matter in everyday life?
            Describe an experiment at home that shows {science}.
            Give a university-level definition of {science} and one worked example.
            What are the open questions about {science}?
            Write study notes on {science} with headings and bullet points.
            What is the relationship between {science} and {science2}?
            """
        ),
        22,
    ),
    Forms(
        lines(
            """
            What caused {history}, and what followed from it?
            Who were the most important people in {history}?
            What was daily life like for ordinary people during {history}?
            Give me a timeline of {history} with five dates.
            How do historians disagree about {history}?
            What can we learn today from {history}?
            """
        ),
        18,
    ),
    Forms(
        lines(
            """
            How do {tech} work?
            Who invented {tech}?
            What are the advantages and disadvantages of {tech}?
            How will {tech} change in the next twenty years?
            What should a beginner know about {tech}?
            Explain in simple terms what {economy} means and give an example with numbers.
            How does {economy} affect a family with two children?
            What is the difference between {economy} and {economy2}?
            What did philosophers say about {idea}?
            Give an argument for and an argument against {idea}.
            What are the symptoms of {health}, and when should I see a doctor?
            What helps against {health}?
            """
        ),
        16,
    ),
    Forms(
        lines(
            """
            How does a(n) {animal} find its food?
            Where do {animal}s live and what threatens them?
            Is it true that a(n) {animal} can live longer than a human?
            What is special about the senses of a(n) {animal}?
            What is the capital of {country} and what is it known for?
            What should a visitor to {country} know about customs and manners?
            Which foods are typical of {country}?
            What language do people speak in {country}?
            What are the three largest cities of {country}?
            What is the climate of {city} like over the year?
            What does a(n) {job} do all day?
            What training do you need to become a(n) {job}?
            How is a(n) {object} made in a factory?
            When was the {object} invented?
            Why do people feel {feeling}?
            """
        ),
        15,
    ),
    Forms(
        lines(
            """
            Is it true that {myth}?
            People say that {myth}. Are they right?
            My uncle insists that {myth}. What should I answer him?
            True or false, with a reason: {myth}.
            What happens in reality if someone believes that {myth}?
            """
        ),
        26,
        {
            "myth": items(
                """goldfish forget everything within seconds; lightning avoids places it has already hit; you must not
                wake a sleepwalker; reading in dim light ruins your eyes; we use a tenth of our brain; bulls get
                angry at the colour red; hair grows back thicker after shaving; sugar makes children wild; cold
                weather gives you a cold; ostriches bury their heads; bats cannot see anything; coffee stunts
                growth; cracking your knuckles causes arthritis; swallowed gum stays in the stomach for years; the
                seasons come from the distance to the sun; the Great Wall can be seen from the moon; vitamin C cures
                a cold; carrots let you see in the dark; you can catch warts from toads; water drains the other way
                round south of the equator; Napoleon was extremely short; Vikings wore horned helmets; Einstein
                failed at mathematics; diamonds are made from coal; glass is a slow liquid; a penny dropped from a
                tower can kill; humans have exactly five senses; bananas grow on trees; camels store water in their
                humps; dogs see only black and white; microwaves make food radioactive; a full moon changes how
                people behave; chameleons change colour to hide; eating before swimming is deadly; alcohol keeps you
                warm; your blood is blue inside your body; tomatoes are vegetables; spiders crawl into sleeping
                mouths; you need eight glasses of water a day; the tongue has separate zones for each taste; turning
                a computer off every night damages it; natural products are always safer; mobile phones cause fires
                at petrol stations; mice love cheese most; private browsing makes you invisible; more megapixels
                always mean better photos; a black cat brings bad luck; breaking a mirror brings seven bad years;
                lie detectors are reliable; people in the Middle Ages thought the earth was flat; owls are wise;
                elephants fear mice"""
            )
        },
    ),
    Forms(
        lines(
            """
            What happens if you {deed}?
            Is it safe to {deed}?
            Why should or shouldn't you {deed}?
            """
        ),
        26,
        {
            "deed": items(
                """swallow an apple seed; mix bleach and vinegar; look at the sun through a telescope; eat only
                potatoes; leave a phone charging overnight; stay awake for three days; drink sea water; put metal in
                a microwave; freeze a bottle of soda; touch an electric fence; eat raw dough; shake a bee hive;
                sleep next to a plant; walk under a ladder; wash jeans in hot water; drive with the handbrake on;
                plant a coconut in a cold country; feed bread to ducks; mix two kinds of engine oil; fold a paper
                more than seven times; hold in a sneeze; take a cold shower every morning; open a window in a
                thunderstorm; water plants at noon; delete a system folder; read without glasses; eat spicy food
                every day; skip breakfast; stand on a scale in a lift; shave a cat"""
            )
        },
    ),
)
