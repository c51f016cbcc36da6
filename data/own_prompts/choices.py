"""Multiple choice with four options: terms and their meanings by field, and single facts."""

import random
from collections.abc import Mapping
from dataclasses import dataclass

from treewise.data.own_prompts.forms import lines

# Field | term = meaning; term = meaning; ...: the wrong options are other terms or meanings of the same field.
_FIELDS = lines(
    """
    law | tort = a civil wrong that leads to damages; perjury = lying under oath; statute = a written law passed by \
      a parliament; injunction = a court order to do or stop something; precedent = an earlier decision that guides \
      later ones; bail = money that secures release before a trial; plaintiff = the party that brings a case; appeal = \
      a request that a higher court review a decision
    psychology | operant conditioning = learning through reward and punishment; cognitive dissonance = discomfort \
      from holding beliefs that conflict; placebo effect = improvement caused by expectation alone; anchoring = \
      leaning too much on the first number heard; attachment = a lasting bond between child and caregiver; bystander \
      effect = helping less when others are present; working memory = holding information for a few seconds in use; \
      projection = ascribing one's own feelings to others
    astronomy | parallax = an apparent shift of a star due to the observer's motion; supernova = the explosion of a \
      massive star; perihelion = the point of an orbit nearest to the sun; albedo = the share of light that a surface \
      reflects; pulsar = a rotating neutron star that sends regular pulses; red shift = a stretching of light from \
      receding sources; nebula = a cloud of gas and dust; eclipse = the passing of one body through another's shadow
    economics | elasticity = how strongly demand reacts to price; deflation = a general fall of prices; oligopoly = \
      a market with few sellers; sunk cost = an expense that cannot be recovered; comparative advantage = being able \
      to make a good at a lower opportunity cost; liquidity = how quickly an asset turns into cash; moral hazard = \
      taking more risk because others bear the cost; progressive tax = a tax whose rate rises with income
    biology | mitochondrion = the part of a cell that releases energy from food; homeostasis = keeping inner \
      conditions stable; allele = one of several forms of a gene; commensalism = a relation that helps one species and \
      leaves the other unharmed; transpiration = loss of water through leaves; ribosome = the place where proteins are \
      built; meiosis = cell division that halves the chromosomes; niche = the role of a species in its surroundings
    chemistry | isotope = an atom with the same protons but other neutrons; catalyst = a substance that speeds up a \
      reaction without being used up; oxidation = the loss of electrons; pH = a measure of how acidic a solution is; \
      sublimation = the change from solid directly to gas; covalent bond = a bond of shared electrons; solvent = the \
      liquid in which something dissolves; noble gas = an element that hardly reacts
    computer science | recursion = a function that calls itself; hash table = a structure that finds values by a \
      computed key; deadlock = two processes that wait for each other for ever; compiler = a program that translates \
      source code; cache = a small fast memory for what is used often; race condition = a result that depends on \
      timing; encryption = making data unreadable without a key; latency = the delay before an answer begins
    medicine | anaemia = a lack of red blood cells or haemoglobin; hypertension = lasting high blood pressure; \
      biopsy = taking tissue for examination; triage = sorting patients by urgency; edema = swelling caused by fluid; \
      arrhythmia = an irregular heartbeat; prognosis = the expected course of an illness; contagion = the passing on \
      of a disease by contact
    logic and argument | straw man = attacking a distorted version of a claim; ad hominem = attacking the speaker \
      instead of the claim; false dilemma = offering two options where there are more; slippery slope = claiming that \
      one step must lead to disaster; circular reasoning = assuming what is to be shown; red herring = leading away \
      from the subject; hasty generalisation = concluding from too few cases; appeal to popularity = holding a claim \
      true because many believe it
    geography | delta = land formed by a river at its mouth; tundra = a treeless cold plain; isthmus = a narrow \
      strip of land between two seas; monsoon = a wind that changes with the seasons and brings rain; archipelago = a \
      group of islands; watershed = a line that divides river basins; fjord = a long narrow inlet carved by ice; oasis \
      = a fertile spot in a desert
    music | crescendo = a gradual growing louder; fugue = a piece in which voices enter one after another with one \
      theme; tempo = the speed of the music; octave = the distance between a note and the next of the same name; \
      libretto = the text of an opera; syncopation = stress on a weak beat; timbre = the colour of a sound; chord = \
      several notes sounding together
    literature | metaphor = a comparison without like or as; irony = saying the opposite of what is meant; \
      protagonist = the main figure of a story; soliloquy = a speech of a figure alone on the stage; foreshadowing = a \
      hint at what comes later; stanza = a group of lines in a poem; satire = mockery that criticises; allegory = a \
      story whose figures stand for ideas
    statistics | median = the middle value of a sorted list; variance = the mean squared distance from the mean; \
      outlier = a value far from all others; correlation = how two quantities vary together; p-value = how likely data \
      at least as extreme are if there is no effect; confounder = a third quantity that influences both others; sample \
      = the part of a population that is observed; mode = the most frequent value
    government | veto = the right to stop a decision; referendum = a vote of the people on one question; federalism \
      = a division of power between a state and its parts; census = an official count of the population; filibuster = \
      talking at length to delay a vote; coalition = parties that govern together; impeachment = charging an official \
      with misconduct; gerrymandering = drawing districts to favour one party
    management | benchmarking = comparing oneself with the best in the field; outsourcing = giving work to another \
      company; break-even point = where income just covers cost; delegation = handing a task and its authority to \
      someone; stakeholder = anyone affected by a decision; bottleneck = the step that limits the whole process; just \
      in time = delivering parts only when needed; span of control = the number of people one leader directs
    cooking | blanching = a short boiling followed by cold water; braising = frying and then cooking slowly in some \
      liquid; julienne = cutting into thin strips; proofing = letting dough rise; deglazing = loosening the browned \
      bits in a pan with liquid; marinating = soaking food in a seasoned liquid; reducing = thickening a liquid by \
      boiling; kneading = working dough with the hands
    """
)
# Question | right | wrong | wrong | wrong
_FACTS = lines(
    """
    Which metal is liquid at room temperature? | mercury | tin | zinc | copper
    Which organ makes insulin? | the pancreas | the liver | the spleen | the kidney
    How many sides does a heptagon have? | seven | six | eight | nine
    Which ocean is the largest? | the Pacific | the Atlantic | the Indian Ocean | the Arctic
    Which instrument has black and white keys? | the piano | the cello | the oboe | the harp
    What do bees collect from flowers? | nectar | sap | resin | dew
    Which of these is a prime number? | 31 | 27 | 39 | 51
    What is the square root of 169? | 13 | 12 | 14 | 17
    What does a thermometer measure? | temperature | pressure | humidity | speed
    Which gas do plants take in for photosynthesis? | carbon dioxide | helium | nitrogen | methane
    In which direction does the sun rise? | in the east | in the west | in the north | in the south
    Which of these animals is a mammal? | the whale | the shark | the penguin | the toad
    Which blood cells fight infections? | white blood cells | red blood cells | platelets | plasma cells only
    Which language has the most native speakers? | Mandarin Chinese | English | French | German
    What is the boiling point of water at sea level? | 100 degrees Celsius | 90 degrees Celsius | 120 degrees \
      Celsius | 80 degrees Celsius
    Which part of a plant takes up water? | the root | the petal | the seed | the bud
    Which unit measures electrical resistance? | the ohm | the volt | the watt | the newton
    What is the sum of the angles in a triangle? | 180 degrees | 90 degrees | 270 degrees | 360 degrees
    Which country is shaped like a boot? | Italy | Spain | Greece | Norway
    Which of these foods contains the most protein? | lentils | lettuce | apples | white rice
    Which layer of the atmosphere is closest to the ground? | the troposphere | the stratosphere | the mesosphere | \
      the exosphere
    Which colour results from mixing blue and yellow paint? | green | purple | orange | brown
    What comes next: 3, 6, 12, 24, ...? | 48 | 36 | 30 | 42
    A shirt costs 40 dollars after a discount of 20 percent. What did it cost before? | 50 dollars | 48 dollars | 60 \
      dollars | 44 dollars
    If all roses are flowers and some flowers fade, which statement must be true? | All roses are flowers. | Some \
      roses fade. | All flowers are roses. | No rose fades.
    Which device turns electrical energy into motion? | a motor | a battery | a resistor | a solar cell
    Which planet has the shortest year? | Mercury | Earth | Jupiter | Neptune
    What is 15 percent of 80? | 12 | 8 | 15 | 18
    Which vitamin does the skin make in sunlight? | vitamin D | vitamin C | vitamin A | vitamin K
    Which data structure works first in, first out? | a queue | a stack | a tree | a set
    Which word is the opposite of scarce? | plentiful | rare | hidden | costly
    Which sentence is correct? | She doesn't know him. | She don't know him. | She not knows him. | She doesn't \
      knows him.
    """
)
_ASK = (
    "A question on {field}: {question}\n{options}\nGive the letter and one sentence of explanation.",
    "{question}\n\n{options}\n\nWhich one is right? Think it through first.",
    "Quiz ({field})\n{question}\n{options}\nAnswer:",
)


