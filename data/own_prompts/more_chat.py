"""More chat prompts: openers, requests for advice and small talk, in several languages."""

from treewise.data.own_prompts.forms import Forms, items, lines

FORMS = (
    Forms(
        lines(
            """
            I want to {goal}. Where should I start?
            I tried to {goal} three times and always gave up. Any advice?
            My partner wants to {goal}, but I think it is a bad time. What would you say?
            How long does it take to {goal}?
            What is the hardest part when you {goal}?
            Help me make a weekly plan to {goal}.
            I have only 20 minutes a day. Can I still {goal}?
            """
        ),
        24,
    ),
    Forms(
        lines(
            """
            I've been getting into {hobby} lately.
            What do I need to buy to begin with {hobby}?
            Do you think {hobby} is a good hobby for someone who is {age}?
            I can't decide between {hobby} and {hobby2}. Which one suits a shy person better?
            Tell me something surprising about {hobby}.
            I'm bored with {hobby}. How can I make it fun again?
            My {relative} loves {hobby}. What would be a nice present for less than {20..90/10} dollars?
            What's the fastest way to get better at {hobby}?
            """
        ),
        20,
        {
            "age": items(
                "over seventy; nine years old; recovering from surgery; always busy; left-handed; pregnant; retired"
            ),
            "relative": items(
                "father; best friend; aunt; boss; grandmother; sister; neighbour; nephew; roommate; mother-in-law"
            ),
        },
    ),
    Forms(
        lines(
            """
            I'm flying to {city} next month. What should I see in two days?
            Is {city} a good place to live with children?
            What is the best time of year to visit {city}?
            I'm moving from {city} to {city2} for work. What will feel different?
            Where do locals eat in {city}?
            Suggest a cheap weekend in {city} for two people.
            How do I get from the airport of {city} into the centre?
            My trip to {country} was cancelled and I feel {mood}. What else could I do with the time?
            """
        ),
        18,
        {"mood": items("really sad; relieved; angry; lost; a bit guilty; tired of planning")},
    ),
    Forms(
        lines(
            """
            Hi! What can you do?
            Hello, I feel {mood} today.
            I just {news} and I don't know what to do next.
            Guess what: I {news}!
            My friend {news}. What should I say to her?
            Yesterday I {news}, and now I can't stop thinking about it.
            Is it normal to feel {feeling} when you start a new job?
            How do I deal with {feeling} after an argument?
            Someone at work talks about {issue} all day. How do I change the subject?
            What do you think about {issue}?
            Can you recommend a book about {idea}?
            Can you recommend a film that is set in {place}?
            If you were a(n) {animal}, what would your day look like?
            Would you rather be a(n) {job} or a(n) {job2}? Explain your choice.
            Ask me five questions to find out if I should become a(n) {job}.
            Tell me a joke about a(n) {job} and a(n) {animal}.
            What's a good nickname for a(n) {animal}?
            I found an old {object} in the attic. What can I do with it?
            What should I cook tonight? I have leftovers of {food}.
            Do you prefer {food} or {food2}?
            """
        ),
        16,
        {
            "mood": items(
                """nervous; great; a little homesick; completely exhausted; bored; inspired; sick; overwhelmed; lonely;
                unusually calm; annoyed with everyone; proud of myself; hungry all the time; in love; confused;
                restless"""
            ),
            "news": items(
                """lost my wallet; got promoted; failed my driving test; broke my arm; found a kitten; missed my
                flight; won a small lottery prize; sold my car; forgot an important birthday; met an old classmate;
                quit my job; got a bad grade; spilled coffee on my laptop; received a strange letter; moved into a
                shared flat; had a fight with my sister; adopted a dog; ran my first race; burned the dinner; got a
                new haircut; was offered a job abroad; broke up with my boyfriend; deleted all my photos; saw a
                falling star"""
            ),
        },
    ),
    Forms(
        lines(
            """
            ¿Qué puedo hacer en {city} en un fin de semana?
            Dame tres consejos para aprender a cocinar.
            ¿Cuál es la diferencia entre {es} y {es2}?
            Explícame qué es {es} en pocas palabras.
            Quelle est la meilleure façon d'apprendre une langue ?
            Explique-moi simplement ce qu'est {fr}.
            Donne-moi des idées de cadeaux pour quelqu'un qui aime {fr}.
            Was kann man in {city} an einem Regentag machen?
            Erkläre mir bitte in einfachen Worten, was {de} ist.
            Schreibe einen kurzen Text über {de}.
            Che cosa posso visitare a {city} con i bambini?
            Spiegami in modo semplice che cos'è {it}.
            Explique de forma simples o que é {pt}.
            Escreva um pequeno texto sobre {pt}.
            Расскажи коротко, что такое {ru}.
            Как научиться {ruverb}?
            请用简单的话解释什么是{zh}。
            请写一段关于{zh}的短文。
            {ja}とは何ですか。やさしく説明してください。
            """
        ),
        11,
        {
            "es": items(
                """la inflación; el aprendizaje automático; la fotosíntesis; el ajedrez; la democracia; el yoga; un
                volcán; la energía solar; una hipoteca; el realismo mágico; un eclipse; la nube"""
            ),
            "fr": items(
                """la photographie; le jardinage; la photosynthèse; l'inflation; l'intelligence artificielle; le jazz;
                la randonnée; le chocolat; la philosophie; l'énergie solaire; le vélo; la poterie"""
            ),
            "de": items(
                """Photosynthese; Inflation; künstliche Intelligenz; ein Schwarzes Loch; Demokratie; Fernweh; ein
                Algorithmus; der Treibhauseffekt; Blockchain; eine Wärmepumpe; das Mittelalter; Freundschaft"""
            ),
            "it": items(
                """l'inflazione; la fotosintesi; un vulcano; il Rinascimento; un mutuo; l'energia solare; il jazz; un
                algoritmo; la gravità; il caffè; la democrazia"""
            ),
            "pt": items(
                """a inflação; a fotossíntese; o samba; um vulcão; a inteligência artificial; o café; a amizade; a
                energia solar; um algoritmo; o mar; a democracia"""
            ),
            "ru": items(
                """инфляция; фотосинтез; чёрная дыра; искусственный интеллект; демократия; вулкан; алгоритм; дружба;
                солнечная энергия; иммунитет; гравитация"""
            ),
            "ruverb": items(
                """рисовать; готовить; играть на гитаре; плавать; программировать; быстро читать; рано вставать; петь;
                экономить деньги; играть в шахматы; писать рассказы"""
            ),
            "zh": items("光合作用; 人工智能; 通货膨胀; 春节; 黑洞; 友谊; 太阳能; 区块链; 地震; 茶文化; 民主"),
            "ja": items(
                "光合成; 人工知能; 台風; 俳句; 重力; 民主主義; 太陽光発電; ブラックホール; 茶道; 地震; 経済成長"
            ),
        },
    ),
)
