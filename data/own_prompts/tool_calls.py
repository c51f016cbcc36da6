"""Requests that are to be answered by calls of functions described in JSON."""

import json
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from treewise.data.own_prompts.forms import Forms, lines

# Name | what it does | parameters, each `name:type:meaning`, optional ones with a question mark | a request.
_TOOLS = lines(
    """
    get_forecast | Weather forecast for a city. | city:string:Name of the city; days:integer:How many days ahead; \
      unit?:string:celsius or fahrenheit | What will the weather be like in {city} over the next {2..7} days?
    book_table | Reserve a table in a restaurant. | restaurant:string:Name; guests:integer:Number of people; \
      time:string:Time as HH:MM; outside?:boolean:Whether to sit outside | Please book a table for {2..9} at the \
      {town} Inn at {18..21}:30, outside if possible.
    convert_currency | Convert an amount of money. | amount:number:Amount; source:string:Currency code; \
      target:string:Currency code | How much are {20..900} {code} in {code2}?
    send_message | Send a text message. | recipient:string:Who gets it; text:string:The message; \
      urgent?:boolean:Mark as urgent | Tell {person} that I will be {5..45/5} minutes late.
    create_event | Add an entry to the calendar. | title:string:What; day:string:Weekday; start_hour:integer:Hour of \
      the day; guests?:array:Names of guests | Put "{event}" into my calendar for {weekday} at {9..20} o'clock and \
      invite {person} and {person2}.
    play_music | Start playing music. | query:string:Artist, song or mood; volume?:integer:From 0 to 100; \
      shuffle?:boolean:Random order | Play something calm for {hobby}, at volume {10..60/5}.
    set_timer | Start a timer. | minutes:integer:Length in minutes; label?:string:What it is for | Remind me in \
      {3..50} minutes to take the {food} off the stove.
    find_flights | Search for flights. | origin:string:City of departure; destination:string:City of arrival; \
      passengers:integer:Number of travellers; direct?:boolean:Non-stop only | Find non-stop flights from {city} to \
      {city2} for {1..5} people.
    triangle_area | Area of a triangle. | base:number:Length of the base; height:number:Height; unit?:string:Unit of \
      length | What is the area of a triangle with base {3..30} and height {2..20}?
    compound_interest | Final value of an investment. | principal:number:Money invested; rate:number:Yearly rate in \
      percent; years:integer:Number of years | I invest {500..9000/500} dollars at {2..8} percent for {3..20} years. \
      What do I end up with?
    search_recipes | Find recipes. | dish:string:What to cook; without?:array:Ingredients to avoid; \
      max_minutes?:integer:Longest time | Find me a recipe for {food} without nuts that takes at most {20..90/10} \
      minutes.
    translate_text | Translate a text. | text:string:Text; target_language:string:Language; formal?:boolean:Formal \
      address | Translate "Thank you for the {object}" into {tongue}, in a formal way.
    order_taxi | Order a taxi. | pickup:string:Where to start; destination:string:Where to go; seats?:integer:Number \
      of seats | I need a taxi for {2..6} from the station in {city} to {town}.
    get_stock_price | Price of a share. | symbol:string:Ticker symbol; exchange?:string:Exchange; \
      history_days?:integer:Days of history | Show me the price of {symbol} over the last {5..90/5} days.
    turn_light | Switch a lamp. | room:string:Which room; on:boolean:On or off; brightness?:integer:Percent | Dim \
      the light in the {room} to {10..80/10} percent.
    count_calories | Energy of a meal. | dish:string:Name of the dish; portions:number:Number of portions; \
      with_drink?:boolean:Include a drink | How many calories are in {2..4} portions of {food}?
    species_info | Facts about an animal. | animal:string:Common name; fields:array:Which facts; \
      language?:string:Language of the answer | How long does a(n) {animal} live, and what does it eat?
    random_numbers | Draw random whole numbers. | low:integer:Smallest; high:integer:Largest; count:integer:How \
      many; unique?:boolean:No repeats | Draw {3..8} different numbers between {1..10} and {40..99}.
    find_jobs | Search job adverts. | title:string:Profession; city:string:Where; part_time?:boolean:Only part-time \
      | Are there part-time jobs as a(n) {job} in {city}?
    historical_event | Look up a historical event. | topic:string:Event or period; country?:string:Country; \
      detail:string:short or long | Give me a short account of {history}.
    buy_tickets | Buy tickets for an event. | event:string:Name of the event; category:string:Category of seats; \
      quantity:integer:How many; insurance?:boolean:With insurance | Get {2..6} standing tickets for the {town} \
      festival, without insurance.
    route_plan | Plan a route. | start:string:Start; end:string:End; mode:string:car, bicycle or foot; \
      avoid?:array:What to avoid | How do I get from {town} to {town2} by bicycle without using main roads?
    unit_convert | Convert between units. | value:number:Number; from_unit:string:Unit; to_unit:string:Unit; \
      digits?:integer:Decimal places | Convert {3..400} miles into kilometres with {0..3} digits.
    add_contact | Store a contact. | name:string:Full name; phone:string:Telephone number; groups?:array:Groups | \
      Save {person} {surname}, 0{100..999} {1000..9999}, as a friend and colleague.
    water_plants | Water the plants. | zone:string:Part of the garden; litres:number:Amount; at?:string:Time as \
      HH:MM | Give the {zone} {5..40/5} litres at {5..9}:15.
    rate_film | Store a rating. | title:string:Title; stars:integer:From 1 to 5; comment?:string:A comment | I give \
      "{Place}" {1..5} stars; the music was great.
    book_search | Search the library. | author?:string:Author; subject?:string:Subject; year_from?:integer:Earliest \
      year; available?:boolean:Only what is on the shelf | Which books on {science} since {1980..2020} are on the \
      shelf now?
    solve_quadratic | Roots of a quadratic equation. | a:number:Quadratic coefficient; b:number:Linear coefficient; \
      c:number:Constant | Solve {2..6}x^2 - {7..15}x + {1..6} = 0.
    create_user | Create an account. | username:string:Name; role:string:admin, editor or reader; \
      email:string:Address; active?:boolean:Whether the account is active | Make {person} an editor with the address \
      {person}@example.org.
    delete_files | Delete files. | folder:string:Folder; pattern:string:Which files; older_than_days?:integer:Age in \
      days | Remove all .tmp files in /var/cache that are older than {3..60} days.
    distance_between | Distance between two cities. | first:string:City; second:string:City; unit?:string:km or \
      miles | How many miles are there between {city} and {city2}?
    bmi | Body mass index. | weight_kg:number:Weight; height_m:number:Height | I weigh {50..110} kg and am \
      1.{55..95} m tall. What is my BMI?
    cook_program | Start an oven. | program:string:grill, bake or steam; celsius:integer:Temperature; \
      minutes:integer:Duration | Bake the {food} at {150..230/10} degrees for {15..80/5} minutes.
    draw_chart | Draw a chart. | kind:string:bar, line or pie; values:array:Numbers; labels?:array:Names; \
      title?:string:Title | Make a pie chart of {3..20}, {3..20} and {3..20}, called "{Economy}".
    """
)
_WORDS: dict[str, tuple[str, ...]] = {
    "code": ("USD", "EUR", "JPY", "GBP", "CHF", "CAD", "SEK", "PLN", "INR", "BRL", "KRW", "MXN"),
    "tongue": ("German", "French", "Spanish", "Italian", "Polish", "Turkish", "Korean", "Dutch", "Swedish"),
    "weekday": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    "symbol": ("ABCX", "QRTZ", "LUMO", "VNTR", "KETL", "OAKW", "HXGN", "BLUE"),
    "room": ("kitchen", "bedroom", "hall", "bathroom", "study", "cellar", "living room", "garage"),
    "zone": ("roses", "tomatoes", "lawn", "balcony", "herbs", "hedge", "greenhouse", "apple trees"),
    "town": ("Harrowmere", "Denwick", "Saltmarsh", "Tarnbeck", "Karsund", "Rookhaven", "Pinefall", "Ambleton"),
    "surname": ("Okafor", "Lindqvist", "Moreau", "Tanaka", "Novak", "Haddad", "Rossi", "Silva"),
}
_ASK = (
    "You can call these functions:\n{tools}\n\nAnswer the user with the calls only, as a JSON list of objects with "
    '"name" and "arguments".\n\nUser: {request}',
    "Tools (JSON):\n{tools}\n\nWhich call or calls are needed here? Reply in JSON and nothing else.\n{request}",
    "{request}\n\nAvailable functions: {tools}\nRespond with the function call as JSON.",
)


