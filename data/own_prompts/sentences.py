"""Parts of sentences in nine languages, one a line: any beginning fits any rest, and any sentence may follow."""

WHEN = {
    "German": """
    Am Montag
    Nach langen Verhandlungen
    In der vergangenen Woche
    Trotz des schlechten Wetters
    Nach Angaben der Polizei
    Im Sommer 2019
    Kurz vor Weihnachten
    Wegen der hohen Kosten
    In der Hauptstadt
    Zum ersten Mal seit Jahren
    """,
    "French": """
    Lundi dernier,
    Selon le ministère,
    Après plusieurs mois de travaux,
    Malgré la pluie,
    Au début de l'année,
    Pour la première fois,
    Dans une petite ville du nord,
    D'après les voisins,
    En raison de la grève,
    Depuis l'été dernier,
    """,
    "Spanish": """
    El lunes pasado,
    Según el ministerio,
    Después de varios meses,
    A pesar de la lluvia,
    A principios de año,
    Por primera vez,
    En un pueblo de la costa,
    Según los vecinos,
    Debido a la huelga,
    Antes de las vacaciones,
    """,
    "Italian": """
    Lunedì scorso
    Secondo il ministero
    Dopo molti mesi
    Nonostante la pioggia
    All'inizio dell'anno
    Per la prima volta
    In un piccolo paese del sud
    Secondo i vicini
    A causa dello sciopero
    Prima delle vacanze
    """,
    "Portuguese": """
    Na segunda-feira passada,
    Segundo o ministério,
    Depois de vários meses,
    Apesar da chuva,
    No início do ano,
    Pela primeira vez,
    Numa pequena cidade do interior,
    Segundo os vizinhos,
    Por causa da greve,
    Antes das férias,
    """,
    "Russian": """
    В понедельник
    По словам министра,
    После долгих переговоров
    Несмотря на дождь,
    В начале года
    Впервые за много лет
    В небольшом городе на севере
    По словам соседей,
    Из-за забастовки
    Перед каникулами
    """,
    "Chinese": """
    上周一，
    据当地媒体报道，
    经过几个月的讨论，
    尽管下着大雨，
    今年年初，
    由于费用太高，
    在一个小村庄里，
    据邻居说，
    去年夏天，
    春节之前，
    """,
    "Japanese": """
    先週の月曜日、
    地元の新聞によると、
    長い話し合いの末、
    雨にもかかわらず、
    今年の初めに、
    費用が高いため、
    北の小さな町で、
    近所の人によると、
    去年の夏、
    休暇の前に、
    """,
    "English": """
    Last Monday,
    According to the ministry,
    After months of talks,
    In spite of the heavy rain,
    At the beginning of the year,
    For the first time in a decade,
    In a small town near the border,
    As the neighbours tell it,
    Because of the strike,
    Shortly before the elections,
    """,
}

