"""More texts to summarise: abstracts joined from matching sentences, reports, messages and instructions."""

from treewise.data.own_prompts.forms import Forms, items, lines
from treewise.data.own_prompts.more_rag import FACTS

_ASK = (
    "Summarize in one sentence:\n\n{text}",
    "Here is an abstract. Say in two sentences what was done and what came out.\n\n{text}",
    "TL;DR, please: {text}",
    "Summarize for a reader outside the field: {text}",
)
_NEWS_ASK = (
    "Summarize: {text}",
    "Give me the three most important points of this report as bullets.\n\n{text}",
    "{text}\n\nSummarize the above in at most 30 words.",
    "Write a headline and a summary of two sentences for this text:\n\n{text}",
)
_ABSTRACT = "{problem} {approach} {result} {meaning}"

_MODELS = {
    "problem": lines(
        """
        Neural networks for {task} need large amounts of labelled data, which few laboratories can afford.
        Models that do well on {task} often fail when {shift}.
        Training a network for {task} is slow because most of the computation is spent on easy examples.
        Little is known about what networks learn when they are trained for {task}.
        Most methods for {task} ignore the order in which the examples arrive.
        Small devices cannot hold the models that are used for {task} today.
        Evaluations of {task} rely on a single test set, which hides large differences between methods.
        People rarely trust a system for {task} that cannot say when it is unsure.
        """
    ),
    "approach": lines(
        """
        We propose to {trick} and derive a bound on the error that this causes.
        In this work we {trick}, without changing the architecture.
        We present a method that learns to {trick} from a handful of examples.
        Our approach combines two simple steps: we {trick}, and we {trick2}.
        We ask whether it is enough to {trick}, and compare six variants under the same budget.
        We introduce a benchmark of {3..15} data sets and a baseline that does no more than {trick}.
        """
    ),
    "result": lines(
        """
        On {3..9} public data sets, the error falls by {4..30} percent while training takes {2..6} times less time.
        Experiments show gains of {2..9} points over strong baselines, the largest where {shift}.
        The method matches much larger models with only {5..40/5} percent of their parameters.
        The results are mixed: accuracy improves on {2..5} tasks, but calibration becomes worse.
        We find no benefit on clean data, yet a clear one when {shift}.
        An ablation shows that nearly all of the gain is due to the first step.
        """
    ),
    "meaning": lines(
        """
        This suggests that data quality matters more here than model size.
        Code and models are made available.
        We discuss when the method should not be used.
        The analysis also explains a number of earlier failures.
        We hope that this makes {task} accessible to smaller groups.
        The idea carries over to other problems in which labels are rare.
        """
    ),
    "task": items(
        """image classification; machine translation; speech recognition; protein folding; question answering; weather
        forecasts; robot grasping; code completion; fraud detection; handwriting recognition; molecule design; music
        generation; traffic prediction; sentiment analysis; medical imaging; recommending articles; summarising
        dialogues"""
    ),
    "shift": items(
        """the camera changes; noise is added; the speakers have an unfamiliar accent; labels are wrong; classes are
        unbalanced; the test period lies years after training; inputs are longer than in training; one sensor fails"""
    ),
    "trick": items(
        """replace half of the layers by a shared one; reweight each example by its age; predict the hidden states of a
        teacher; mask the most frequent features; train on pairs instead of single examples; store past gradients in
        a small memory; choose the next batch by its expected gain; add noise to the labels; split the network along
        its width; project the inputs onto a learned graph; reuse the attention of the previous step; penalise
        confident mistakes"""
    ),
}
_FIELD = {
    "problem": lines(
        """
        The influence of {cause} on {effect} has been debated for decades.
        {Effect} is often blamed on {cause}, but field data are rare.
        In many regions, {effect} has changed faster than models predict.
        It is unclear whether {cause} or {cause2} drives {effect}.
        """
    ),
    "approach": lines(
        """
        We observed {12..240} sites in {country} over {2..15} years.
        We combined satellite images with interviews of {30..300/10} residents.
        In a controlled experiment, {40..400/20} plots were treated at random.
        We reviewed {60..300/10} published studies and repeated the analysis of {8..30} of them.
        Using archives from {city}, we rebuilt a record that reaches back to {1780..1920}.
        """
    ),
    "result": lines(
        """
        {Effect} was {10..60} percent lower where {cause} had been strongest, even after {cause2} was accounted for.
        We found a weak link with {cause} and a strong one with {cause2}.
        The effect appeared only after {3..9} years and vanished again within {2..5}.
        Contrary to our expectation, {cause} had no measurable effect.
        Two thirds of the variation could be explained by {cause2} alone.
        """
    ),
    "meaning": lines(
        """
        Local measures may therefore work better than national ones.
        Future work should separate the two causes by longer observation.
        The findings speak for cheap sensors in place of yearly surveys.
        Our estimates are conservative, since the driest years are missing.
        Planners should not expect quick results.
        """
    ),
    "cause": items(
        """street lighting; road salt; winter tourism; nitrogen in rain; grazing; ship noise; a lack of shade; cheap
        fertiliser; night shifts; microplastics; irrigation; warm autumns; invasive mussels; air travel; hedge
        removal"""
    ),
    "effect": items(
        """the number of moths; crop yield; groundwater quality; sleep among teenagers; the spread of ticks; forest
        growth; fish migration; asthma in children; soil life; the return of storks; lake ice; pollination; rural
        employment"""
    ),
}
_REPORTS = lines(
    """
    {town} - A fire in the old {building} on {day} night caused damage of about {20..900/10},000 euros. {person} \
      {surname}, a(n) {job} who lives opposite, noticed smoke at {1..5} a.m. and woke the neighbours. Nobody was hurt, \
      but {5..40} people had to spend the night in a school. The cause is not yet known; the police are looking for a \
      witness who was seen with a(n) {object}. The mayor promised that the building would be repaired before {month}.
    The council of {town} has decided to close the road along the harbour to cars from {month} on. For {3..9} months \
      it will be a test; after that the citizens can vote. Shop owners fear for their income, while the association of \
      parents welcomes the plan. A similar test in {city} ended early because deliveries did not work. The council \
      says it has learned from this and will allow vans until {9..11} a.m.
    A(n) {animal} that escaped from a private garden in {town} has been found after {3..20} days. {person} \
      {surname}, a retired {job}, discovered it in a shed and offered it {food}. Experts had searched with drones and \
      a loudspeaker. The owner must pay a fine of {200..900/50} euros and build a higher fence. The {building} has \
      already announced a small exhibition about the adventure.
    From: {person}¶To: the {hobby} club¶Dear all, our trip on {day} has to move because the hall in {town} is being \
      painted. I suggest the week after, same time, or a smaller meeting at my place for those who cannot come then. \
      {person2} will bring the drinks; we still need someone for {food}. Please tell me by {day2} and do not forget \
      the fee of {5..20} euros. And whoever has borrowed the {object}: we need it back.
    Minutes of the meeting on {day}. {person} reported that the sale of {product} fell by {3..18} percent in \
      {month}. {person2} believes the price is to blame, {person3} the bad weather. It was agreed to lower the price \
      in {country} for {2..6} weeks and to compare. The new {job} starts next month. The question of {issue} was put \
      off once more. Next meeting: {day2}, with coffee.
    For years {person} {surname} tried to {goal}. Courses did not help, nor did the books that friends kept sending. \
      Then a(n) {job} from {town} gave a simple piece of advice: begin with five minutes, at the same hour, every day. \
      After {2..9} months the change was plain to see, and {person} now teaches others on {day} evenings. The advice \
      costs nothing, says {person}, which may be why so few people take it.
    {country} wants to triple its use of {tech} within {5..15} years. The plan, presented in {city} on {day}, \
      foresees {2..9} billion euros of public money and simpler rules. Industry praised it; scientists called the \
      goals possible but the schedule brave. The opposition asks where the {job}s are to come from who must do the \
      work. A first report is due in {month}.
    A: Did you call the {job} about the {object}?¶B: I did, but nobody answered. I'll try again on {day}.¶A: We need \
      it before {event}. Otherwise we have to rent one for {20..90/5} euros.¶B: {person} said we could borrow hers, if \
      we bring it back clean this time.¶A: Fine. Then I'll buy {food} as a thank-you, and you call {person} \
      tonight.¶B: Agreed. And I'll tell the others that we start an hour later.
    """
)

FORMS = (
    Forms(_ASK, 66, {**_MODELS, "text": (_ABSTRACT,)}),
    Forms(_ASK, 50, {**_FIELD, "text": (_ABSTRACT,)}),
    *(Forms(_NEWS_ASK, 12, {**FACTS, "text": (report,)}) for report in _REPORTS),
)