@dataclass(frozen=True, slots=True)
class ToolCalls:
    """`count` requests: with the one function that fits, with others beside it, or two requests in one."""

    count: int

    def draw(self, seed: str, shared: Mapping[str, tuple[str, ...]]) -> list[list[str]]:
        """One list of prompts: one function, one among several, and two requests take turns."""
        rng = random.Random(f"{seed}/tools")
        parsed = [[part.strip() for part in tool.split("|")] for tool in _TOOLS]
        requests = {
            parts[0]: Forms((parts[3],), 1 + 2 * self.count // len(parsed), _WORDS).draw(seed, shared)[0]
            for parts in parsed
        }
        described = {parts[0]: _description(*parts[:3]) for parts in parsed}
        names = list(described)
        prompts: list[str] = []
        for place in range(self.count):
            wanted = [names[place % len(names)]]
            if place % 3 == 2:
                wanted += rng.sample([name for name in names if name not in wanted], 1)
            offered = wanted + (
                rng.sample([name for name in names if name not in wanted], place % 3) if place % 3 else []
            )
            rng.shuffle(offered)
            asked = " ".join(requests[name][(place // len(names)) % len(requests[name])] for name in wanted)
            tools = json.dumps(
                [described[name] for name in offered], indent=1 if len(offered) == 1 and place % 2 else None
            )
            prompts.append(_ASK[place % len(_ASK)].replace("{tools}", tools).replace("{request}", asked))
        return [list(dict.fromkeys(prompts))]


def _description(name: str, purpose: str, parameters: str) -> dict[str, Any]:
    properties: dict[str, dict[str, Any]] = {}
    required = []
    for parameter in parameters.split(";"):
        field, kind, meaning = re.split(r"\s*:\s*", parameter.strip(), maxsplit=2)
        if not field.endswith("?"):
            required.append(field)
        items = {"items": {"type": "string"}} if kind == "array" else {}
        properties[field.removesuffix("?")] = {"type": kind, **items, "description": meaning}
    arguments = {"type": "object", "properties": properties, "required": required}
    return {"name": name, "description": purpose, "parameters": arguments}