@dataclass(frozen=True, slots=True)
class Choices:
    """Every term asked for by its meaning and the other way round, and every fact once."""

    def draw(self, seed: str, shared: Mapping[str, tuple[str, ...]]) -> list[list[str]]:
        """One list of prompts for each of the three kinds."""
        kinds: list[list[str]] = [[], [], []]
        for entry in _FIELDS:
            field, _, pairs = (part.strip() for part in entry.partition("|"))
            meanings = dict(pair.strip().split(" = ") for pair in pairs.split(";"))
            terms = {meaning: term for term, meaning in meanings.items()}
            for term, meaning in meanings.items():
                kinds[0].append(_question(seed, field, f"What is meant by {term}?", meaning, list(meanings.values())))
                kinds[1].append(_question(seed, field, f"What is this called: {meaning}?", term, list(terms.values())))
        for fact in _FACTS:
            question, right, *wrong = (part.strip() for part in fact.split("|"))
            kinds[2].append(_question(seed, "general knowledge", question, right, wrong))
        for place, prompts in enumerate(kinds):
            random.Random(f"{seed}/choices/{place}").shuffle(prompts)
        return kinds


def _question(seed: str, field: str, question: str, right: str, others: list[str]) -> str:
    rng = random.Random(f"{seed}/{question}")
    options = [right, *rng.sample([other for other in others if other != right], 3)]
    rng.shuffle(options)
    listed = "\n".join(f"{letter}. {option}" for letter, option in zip("ABCD", options, strict=True))
    ask = rng.choice(_ASK)
    return ask.replace("{field}", field).replace("{question}", question).replace("{options}", listed)
