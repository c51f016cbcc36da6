"""Translation: short original texts into and out of several languages."""

from treewise.data.own_prompts.family import Family

FAMILIES = (
    Family(
        "distill",
        (
            "Translate the following text into {language}:\n\n{text}",
            "How would a native speaker say this in {language}? Keep the tone.\n\n{text}",
            'Please give me a {language} version of the text below, and nothing else.\n\n"{text}"',
        ),
        {
            "text": (
                "The library on Mill Street will be closed from Thursday to Sunday because the old windows are "
                "being replaced. Books that are due in this time can be returned next week without a fee. The "
                "reading room in the town hall stays open, and the children's group will meet there as usual.",
                "Thank you for your order. We are sorry to tell you that the blue lamp is out of stock until the "
                "end of the month. You can wait for it, choose the green one instead, or ask for your money back. "
                "Just reply to this message and tell us what you prefer.",
                "When we reached the top of the hill, the fog suddenly lifted. Below us lay the harbour with its "
                "red roofs, and two small boats were just leaving for the islands. My grandfather took off his hat "
                "and said nothing for a long time.",
                "To clean the machine, first unplug it and let it cool down for ten minutes. Remove the water tank, "
                "rinse it with warm water and dry it with a soft cloth. Never put the base into water. Use the "
                "cleaning programme once a month.",
                "The city council has decided that buses will run every ten minutes on weekdays from September. "
                "Critics say the plan costs too much, while shop owners hope for more visitors. A first review is "
                "planned after six months.",
                "Dear Ms Holm, I enjoyed our conversation last Tuesday and would like to come back to your question "
                "about the training course. It lasts two days, takes place in our office and is limited to twelve "
                "people. Shall I keep a place for you?",
                "Scientists at a small research station measured how deep the roots of young oak trees grow in dry "
                "summers. After two years the roots were nearly twice as long as expected, although the trees "
                "themselves had hardly grown at all.",
                "I never liked Mondays until I met Clara. She sold flowers in front of the station, always the same "
                "kind, and she always gave the last one away. One Monday it was my turn, and I missed my train for "
                "the first time in eleven years.",
            ),
            "language": (
                "German",
                "French",
                "Spanish",
                "Italian",
                "Portuguese",
                "German",
                "French",
                "Spanish",
                "Japanese",
                "Chinese",
            ),
        },
        44,
    ),
    Family(
        "distill",
        (
            "Translate this into English:\n\n{text}",
            "What does the following text say? Please translate it into natural English and explain any "
            "idioms.\n\n{text}",
            "Translate the text below into English, first literally and then in a freer version.\n\n{text}",
        ),
        {
            "text": (
                "Unser kleiner Laden zieht im Oktober um. Ab dann finden Sie uns direkt am Marktplatz, gleich neben "
                "der Apotheke. Zur Eröffnung gibt es Kaffee, Kuchen und eine kleine Überraschung für alle, die uns "
                "treu geblieben sind.",
                "Gestern habe ich den ganzen Tag auf den Handwerker gewartet, aber er ist nicht gekommen. Als ich "
                "endlich das Haus verließ, stand er vor der Tür und sagte, er drücke mir die Daumen, dass es beim "
                "nächsten Mal klappt.",
                "Le train de nuit est parti avec une heure de retard, mais personne ne s'est plaint. Dans le wagon, "
                "une vieille dame a partagé ses abricots, et un étudiant a joué de l'accordéon jusqu'à la frontière.",
                "La mairie invite les habitants à une réunion sur le nouveau jardin partagé. Chacun pourra proposer "
                "des plantes, poser des questions et s'inscrire pour l'entretien des parcelles au printemps.",
                "Mi abuela guardaba las recetas en una caja de zapatos. Ninguna tenía cantidades exactas: un puñado "
                "de harina, un poco de sal, paciencia. Cuando intenté hacer su pan, tardé tres inviernos en acertar.",
                "El taller de bicicletas abre todos los sábados por la mañana. Los voluntarios enseñan a cambiar "
                "una rueda, ajustar los frenos y engrasar la cadena. No hace falta experiencia, solo ganas de "
                "ensuciarse las manos.",
                "Il vecchio faro non serve più alle navi, ma ogni sera qualcuno accende una luce. In paese dicono "
                "che sia il figlio del guardiano, tornato dopo vent'anni passati in mare.",
                "O mercado da aldeia realiza-se ao domingo, mesmo quando chove. Vendem-se queijos, flores e cestos "
                "feitos à mão, e quem chega cedo ainda encontra o pão quente da padaria da esquina.",
            )
        },
        22,
    ),
    Family(
        "policy",
        ("I need this note in {language} for my host family. Could you write it for me?\n\n{text}",),
        {
            "text": (
                "I will be home late tonight because the choir rehearses until ten. Please don't wait with dinner; "
                "I'll take a sandwich along. Tomorrow I would love to cook a dish from my country for all of you, "
                "if that is all right.",
                "The washing machine makes a strange noise and stopped twice this morning. I have taken out the wet "
                "clothes and hung them up on the balcony. Maybe the filter is blocked. I did not want to open it "
                "without asking you first.",
            ),
            "language": ("German", "French", "Spanish", "Italian", "Portuguese"),
        },
    ),
    Family(
        "demo",
        (
            "Translate the following paragraph into German. Keep the friendly tone:\n\nWelcome to our guest house! "
            "Breakfast is served from seven to ten in the garden room. If you plan to go hiking, we are happy to "
            "pack a lunch for you; just tell us the evening before. The path to the waterfall starts behind the old "
            "barn and takes about forty minutes. Please close the gate, because our goats are very curious.",
        ),
    ),
)
