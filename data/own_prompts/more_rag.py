"""More questions over a passage: own passages whose facts are drawn, in English and other languages."""

from treewise.data.own_prompts.forms import Forms, items, lines

_ASK = (
    "Read the passage and answer the question.\n\n{passage}\n\nQuestion: {question}",
    "{passage}\n\nUsing only the text above: {question}",
    "Context: {passage}\n\nUser question: {question}\nIf the context does not say it, say so.",
)
_PASSAGES: tuple[tuple[str, str], ...] = (
    (
        """The town of {town} was founded in {1400..1850} by {people} who came down the river looking for {good}. By
        {1860..1890} it had {2000..9000/500} inhabitants and its own newspaper, but a flood destroyed the lower streets
        and the {building} was rebuilt on the hill. Today most people in {town} work in {trade}, and the old {building}
        houses a museum that is open on {day}.""",
        """When was {town} founded?
        Who founded {town}, and why did they come?
        Why was the {building} rebuilt on the hill?
        What do most people in {town} do today?
        On which day can the museum be visited?
        How many people live in {town} today?""",
    ),
    (
        """The {animal} described by {person} {surname} in {1820..1930} is known from only {2..9} places. It feeds
        mainly on
        {diet} and is active {time}. Females raise {2..6} young a year, usually in {home}. Numbers have fallen since
        {1960..2005/5} because {threat}, and a breeding programme in {city} has released {20..90/10} animals so far.""",
        """What does this animal eat?
        Why have the numbers fallen?
        Who described the animal first?
        How many animals has the breeding programme released?
        Where does the female raise her young?
        At what time of day would you have to look for it?
        How long does it live?""",
    ),
    (
        """{person} {surname} started the company {firm} in {city} in {1970..2015} with {2..12} employees. Its first
        product,
        {product}, sold badly until a {job} praised it on the radio. In {2016..2022} the company moved to a larger \
          building,
        and it now employs {120..900/20} people, a third of them in {country}. Its greatest problem, according to \
          the founder,
        is {problem}.""",
        """What was the first product of {firm}?
        What made the first product successful?
        How many people does {firm} employ now?
        What does the founder see as the greatest problem?
        In which country does a third of the staff work?
        Who owns {firm} today?""",
    ),
    (
        """The {route} line connects {city} with {town} in {2..6} hours and {10..50/10} minutes. Trains leave every
        day at
        {6..11}:{10..50/10} and return at {15..20}:15. Bicycles cost {3..9} euros extra and must be booked two days \
          ahead;
        dogs travel free if they fit into a basket. Between {month} and {month2} the last section is closed because of
        {reason}, and buses run instead.""",
        """How long does the journey take?
        What must passengers with bicycles do?
        Under which condition do dogs travel free?
        Why do buses run on the last section, and when?
        At what time does the train come back?
        Is there a restaurant on board?""",
    ),
    (
        """Researchers at the university of {city} asked {200..3000/100} adults about {issue}. {51..79} percent were
        in favour,
        {8..20} percent had no opinion. Older people agreed {degree} often than younger ones, and people who had
        {experience} agreed most. The authors warn that the answers were given online and that {caveat}.""",
        """What was the survey about?
        Which share of people was in favour?
        Who agreed most?
        Why do the authors tell readers to be careful?
        How did age change the answers?
        Who paid for the study?""",
    ),
    (
        """To use the {device} for the first time, charge it for {2..8} hours. Press the {colour} button for {3..9}
        seconds until
        the light blinks twice. If the light stays {colour2}, the {part} is not closed. Clean it {often} with a dry \
          cloth.
        The guarantee lasts {1..5} years and does not cover damage by {damage}.""",
        """How do I switch it on?
        The light stays {colour2}. What is wrong?
        How often should it be cleaned?
        What does the guarantee not cover?
        How long must it be charged before the first use?
        Can it be used outdoors in the rain?""",
    ),
    (
        """{person} {surname} was born in {city} in {1790..1930} as the child of a(n) {job}. After years as a(n)
        {job2} in
        {country}, {person} published a first book about {hobby}, which was ignored at first. The second one, on {idea},
        was translated into {4..20} languages. {person} spent the last years in {town}, where a school and a street
        bear the name, and refused every prize except one for {hobby2}.""",
        """What was the first book about?
        Which book became a success?
        What was the job of the parent?
        Where did {person} spend the last years?
        Which prize did {person} accept?
        Was {person} married?""",
    ),
    (
        """The festival of {food} takes place every {month} in {town}. It goes back to a bet between a(n) {job} and a(n)
        {job2} in {1880..1960}. Visitors pay {4..15} euros and may taste everything; a jury of {3..9} children \
          chooses the
        winner, who receives a(n) {object} and has to cook for the whole town. Last year {1200..9000/100} people \
          came, although
        it rained for {2..4} days.""",
        """How did the festival begin?
        Who chooses the winner?
        What does the winner receive, and what must the winner do?
        How many people came last year?
        How much does a visitor pay?
        Who won last year?""",
    ),
    (
        """A course on {science} at the evening school in {city} has {8..20} places and begins in {month}. It meets
        on {day}s from
        {17..19}:00 for {60..120/15} minutes. No previous knowledge is needed, but everyone should bring a(n) \
          {object}. The fee
        is {60..240/20} euros; pupils and {job}s pay half. The teacher, {person} {surname}, worked in {country} for
        {3..20} years.""",
        """On which day does the course take place?
        Who pays half of the fee?
        What should participants bring?
        What did the teacher do before?
        What must I know already before I begin?
        Is there an examination at the end?""",
    ),
    (
        """The {animal} and the {animal2} both wanted the warm place under the old {object}. The {animal} said that
        it had come
        first; the {animal2} said that it was older. So they asked the {animal3}, who told them to wait until {day} \
          and then went
        to sleep there itself. Since then, the story says, neither of them trusts anyone who offers {good}.""",
        """What did the animals argue about?
        Which reason did the {animal2} give?
        What did the {animal3} do in the end?
        What is the moral of the story?
        Who asked the {animal3} for help?""",
    ),
)
FACTS: dict[str, tuple[str, ...]] = {
    "town": items(
        """Harrowmere; Quillby; Ostrava Hill; Denwick; Marrow Bay; Saltmarsh; Greyford; Lindenau; Port Elva; Tarnbeck;
        Welland Cross; Old Varna; Birchholm; Castelrosso; Pinefall; Stony Reach; Ambleton; Karsund; Mirefield;
        Rookhaven"""
    ),
    "people": items(
        "miners; monks; fishermen; weavers; shepherds; sailors; charcoal burners; merchants; refugees; hunters"
    ),
    "good": items("silver; salt; clay; timber; furs; honey; amber; slate; fresh water; wool; copper; good soil"),
    "building": items("town hall; church; school; market hall; mill; library; customs house; theatre; bakery; station"),
    "trade": items(
        "tourism; fishing; paper making; software; wine growing; "
        "health care; glass making; logistics; farming; boat repair"
    ),
    "day": items("Monday; Tuesday; Wednesday; Thursday; Friday; Saturday; Sunday"),
    "surname": items(
        """Okafor; Lindqvist; Moreau; Tanaka; Petrov; Alvarez; Novak; Haddad; Brandt; O'Neill; Rossi; Mensah; Kaplan;
        Silva; Weber; Larsen; Dubois; Nakamura; Ferreira; Kowalski"""
    ),
    "diet": items("beetles; river snails; moss; seeds; fallen fruit; small fish; worms; nectar; bark; mushrooms"),
    "time": items(
        "at dusk; at noon; before sunrise; only on moonless nights; all day; in the rain; in the early afternoon"
    ),
    "home": items("hollow trees; dry river beds; old burrows; cracks in walls; reeds; attics; piles of leaves; caves"),
    "threat": items(
        """wetlands were drained; roads cut the forest apart; a fungus spread; pesticides killed its prey; cats were
        brought in; the winters became too warm; old barns were torn down; rivers were straightened"""
    ),
    "firm": items(
        "Brightloop; Nordkette; Papaya Works; Tallow & Finch; "
        "Oranta; Kettlewise; Blue Acorn; Vantara; Lumo; Hexagon Bay"
    ),
    "problem": items(
        """the price of energy; finding trained staff; slow customs; copies from abroad; the rent; unreliable
        suppliers; bad reviews; rules that change every year; too much growth; a lawsuit"""
    ),
    "route": items("Heron; Summit; Coast; Amber; Valley; Northern Star; Vineyard; Copper; Lakeside; Pilgrim"),
    "month": items("January; February; March; April; May; June; July; August; September; October; November; December"),
    "reason": items(
        "snow; falling rocks; bridge works; nesting birds; floods; low demand; a harvest festival; track repairs"
    ),
    "degree": items("more; less; twice as; far less; slightly more; somewhat less"),
    "experience": items(
        """tried it themselves; studied abroad; small children; read about it in the news; lost a job; lived in a
        village; an elderly parent at home; taken part in an earlier survey"""
    ),
    "caveat": items(
        """rural areas are missing; only volunteers took part; the question was worded vaguely; few people over eighty
        answered; the survey was done in one week in summer; students were paid for it; no one was asked twice"""
    ),
    "device": items(
        """bicycle lamp; electric kettle; robot mower; hand-held vacuum; camera drone; bread knife sharpener; baby
        monitor; hedge trimmer; air pump; headphone set; walkie-talkie; plant watering robot; milk frother; label
        printer; massage roller"""
    ),
    "colour": items("red; green; blue; white; yellow; orange; black; violet; grey"),
    "part": items("lid; battery cover; filter; water tank; back panel; drawer; valve; front door"),
    "often": items("once a week; after each use; every month; twice a year; every evening; before the winter"),
    "damage": items("water; lightning; pets; falls; sunlight; sand; frost; wrong batteries; rust; careless cleaning"),
}
_ABROAD: tuple[tuple[str, str], ...] = (
    (
        """Beantworte die Frage mit dem Text.¶¶{name} arbeitet seit {1990..2018} als Gärtnerin in {city}. Jeden
        {tag} verkauft sie auf
        dem Markt {ware}, und im Winter gibt sie Kurse. Ihr größter Wunsch ist {wunsch}.¶¶Frage: {frage}""",
        "Was verkauft {name} auf dem Markt?; Was wünscht sie sich?; "
        "Seit wann arbeitet sie in {city}?; Was macht sie im Winter?",
    ),
    (
        """Réponds à la question à l'aide du texte.¶¶Le village de {village} compte {200..900/50} habitants. L'école
        a fermé en
        {1985..2015}, mais {nom} y a ouvert {lieu}, qui attire des visiteurs de {city}. Les habitants espèrent \
          maintenant
        {espoir}.¶¶Question : {question_fr}""",
        """Qui a ouvert {lieu} ?; Quand l'école a-t-elle fermé ?; Qu'espèrent les habitants ?; D'où viennent les
        visiteurs ?;
        Combien d'habitants le village compte-t-il ?""",
    ),
    (
        """Lee el texto y responde.¶¶{nombre} nació en {city} en {1920..1980} y estudió medicina. Después de {3..12}
        años en un hospital,
        decidió dedicarse a {pasion}. Hoy vive con {2..5} perros y escribe un libro sobre {tema}.¶¶Pregunta:
        {pregunta}""",
        "¿Qué estudió {nombre}?; ¿A qué decidió dedicarse?; ¿Sobre "
        "qué escribe un libro?; ¿Con cuántos perros vive?; ¿Dónde nació?",
    ),
)
_ABROAD_FACTS: dict[str, tuple[str, ...]] = {
    "name": items("Frau Keller; Frau Arndt; Frau Yilmaz; Frau Brandl; Frau Sommer; Frau Voss; Frau Lehmann"),
    "tag": items("Dienstag; Mittwoch; Freitag; Samstag; Sonntag"),
    "ware": items(
        "Honig und Kerzen; Tomaten; Rosen; Kräuter und Tee; alte Apfelsorten; Kürbisse; Setzlinge; Senf und Marmelade"
    ),
    "wunsch": items(
        "ein eigenes Gewächshaus; ein Jahr Pause; ein kleines Café; mehr Regen; ein Lehrling; ein Buch über Rosen"
    ),
    "village": items("Saint-Orle; Valbrune; Montfeuil; Les Aubrets; Pierreclaire; Rochelune"),
    "nom": items(
        "une boulangère; un ancien pilote; deux sœurs; une libraire; un potier; une famille anglaise; un luthier"
    ),
    "lieu": items(
        "un musée du sel; un café-théâtre; une ferme ouverte; un atelier de poterie; une petite librairie; un cinéma"
    ),
    "espoir": items(
        "une gare; un médecin; le retour des jeunes; une ligne de bus; une nouvelle école; moins de touristes"
    ),
    "nombre": items("Lucía Ferrer; Andrés Molina; Carmen Ibarra; Julio Prado; Teresa Campos; Rafael Ortega"),
    "pasion": items(
        "la música; la apicultura; la fotografía; la cocina; la carpintería; los viajes en barco; la pintura"
    ),
    "tema": items("los volcanes; las abejas; su infancia; el pan; los faros; la amistad; las plantas medicinales"),
}
_QUESTION_SLOTS = ("frage", "question_fr", "pregunta")


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("¶", "\n")


FORMS = (
    *(
        Forms(_ASK, 18, {**FACTS, "passage": (_one_line(passage),), "question": lines(questions)})
        for passage, questions in _PASSAGES
    ),
    *(
        Forms((_one_line(text),), 30, {**_ABROAD_FACTS, slot: items(questions)})
        for (text, questions), slot in zip(_ABROAD, _QUESTION_SLOTS, strict=True)
    ),
)
