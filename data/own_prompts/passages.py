"""Original short passages with invented facts, for the rag and summarization tasks."""

RAG_DISTILL = (
    "Velmora is a harbour town of 18,400 people on the island of Ostrey. Its tide mill, built in 1783 by the "
    "engineer Hanne Brask, ground grain until 1931. A storm broke the dam in 1952, and the building stood empty for "
    "forty years. In 1994 a citizens' society bought it for one crown and rebuilt the two wooden wheels. Today the "
    "mill produces flour on the first Saturday of each month and electricity on all other days: about 210 megawatt "
    "hours a year, enough for seventy households. Guided tours cost six crowns and are free for children under "
    "twelve.",
    "The Tarnel P3 is a portable air purifier for rooms of up to 28 square metres. It has three speeds, a night "
    "mode and a filter that lasts 2,200 hours. The filter light turns yellow 100 hours before the end and red at "
    "the end; the device then runs at the lowest speed only. To replace the filter, unplug the device, press both "
    "clips and pull the cover downwards. After inserting the new filter, hold the moon button for five seconds to "
    "reset the counter. The guarantee covers three years, but not damage caused by washed filters. Replacement "
    "filters cost 34 euros.",
    "In a field trial near Lower Quenby, researchers sowed strips of wild flowers between rows of barley on nine "
    "farms and left nine similar farms unchanged. Over three summers they counted beneficial insects every second "
    "week. Farms with strips had 2.4 times as many hoverflies and 1.7 times as many ground beetles. Aphid damage "
    "fell by a third in the second and third summer, but not in the first. Yields did not differ, although the "
    "strips took up four percent of the land. The authors warn that all the farms lie in one valley and that the "
    "last summer was unusually wet.",
    "The Orrin Valley Railway carries passengers from Kest to Upper Orrin, 31 kilometres with eleven stations. "
    "Trains run hourly from 5:40 to 22:40 and every thirty minutes on market days, which are Wednesday and "
    "Saturday. Bicycles need a ticket of their own, except after 19:00. Dogs travel free when they fit in a bag. "
    "Between Pell and Marrow Bridge the line is single track, so a delay in one direction usually affects the "
    "other. Passengers who arrive more than 45 minutes late get half the fare back; the form can be handed in at "
    "Kest station or sent by post within 30 days.",
    "Lindqvist & Omar is a cooperative of 63 bookbinders founded in 1968 in the city of Harrowmere. Members pay in "
    "4,000 florins when they join and get the sum back, without interest, when they leave. Every member has one "
    "vote, whatever the position. The board of five is elected for two years, and nobody may serve more than three "
    "terms. In 2008 the cooperative nearly went bankrupt after a large publisher cancelled its contract; members "
    "accepted a pay cut of fifteen percent for fourteen months. Since then it has taken on restoration work for "
    "museums, now 40 percent of its revenue.",
    "The salt lark is a small brown bird that breeds on the shingle banks of the Merrow coast. It weighs about 31 "
    "grams and lays three to four speckled eggs in April. Both parents bring water to the nest in their breast "
    "feathers, a habit otherwise known from desert birds. The population fell from 5,200 pairs in 1980 to 870 in "
    "2011, chiefly because walkers' dogs disturbed the nests. Since 2013, volunteers have fenced off the banks from "
    "March to July. The last count, in 2022, found 1,940 pairs. Rats remain a problem on the two southern banks, "
    "where only one nest in five succeeds.",
    "Company policy on working from abroad: employees may work outside the country for up to 25 working days a "
    "calendar year. Requests go to the team lead at least three weeks before departure and to the payroll office "
    "when the stay is longer than ten days in a row. Core hours are 10:00 to 14:00 in the time zone of the home "
    "office. Company laptops must not be used on open wireless networks; a travel router can be borrowed from the "
    "service desk. Accidents abroad are insured only when the stay has been approved in writing. Trainees and staff "
    "in their first six months are not eligible.",
    "The comet known as Ishaan-Brandt was found in March 1961 by two amateurs who observed independently, one in "
    "Pune and one in Bergen. It returns every 37 years. On its 1998 visit its tail stretched over eleven degrees of "
    "the sky, more than twenty times the width of the full Moon. Spectra taken then showed an unusual amount of "
    "sodium, which gives the inner tail a yellowish colour. The nucleus is about six kilometres long and rotates "
    "once in nineteen hours. At its next return, in 2035, it will pass the Earth at a distance of 41 million "
    "kilometres and should be visible without a telescope for two weeks.",
    "Dorrit's rye crispbread is baked in the village of Alnes from four ingredients: coarse rye, water, salt and "
    "caraway. The dough rests for sixteen hours at nine degrees, which gives it a slight sourness. It is then "
    "rolled to two millimetres, pricked with a wooden roller and baked for seven minutes at 240 degrees. A hole in "
    "the middle recalls the time when the breads hung on poles beneath the ceiling. They keep for nine months in a "
    "dry place. The bakery makes 1,100 breads on a working day and sells most of them by post; the rest goes to the "
    "ferry kiosk.",
)
RAG_POLICY = (
    "The observatory on Mount Sarrat closes to visitors whenever the wind exceeds 80 kilometres an hour. Its "
    "largest mirror, 2.6 metres across, was polished for nineteen months in a converted tram depot and carried "
    "uphill by forty soldiers in 1957, because the road was not finished. Evening visits begin an hour after sunset "
    "and are limited to sixteen people. Flash photography is forbidden. The small museum displays the first guest "
    "book, signed by a shepherd who had mistaken the dome for a chapel. Since a new camera was fitted, astronomers "
    "there have found 212 asteroids, one of them named after him.",
    "Glimmer is a cooperative board game for two to five players aged eight and over. The players are fireflies who "
    "must light nine lanterns before the owl deck runs out. On a turn, a player flies up to three fields and then "
    "either lights a lantern with two matching cards or swaps one card with a neighbour. Talking about cards in "
    "hand is allowed only when standing on a mushroom field. Each owl card removes one firefly from the board until "
    "somebody rescues it. A game takes about forty minutes. In the version for two, each player controls two "
    "fireflies, and the deck holds six fewer cards.",
)
RAG_DEMO = (
    "The town of Hollin Ferry replaced its street lights in 2019. The 2,300 old sodium lamps used 96 watts each; "
    "the new LED lamps use 31 watts and dim to half that between midnight and five. The change cost 1.38 million "
    "pounds, of which the region paid 40 percent. In the first full year, the town used 71 percent less electricity "
    "for lighting and saved 164,000 pounds. Some residents of the old quarter complained about the cold colour, so "
    "180 lamps there were fitted with amber filters in 2021. A survey of moths along the canal found no change in "
    "numbers, but it covered only two summers."
)
SUMMARY_DISTILL = (
    "For three decades the glassworks at Pernby made nothing but lamp shades. When orders dried up, its new owner, "
    "a former teacher named Ilse Torvald, invited local pupils to draw the strangest vase they could imagine. Out "
    "of 340 drawings, the glassblowers chose twelve and made them exactly as drawn, crooked necks and all. The "
    "vases sold out in a week. Torvald has repeated the contest every year since, and a part of the price now pays "
    "for school trips. Not everyone is delighted: two master glassblowers left, saying that they had not trained "
    "for seven years in order to copy children's scribbles.",
    "Minutes of the garden society, 14 March. Present: nineteen members. The treasurer reported a balance of 2,310 "
    "euros, after the purchase of the second water tank. Mr Adeyemi proposed renting a shredder for the first "
    "weekend of April; agreed, with one vote against. Ms Falk reminded everyone that barbecues are not allowed near "
    "the hedge, as a fire last August almost reached the tool shed. The waiting list has grown to 44 names. It was "
    "discussed whether large plots should be divided; a group of four will prepare a proposal by June. Plot 17 has "
    "not been tended for a year and the tenants will be written to.",
    "Researchers at the fictional Baltic Institute of Sleep asked 128 shift workers to wear dimmed glasses for the "
    "last two hours before going to bed. Half of the participants received glasses that filtered blue light; the "
    "others wore glasses that looked the same but filtered nothing. After six weeks, both groups fell asleep about "
    "eleven minutes faster than before, and there was no difference between them. The team believes that the ritual "
    "itself, putting on the glasses and slowing down, was what helped. A follow-up will test whether any evening "
    "ritual works as well, such as making tea without looking at a screen.",
    "The river Aune used to flood the lower town of Stavik every few springs. Instead of raising the dam again, the "
    "council bought eleven meadows upstream and let the river spread there. Farmers still graze cattle on them in "
    "summer and are paid for the weeks when the land is under water. Since the change, the lower town has stayed "
    "dry through three strong floods. Storks have returned, and so have mosquitoes, which is now the most frequent "
    "topic in letters to the council. The project cost less than half of what the higher dam would have cost, "
    "although buying the last meadow took four years of negotiations.",
    "Customer review: I bought the Northpeak 45 backpack for a two-week walk with a tent. The good news first: it "
    "carries very well, even with fourteen kilos, and the hip belt did not chafe once. The rain cover has its own "
    "pocket and stays on in strong wind. What annoyed me were the zips. Two of the five got stuck after a sandy day "
    "and one handle came off. The side pockets are also too tight for a one-litre bottle when the pack is full. "
    "Customer service sent a repair kit within three days and without any fuss. For the price I had expected better "
    "zips, but I would still take it along again.",
    "Old Marten had repaired clocks for fifty years when the mayor asked him to mend the one on the town hall. He "
    "climbed the tower with his granddaughter and found a family of jackdaws living in the works. Removing the nest "
    "would have taken ten minutes. Instead, he came down and announced that the repair was difficult and would last "
    "until July. All through spring the clock showed twenty past four, and the town got used to being late. In "
    "July, the young birds left, and the clock ran again within an hour. Marten sent no bill. His granddaughter, "
    "who told me this, became a biologist.",
    "Many small shops in the port of Lagunda have stopped accepting cards for sums below five dinars, since the fee "
    "of thirty cents on each payment eats up most of the profit. The chamber of commerce has now proposed a shared "
    "terminal scheme: shops in one street pool their payments and are charged once a day as though they were a "
    "single business. A trial in two streets cut fees by 58 percent. Banks object that complaints are harder to "
    "handle when payments are pooled. Shoppers in a survey mainly wanted one thing, a clear sign on the door that "
    "tells them how they can pay before they start to queue.",
    "Dear colleagues, as of next month we will change how we handle support requests. So far, everyone has answered "
    "whatever came in, which was friendly but led to double answers and to requests that nobody took. From the "
    "first, two people will be on duty each day, by turns. They sort all new requests before ten o'clock, answer "
    "the simple ones and assign the rest. Nobody else needs to watch the inbox. Requests from hospitals still go "
    "straight to Priya. We will try this for eight weeks and then decide together. The rota is on the notice board; "
    "swaps are fine as long as you write them down.",
    "Paper boats were once a serious matter in the lake town of Oberwiel. From 1870 on, the paper mill used them to "
    "advertise how waterproof its new cardboard was, and each summer, workers raced boats up to four metres long. "
    "The race of 1902 ended with eleven wet rowers and one broken nose, but the winning boat stayed afloat for six "
    "days. When the mill closed in 1977, the custom died with it. Five years ago, students of packaging design "
    "revived it. Modern boats must be made from nothing but waste paper and starch glue, and every team has to "
    "recycle its boat after the race.",
)
SUMMARY_POLICY = (
    "Beekeepers in the Caldra hills noticed that their hives were heavier in years when the railway line through "
    "the valley was repaired. A student, Tomasz Rell, found out why: while trains were replaced by buses, the "
    "embankment was not mown, and thyme and clover flowered on it until autumn. He persuaded the railway to mow "
    "only one side each year. Honey harvests rose by about a fifth. The railway saves money as well, but drivers "
    "have complained that signals are now harder to see in two curves, where mowing has resumed.",
    "Last winter our theatre group tried a play without rehearsals. The actors got their own lines on cards and "
    "heard those of the others for the first time on the evening itself. The first performance lasted three hours, "
    "the second one fifty minutes. Somebody proposed marriage to the wrong character. The audience loved it and "
    "came back, to see what would go wrong next. For the actors it was tiring; half of them want never to do it "
    "again, and the other half refuse to go back to normal plays. The group will vote in October.",
)
SUMMARY_DEMO = (
    "When the ferry to Innisvane was cancelled for repairs, the island's only shop had supplies for nine days. The "
    "owner, Ruth Calder, put up a list at the door where people could write down what they had too much of at home. "
    "By the second evening, eggs were being traded for candles and a sack of potatoes for a haircut. The ferry came "
    "back on day eleven. Calder kept the list, and it is still in use every winter. A researcher who visited later "
    "worked out that about a fifth of the island's food now changes hands without money from December to February. "
    "Calder says her sales have hardly suffered, since those who come to look at the list usually buy something as "
    "well."
)
