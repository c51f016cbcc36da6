"""Word lists that the forms of every task kind draw from."""

from treewise.data.own_prompts.forms import items

SUBJECTS: dict[str, tuple[str, ...]] = {
    "job": items(
        """plumber; architect; nurse; beekeeper; electrician; librarian; pastry chef; tax adviser; shepherd; welder;
        firefighter; primary school teacher; software tester; air traffic controller; florist; carpenter;
        pharmacist; tailor; crane operator; dentist; forest ranger; interpreter; jeweller; lifeguard; mechanic;
        notary; optician; piano tuner; roofer; stonemason; translator; umpire; vet; watchmaker; zookeeper; data
        analyst; bus driver; midwife; train conductor; barista; surveyor; radio host; sound engineer;
        physiotherapist; journalist; judge; glassblower; fish farmer; editor; actuary; astronomer; speech therapist;
        urban planner; wine merchant; ski instructor; museum curator; geologist; paramedic; stage designer; baker;
        miner; hotel receptionist; marine biologist; blacksmith; social worker; landscape gardener; real estate
        agent; personal trainer; investment banker; game designer; orchestra conductor; ethicist; recruiter;
        chemist; detective; ferry captain"""
    ),
    "food": items(
        """lentil soup; banana bread; mushroom risotto; pea soup; apple pie; pancakes; potato salad; vegetable curry;
        fish tacos; tomato sauce; cheesecake; ramen; hummus; lasagne; oatmeal cookies; beef stew; spinach quiche;
        mango smoothies; fried rice; garlic bread; guacamole; pumpkin soup; rice pudding; stuffed peppers; sushi
        rolls; waffles; sourdough bread; chicken noodle soup; paella; falafel; gnocchi; kimchi; shakshuka; baked
        salmon; chili; scones; tiramisu; dumplings; gazpacho; pickled cucumbers; strawberry jam; flatbread; granola;
        omelette; moussaka; pesto; pad thai; cornbread; caramel; vegan burgers; carrot cake; onion rings; goulash;
        polenta"""
    ),
    "city": items(
        """Lisbon; Kyoto; Prague; Toronto; Nairobi; Lima; Bergen; Istanbul; Melbourne; Marrakesh; Krakow; Dublin;
        Hanoi; Seville; Montreal; Helsinki; Cape Town; Buenos Aires; Vienna; Seoul; Edinburgh; Naples; Chicago;
        Porto; Athens; Budapest; Copenhagen; Jakarta; Havana; Reykjavik; Singapore; Mumbai; Cairo; Santiago;
        Brussels; Tallinn; Oslo; Amsterdam; Denver; Accra; Auckland; Bogota; Riga; Zagreb; Tunis; Osaka; Boston;
        Valencia; Leipzig; Marseille"""
    ),
    "animal": items(
        """otter; hedgehog; owl; octopus; camel; penguin; wolf; bat; dolphin; chameleon; elephant; kingfisher; squid;
        badger; tortoise; lynx; flamingo; salmon; ant; butterfly; crocodile; kangaroo; sloth; seahorse; raven;
        whale; giraffe; scorpion; frog; goat; parrot; jellyfish; beaver; cheetah; spider; hippopotamus; puffin;
        gecko; bison; donkey; moth; crab; woodpecker; snow leopard; honeybee; electric eel; mole; koala; swan;
        hamster; starfish"""
    ),
    "object": items(
        """umbrella; kettle; bicycle; pair of scissors; lantern; compass; wooden chair; teapot; backpack; mirror;
        violin; typewriter; ladder; suitcase; clock; candle; magnet; rope; shovel; telescope; notebook; hammock;
        toothbrush; key; postcard; camera; hourglass; kite; broom; sewing machine; pocket knife; scarf; drum; globe;
        thermos flask; paintbrush; bookshelf; bucket; desk lamp; chessboard; wheelbarrow; stapler; pillow; bell;
        hammer; coin; button; rocking chair; raincoat; whistle; blanket; water bottle; doorbell; accordion; fountain
        pen; music box"""
    ),
    "hobby": items(
        """knitting; birdwatching; rock climbing; chess; pottery; stargazing; salsa dancing; fishing; calligraphy;
        cycling; gardening; photography; woodworking; origami; swimming; home brewing; choir singing; juggling;
        kayaking; yoga; stamp collecting; archery; baking; trail running; playing the guitar; model trains;
        skateboarding; badminton; watercolour painting; geocaching; table tennis; mushroom picking; sailing;
        crossword puzzles; horse riding; learning Spanish; blogging; magic tricks; bread making; surfing;
        beekeeping; fencing; playing the piano"""
    ),
    "feeling": items(
        """jealousy; homesickness; relief; boredom; pride; curiosity; shame; nostalgia; envy; gratitude;
        disappointment; awe; loneliness; impatience; hope; grief; embarrassment; contentment; anger; excitement;
        regret; trust; fear; tenderness; confusion; courage; frustration; joy; guilt; surprise; melancholy; calm"""
    ),
    "science": items(
        """photosynthesis; plate tectonics; natural selection; the Doppler effect; osmosis; entropy; black holes;
        enzymes; superconductivity; magnetism; radioactivity; the carbon cycle; genetic mutation; surface tension;
        catalysis; gravity; refraction; mitosis; friction; resonance; acid rain; the nitrogen cycle; nuclear fusion;
        antibiotics; the ozone layer; buoyancy; semiconductors; hormones; polymers; sound waves; fermentation;
        symbiosis; diffusion; the periodic table; stem cells; tides; static electricity; chlorophyll; earthquakes;
        the speed of light; thermal expansion; gene expression; viruses; comets; evaporation; lasers; the greenhouse
        effect; crystals; ocean currents; volcanoes; quantum tunnelling; dark matter; neurons; the immune system;
        batteries; vaccines"""
    ),
    "history": items(
        """the French Revolution; the Roman Republic; the Black Death; the Industrial Revolution; the Cold War; the
        Ottoman Empire; the Renaissance; the Great Depression; ancient Egypt; the Viking age; the Meiji Restoration;
        the fall of Constantinople; the Space Race; the Inca Empire; the Hundred Years' War; the Magna Carta; the
        Silk Road; the Enlightenment; the abolition of slavery; the Mongol Empire; the Reformation; the gold rush;
        the partition of India; the Suez Crisis; the Berlin Wall; the Aztec Empire; the first Olympic Games; the
        Congress of Vienna; the Tang dynasty; the Age of Discovery; women's suffrage; the Peloponnesian War; the
        Marshall Plan; the Spanish Civil War; the Boxer Rebellion; the Crusades; the Dutch Golden Age; the Bronze
        Age"""
    ),
    "tech": items(
        """blockchain; cloud computing; 3D printing; machine learning; solar panels; electric cars; Wi-Fi; virtual
        reality; bar codes; fingerprint scanners; search engines; databases; operating systems; web browsers;
        robots; drones; e-readers; heat pumps; smartphones; recommendation systems; spam filters; public-key
        encryption; RAM; routers; contactless payment; microwaves; hearing aids; digital cameras; wind turbines;
        induction cookers; LED lamps; self-driving cars; GPS; voice assistants; spreadsheets; version control;
        computer vision; satellites; QR codes; desalination plants; dishwashers; pacemakers; elevators; compilers;
        container ships; quantum computers"""
    ),
    "economy": items(
        """inflation; compound interest; supply and demand; opportunity cost; a budget deficit; mortgages; index funds;
        insurance; a recession; exchange rates; minimum wages; patents; monopolies; tariffs; a central bank;
        pensions; credit scores; venture capital; income tax; game theory; brand loyalty; franchising; crowdfunding;
        bonds; the gig economy; externalities; bankruptcy; subsidies; price elasticity; market segmentation; cash
        flow"""
    ),
    "idea": items(
        """free will; utilitarianism; stoicism; existentialism; justice; the social contract; beauty; consciousness;
        personal identity; scepticism; human rights; tolerance; irony; altruism; democracy; happiness; empiricism;
        the trolley problem; nihilism; moral relativism; solitude; the golden rule; truth; ambition; friendship;
        determinism; common sense; civil disobedience; the meaning of work; originality; privacy; forgiveness"""
    ),
    "health": items(
        """insomnia; back pain; seasonal allergies; high blood pressure; migraine; dehydration; a sprained ankle;
        anaemia; stress; the common cold; sunburn; food poisoning; asthma; type 2 diabetes; heartburn; eye strain; a
        nosebleed; motion sickness; low iron; dry skin; burnout; a sore throat; high cholesterol; muscle cramps;
        tinnitus"""
    ),
    "country": items(
        """Japan; Brazil; Norway; Egypt; Canada; Vietnam; Portugal; Kenya; Mexico; Iceland; India; Greece; New Zealand;
        Morocco; Poland; Chile; Thailand; Ireland; Turkey; Peru; Finland; South Korea; Argentina; Italy; Ghana;
        Nepal; Switzerland; Indonesia; Cuba; Australia; Hungary; Ethiopia; the Netherlands; Colombia; Jordan;
        Sweden; Malta"""
    ),
    "goal": items(
        """learn to swim as an adult; save money for a house; read more books; eat less sugar; wake up earlier; run 5
        km; find a first job; make new friends in a new city; grow herbs indoors; speak in public; write a novel;
        lose weight; organise a garage; train a puppy; prepare for a maths exam; start a podcast; reduce food waste;
        sleep better; learn touch typing; move abroad; repair a bicycle; build a website; host a dinner party; quit
        smoking; meditate; plan a wedding; buy a used car; set up a vegetable garden; learn the guitar; work from
        home; negotiate a salary; pack for a long trip; memorise vocabulary; adopt a cat; paint a room; study
        abroad; open a small cafe; camp in winter"""
    ),
    "event": items(
        """a school reunion; a charity run; a birthday picnic; a neighbourhood flea market; a science fair; a book
        club; a retirement party; a company picnic; a wine tasting; a poetry evening; a bicycle tour; a film
        festival; a housewarming party; a job fair; a chess tournament; a beach clean-up; a baby shower; a coding
        workshop; a farewell dinner; a summer camp; a street food festival; a blood donation day; a board game
        night; a concert"""
    ),
    "place": items(
        """an abandoned railway station; a lighthouse; a crowded night market; a desert motel; a floating village; a
        mountain hut; an underground library; a harbour in fog; a space station; a greenhouse in winter; an old
        theatre; a fishing village; a laundromat at midnight; a castle kitchen; a submarine; a rooftop garden; a
        small-town diner; a ghost town; a sleeper train; an island without clocks; a snowed-in airport; a circus
        tent; a salt mine; a school after dark; a tree house; a museum basement; a river barge; a petrol station in
        the desert"""
    ),
    "person": items(
        """Maria; Ahmed; Sofia; Daniel; Priya; Tomas; Grace; Yuki; Elena; Marcus; Fatima; Oscar; Nina; Kwame; Julia;
        Pavel; Amara; Henrik; Lucia; Ravi; Clara; Mateo; Ingrid; Samuel; Leila; Jonas; Mei; Victor; Hannah; Diego;
        Aisha; Felix; Rosa; Emil; Zara; Anton; Beatrice; Carlos; Dara; Ethan; Freya; Gabriel; Hugo; Iris; Jamal;
        Kira; Liam; Mona"""
    ),
    "language": items(
        "Python; JavaScript; Java; C++; Go; Rust; TypeScript; C#; PHP; Ruby; Kotlin; Swift; R; Bash; Perl"
    ),
    "tool": items(
        """Git; Docker; Excel; PostgreSQL; nginx; pandas; React; Kubernetes; Redis; Linux; SQLite; Django; Flask;
        NumPy; Jenkins; Terraform; PowerPoint; Photoshop; WordPress; LaTeX; Vim; MongoDB; GraphQL; Ansible; Blender;
        Arduino"""
    ),
    "small_thing": items(
        """rain; a lost glove; the last bus; an empty swing; autumn leaves; a cup of coffee; the moon; a grandmother's
        hands; a traffic light; an old photograph; the first snow; a moth at a window; a closed shop; the sea at
        night; a shadow; a long queue; a broken string; an unopened letter; a paper boat; the smell of bread; a
        Sunday afternoon; a stone; a train window; the wind; a cactus; a stray dog; a library; a power cut; an
        elevator; the colour blue; a suitcase"""
    ),
    "issue": items(
        """remote work; school uniforms; zoos; nuclear energy; a four-day work week; homework; social media for
        teenagers; space exploration; fast fashion; public transport without fares; artificial meat; tipping;
        mandatory voting; electric scooters; standardised tests; daylight saving time; video games in class;
        genetically modified crops; a universal basic income; online shopping; cash payments; pets in offices;
        tourism limits; city-wide speed limits; AI-written news; plastic bags; single-use cutlery; animal testing;
        open borders; unpaid internships; e-books"""
    ),
    "product": items(
        """a folding bike; noise-cancelling earplugs; a solar phone charger; a smart plant pot; a reusable coffee cup;
        a standing desk; an electric toothbrush; a hiking tent; a language app; a meal kit; a cordless drill; a yoga
        mat; a robot vacuum; a children's night light; a weather station; a travel pillow; handmade soap; a puzzle
        subscription; a water filter; a bread machine; a bamboo keyboard; a bird feeder with a camera; a portable
        projector; oat milk"""
    ),
}