WHAT = {
    "German": """
    beschloss der Stadtrat, die alte Brücke zu sanieren.
    wurden mehr als zweihundert Menschen in Sicherheit gebracht.
    eröffnete das Museum eine Ausstellung über die Geschichte des Brotes.
    verlor die Mannschaft ihr drittes Spiel in Folge.
    stieg der Preis für Strom um acht Prozent.
    kündigte die Firma an, zwei Werke zu schließen.
    fanden Arbeiter im Keller der Schule alte Münzen.
    kamen deutlich weniger Besucher als erwartet.
    durfte der Verein den Platz nicht mehr benutzen.
    stellten Forscher eine neue Karte des Meeresbodens vor.
    musste die Sitzung um eine Stunde verschoben werden.
    pflanzten Schüler vierzig Bäume am Ufer des Flusses.
    gewann eine junge Ärztin den ersten Preis.
    blieben viele Geschäfte geschlossen.
    """,
    "French": """
    le conseil municipal a décidé de rénover le vieux pont.
    plus de deux cents personnes ont été mises à l'abri.
    le musée a ouvert une exposition sur l'histoire du pain.
    l'équipe a perdu son troisième match de suite.
    le prix de l'électricité a augmenté de huit pour cent.
    l'entreprise a annoncé la fermeture de deux usines.
    des ouvriers ont trouvé de vieilles pièces dans la cave de l'école.
    les visiteurs ont été beaucoup moins nombreux que prévu.
    la bibliothèque reste ouverte jusqu'à minuit.
    des chercheurs ont présenté une nouvelle carte des fonds marins.
    la réunion a dû être repoussée d'une heure.
    des élèves ont planté quarante arbres au bord de la rivière.
    une jeune médecin a reçu le premier prix.
    beaucoup de magasins sont restés fermés.
    """,
    "Spanish": """
    el ayuntamiento decidió restaurar el puente viejo.
    más de doscientas personas fueron trasladadas a un lugar seguro.
    el museo abrió una exposición sobre la historia del pan.
    el equipo perdió su tercer partido consecutivo.
    el precio de la electricidad subió un ocho por ciento.
    la empresa anunció el cierre de dos fábricas.
    unos obreros encontraron monedas antiguas en el sótano de la escuela.
    llegaron muchos menos visitantes de lo previsto.
    la biblioteca cerró más temprano que de costumbre.
    los investigadores presentaron un nuevo mapa del fondo del mar.
    la reunión tuvo que aplazarse una hora.
    los alumnos plantaron cuarenta árboles junto al río.
    una joven médica ganó el primer premio.
    muchas tiendas permanecieron cerradas.
    """,
    "Italian": """
    il comune ha deciso di restaurare il vecchio ponte.
    più di duecento persone sono state portate al sicuro.
    il museo ha aperto una mostra sulla storia del pane.
    la squadra ha perso la terza partita di fila.
    il prezzo dell'elettricità è aumentato dell'otto per cento.
    l'azienda ha annunciato la chiusura di due fabbriche.
    alcuni operai hanno trovato vecchie monete nella cantina della scuola.
    sono arrivati molti meno visitatori del previsto.
    la biblioteca ha chiuso prima del solito.
    i ricercatori hanno presentato una nuova mappa del fondo del mare.
    gli studenti hanno piantato quaranta alberi lungo il fiume.
    molti negozi sono rimasti chiusi.
    """,
    "Portuguese": """
    a câmara decidiu restaurar a ponte velha.
    mais de duzentas pessoas foram levadas para um lugar seguro.
    o museu abriu uma exposição sobre a história do pão.
    a equipa perdeu o terceiro jogo seguido.
    o preço da eletricidade subiu oito por cento.
    a empresa anunciou o fecho de duas fábricas.
    alguns operários encontraram moedas antigas na cave da escola.
    chegaram muito menos visitantes do que o esperado.
    a biblioteca fechou mais cedo do que o costume.
    os investigadores apresentaram um novo mapa do fundo do mar.
    os alunos plantaram quarenta árvores junto ao rio.
    muitas lojas ficaram fechadas.
    """,
    "Russian": """
    городской совет решил отремонтировать старый мост.
    более двухсот человек были эвакуированы.
    музей открыл выставку об истории хлеба.
    команда проиграла третий матч подряд.
    цена на электричество выросла на восемь процентов.
    компания объявила о закрытии двух заводов.
    рабочие нашли старые монеты в подвале школы.
    посетителей пришло гораздо меньше, чем ожидалось.
    школьники посадили сорок деревьев на берегу реки.
    многие магазины остались закрыты.
    """,
    "Chinese": """
    市政府决定修复那座老桥。
    两百多人被转移到安全的地方。
    博物馆举办了一个关于面包历史的展览。
    球队连续第三场输球。
    电价上涨了百分之八。
    公司宣布关闭两家工厂。
    工人们在学校的地下室里发现了古钱币。
    来的游客比预想的少得多。
    学生们在河边种了四十棵树。
    许多商店没有开门。
    """,
    "Japanese": """
    市は古い橋を修理することを決めた。
    二百人以上が安全な場所に避難した。
    博物館でパンの歴史に関する展覧会が開かれた。
    チームは三試合続けて負けた。
    電気料金が八パーセント上がった。
    会社は二つの工場を閉鎖すると発表した。
    学校の地下室で古い硬貨が見つかった。
    訪れた人は予想よりずっと少なかった。
    生徒たちは川のそばに四十本の木を植えた。
    多くの店が閉まっていた。
    """,
    "English": """
    the council decided to repair the old bridge.
    more than two hundred people were taken to safety.
    the museum opened an exhibition about the history of bread.
    the team lost its third game in a row.
    the price of electricity rose by eight percent.
    the company announced that it would close two plants.
    workers found old coins in the cellar of a school.
    far fewer visitors came than the organisers had expected.
    the library stayed open until midnight.
    researchers presented a new map of the sea floor.
    the meeting had to be put off by an hour.
    pupils planted forty trees along the river.
    a young doctor won the first prize, and nobody was more surprised than she was.
    many shops remained closed, although the mayor had promised the opposite.
    nobody could say when the trains would run again.
    two brothers sailed around the island in a boat they had built themselves.
    the farmers asked for more water and got a new tax instead.
    the court rejected the complaint of the airline.
    a bear was seen behind the supermarket.
    the singer cancelled all concerts for reasons of health.
    """,
}

NEXT = {
    "German": """
    Die Polizei sucht nach Zeugen, die etwas gesehen haben.
    Ein Sprecher wollte sich dazu nicht äußern.
    Viele Anwohner sind damit nicht einverstanden.
    Die Kosten trägt zur Hälfte das Land.
    Der Bericht soll im Herbst veröffentlicht werden.
    Verletzt wurde zum Glück niemand.
    """,
    "French": """
    La police recherche des témoins.
    Une porte-parole a refusé de répondre à nos questions.
    Beaucoup d'habitants ne sont pas d'accord.
    La région paiera la moitié des frais.
    Le rapport sera publié à l'automne.
    Heureusement, personne n'a été blessé.
    """,
    "Spanish": """
    La policía busca testigos.
    Una portavoz no quiso responder a las preguntas.
    Muchos vecinos no están de acuerdo.
    La región pagará la mitad de los gastos.
    El informe se publicará en otoño.
    Por suerte, nadie resultó herido.
    """,
    "English": """
    The police are looking for witnesses.
    A spokeswoman declined to answer our questions.
    Many people who live nearby do not agree.
    Half of the money comes from the region.
    The full report is to be published in autumn.
    Luckily, no one was hurt.
    "I have never seen anything like it," said one of the neighbours.
    It is not yet clear what happens next.
    """,
}
