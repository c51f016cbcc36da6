"""More reasoning prompts: word problems with drawn numbers, puzzles, estimates and logic."""

from treewise.data.own_prompts.forms import Forms, items, lines

FORMS = (
    Forms(
        lines(
            """
            {person} buys {3..9} {goods} for ${2..8} each and pays with a ${50..100/50} bill. How much change does \
              {person} get?
            {person} has {12..40} {goods}. {person2} has {2..4} times as many. How many do they have together?
            A baker makes {20..60/4} rolls every hour for {3..7} hours and sells them in bags of {4..8/4}. How many \
              bags is that?
            {person} reads {12..35} pages a day. After {5..12} days, {40..90/10} pages are left. How long is the book?
            A bus starts with {15..30} passengers. At the first stop {3..9} get off and {5..14} get on, at the \
              second {2..8} get off. How many are on the bus now?
            {person} earns ${11..24} an hour and works {4..8} hours a day, {3..6} days a week. What is the weekly \
              pay after ${30..90/10} of deductions?
            A garden is {8..20} metres long and {4..7} metres wide. A fence costs ${6..15} a metre. What does it \
              cost to fence the whole garden?
            {person} cycles {6..15} km to work and back, {4..5} days a week. How many kilometres is that in {6..12} \
              weeks?
            A tank holds {200..600/50} litres. A pump fills {10..25/5} litres a minute and a leak loses {2..4} \
              litres a minute. How long until it is full?
            {person} saves ${20..60/5} a month and spends {1..4} times ${10..30/5} on presents in a year. How much \
              is left after one year?
            There are {24..32/2} pupils in a class. Half of them play football, {3..6} play tennis and the rest \
              swim. How many swim?
            {person} is {4..9} years older than {person2}. Together they are {40..70/2} years old. How old is each \
              of them?
            A shop lowers the price of a(n) {object} from ${40..120/10} by {10..40/5} percent. What is the new price?
            {person} bakes {3..6} trays of {10..16/2} {goods} and burns {2..9}. The rest is shared among {4..6} \
              friends. How many does each friend get at most?
            A train travels {60..120/10} km/h for {2..4} hours and then {40..80/10} km/h for {1..3} hours. What is \
              its average speed?
            {person} picks {15..40} {goods} on Monday, twice as many on Tuesday and {5..12} fewer than on Tuesday on \
              Wednesday. What is the total?
            A recipe for {4..6} people needs {300..600/50} grams of flour. How much flour is needed for {8..15} people?
            {person} and {person2} paint a fence. Alone, {person} needs {3..6} hours and {person2} needs {7..9} \
              hours. How long do they need together?
            A farmer has {30..60} animals, hens and cows, with {100..160/2} legs in all. How many hens are there?
            A phone plan costs ${10..25/5} a month plus {5..15/5} cents a minute. {person} talked {80..200/20} \
              minutes. What is the bill?
            Tickets cost ${8..14} for adults and ${4..7} for children. A group of {10..20} people with {3..8} \
              children goes in. What do they pay?
            {person} ran {3..6} laps of {400..800/100} metres in {12..30} minutes. What was the average speed in \
              metres per minute?
            Of {80..200/20} {goods}, {10..30/5} percent are broken. A quarter of the good ones is sold. How many are \
              sold?
            {person} drinks {5..9} glasses of {200..300/50} ml a day. How many litres is that in {10..30/5} days?
            The sum of three consecutive numbers is {30..120/3}. What are the numbers?
            """
        ),
        15,
        {
            "goods": items(
                """apples; marbles; cookies; pencils; eggs; stickers; muffins; tulips; postcards; candles; buttons;
                lemons; seashells; balloons; cupcakes; peaches; toy cars; notebooks; sandwiches; chestnuts"""
            )
        },
    ),
    Forms(
        lines(
            """
            Solve for x: {2..9}x + {1..20} = {30..90}.
            Solve the equation x^2 - {5..12}x + {4..20} = 0 and check the result.
            What is {12..98} times {11..49}? Show how to do it in your head.
            Compute {10..90/5} percent of {120..900/20}.
            What is the probability of drawing {2..3} red balls in a row out of {4..7} red and {3..8} blue ones, \
              without putting them back?
            Find the derivative of f(x) = {2..7}x^3 - {2..9}x^2 + {1..8}.
            Find the area and the perimeter of a triangle with sides {3..3}, {4..4} and {5..5}, scaled by {2..12}.
            Continue the sequence and explain the rule: {2..5}, {8..10}, {14..15}, 20, ...
            Convert {1..9} hours, {5..55/5} minutes and {5..55/5} seconds into seconds.
            How many ways are there to seat {4..7} guests in a row if {person} and {person2} must sit side by side?
            What is the remainder when {100..999} is divided by {7..13}?
            Two dice are rolled. What is the probability that the sum is {4..10}?
            Simplify the fraction {24..96/12}/{36..144/12} and explain each step.
            A square has a diagonal of {4..20} cm. What is its area?
            """
        ),
        11,
    ),
    Forms(
        lines(
            """
            Estimate how many {many} there are in {city}. Show each assumption.
            How much would it weigh if you piled up a million {many}?
            How could one find out which {tech} people trust most? Design a small study.
            {person} is taller than {person2}, and {person3} is shorter than {person2}. Who is the shortest? Explain.
            All {plural} like music. Some people who like music dance. Does it follow that some {plural} dance?
            If it takes {3..9} {plural} {10..30/5} minutes to finish {3..9} tasks, how long does one of them need \
              for one task?
            {person} looks at a photo and says: "The father of this person is my father's son." Who is in the photo?
            I put a(n) {object} in a box, the box in a car, and the car in a garage. I take the box out. Where is \
              the {object}?
            {person}, {person2} and {person3} own a(n) {animal}, a(n) {animal2} and a(n) {animal3}. {person} is \
              allergic to the {animal}; {person2} owns the {animal2}. Who owns what?
            Is a(n) {animal} heavier than a(n) {object}? Reason step by step.
            Which is the odd one out: {animal}, {animal2}, {object}, {animal3}? Give your reason.
            {object} is to {job} as what is to a(n) {job2}? Explain the analogy.
            Someone claims: "Since {country} banned {issue}, crime has fallen, so {issue} causes crime." What is \
              wrong with this argument?
            List the hidden assumptions in this sentence: "Everyone in {city} loves {food}, so a restaurant with \
              {food} cannot fail."
            What day of the week will it be {20..300} days after a {day}?
            """
        ),
        14,
        {
            "many": items(
                """piano tuners; bicycles; traffic lights; dogs; bakeries; bricks; windows; umbrellas; lamp posts;
                pigeons; coffee cups; taxis; swimming pools; chess boards; door keys"""
            ),
            "plural": items(
                """gardeners; painters; robots; sailors; cooks; twins; nurses; drummers; pilots; tailors; farmers;
                bakers; clowns; judges; programmers"""
            ),
            "day": items("Monday; Tuesday; Wednesday; Thursday; Friday; Saturday; Sunday"),
        },
    ),
)
