"""More structured prompts: code, tests, SQL, shell, HTML, regular expressions, tables, JSON documents."""

from treewise.data.own_prompts.forms import Forms, items, lines

FORMS = (
    Forms(
        lines(
            """
            Write a {language} function that {job_of_code}.
            Write a {language} program that {job_of_code} and prints the result.
            How do I write {language} code that {job_of_code}?
            Write unit tests for a {language} function that {job_of_code}.
            Explain, with {language} code, how a program {job_of_code} and what it costs in time and memory.
            Write a {language} class whose method {job_of_code}.
            """
        ),
        22,
        {
            "job_of_code": items(
                """reverses the words of a sentence; finds the second largest number of a list; checks if a number is
                prime; reads a CSV file and sums a column; downloads a web page and counts its links; sorts dates
                written as text; converts temperatures between scales; generates a random password; checks whether
                two words are anagrams; solves a quadratic equation; prints a multiplication table; finds duplicate
                files in a folder; counts down with a timer; draws a bar chart of word lengths; parses a log line;
                rolls dice until a six appears; validates a credit card number; computes the distance between two
                points on a map; merges two sorted lists; finds all pairs that sum to a target; caches the results
                of a slow function; renames all photos by date; implements a stack with a minimum; performs binary
                search; finds the longest palindrome in a text; computes Fibonacci numbers without recursion;
                transposes a matrix; removes comments from source code; encrypts text with a Caesar shift; splits a
                bill fairly; simulates a queue at a bank; plays tic-tac-toe; walks a binary tree level by level;
                detects a cycle in a linked list; computes the edit distance of two words; formats a phone number;
                converts numbers to words; compresses runs of equal letters; plans a knight's tour; counts the
                islands in a grid; evaluates an arithmetic expression; finds the median of a stream of numbers"""
            )
        },
    ),
    Forms(
        lines(
            """
            Given a table {table}, write an SQL query that {report}.
            A database has the table {table}. Write SQL that {report}, and explain which index helps.
            Write the CREATE TABLE statement for {table} with suitable types, and insert three rows.
            """
        ),
        26,
        {
            "table": items(
                """books(id, title, author, year, price); employees(id, name, department, salary, hired_on);
                flights(id, origin, destination, departs_at, seats); students(id, name, course, grade, year);
                visits(id, patient, doctor, visited_on, fee); sensors(id, room, measured_at, value, unit);
                matches(id, home, guest, home_goals, guest_goals, played_on); recipes(id, name, minutes, portions,
                author); rentals(id, bicycle, customer, started_at, ended_at); songs(id, title, artist, seconds,
                plays); tickets(id, event, buyer, price, bought_on); plants(id, species, bed, planted_on, height)"""
            ),
            "report": items(
                """counts the rows per group of your choice; returns the five newest rows; finds duplicate entries;
                computes an average per month; lists groups with more than ten rows; finds the row with the largest
                value; shows each row with a rank; compares this year with last year; returns rows with missing
                values; deletes everything older than two years; raises one numeric column by five percent for one
                group; returns the share of every group in percent; pairs rows that share a value; fills a summary
                table"""
            ),
        },
    ),
    Forms(
        lines(
            """
            Write a shell command that {shell}.
            Write a Bash script that {shell} and stops with a message when something goes wrong.
            Explain what to type in a Linux terminal so that it {shell}.
            """
        ),
        14,
        {
            "shell": items(
                """lists the ten largest files; counts the lines of all text files below a folder; kills a frozen
                program by name; replaces a word in many files; makes a dated backup of a folder; shows which
                program uses a port; converts all PNG images to JPEG; watches a log file for errors; renames files
                to lower case; deletes empty folders; downloads a list of addresses; prints the third column of a
                file; checks free disk space; compares two folders; runs a command every five minutes; unpacks every
                archive in a folder"""
            )
        },
    ),
    Forms(
        lines(
            """
            Write the HTML page for {page}.
            Write HTML and CSS for {page} with two columns that stack on a phone.
            Write a React component that shows {page}.
            Write a regular expression that matches {pattern}, and explain every part.
            Write a Python function that uses a regular expression to find {pattern} in a text.
            Make a Markdown table about {item}, {item2} and {item3} with columns of your choice.
            Make a table that compares {tech} and {tech2} in five rows.
            Make a CSV file with a header and eight invented rows about {record}.
            Give me a JSON object that describes {record}.
            Write a YAML file that configures {service}.
            Write an XML document for {record}.
            Draw a flow chart of {service} as Mermaid code.
            Write a Dockerfile for {service}.
            Write an OpenAPI description with two endpoints for {service}.
            Convert this line into JSON: name={person}; job={job}; city={city}; age={18..80}; hobbies={hobby}, {hobby2}
            Turn this into a Markdown table: {food} {3..9} euros, {food2} {3..9} euros, {food3} {3..9} euros
            Extract all numbers as a JSON list: {person} bought {2..20} {animal} stamps for {3..30} euros on day \
              {1..28} in {city}.
            """
        ),
        12,
        {
            "page": items(
                """a recipe for {food}; a login form; a photo gallery; a price list of a hairdresser; a countdown to a
                concert; a to-do list; a weather card; a contact form; a quiz with one question; a museum's opening
                hours; a blog post; a menu with three dishes; a progress bar; a calendar of one month; a shopping
                cart""".replace("{food}", "soup")
            ),
            "pattern": items(
                """dates such as 24.12.2025; email addresses; hexadecimal colours; times between 00:00 and 23:59;
                postal codes; words that begin and end with the same letter; quoted strings; IPv4 addresses; prices
                in euros; hashtags; repeated words; license plates; file names that end in .jpg or .png; numbers
                with thousands separators"""
            ),
            "item": items(
                """copper; bamboo; wool; oak; tea; coffee; bicycles; trams; rice; wheat; violins; flutes; cats; dogs;
                chess; tennis; novels; films; solar power; coal; cheese; butter; Mars; Venus; ferries; planes; silk;
                cotton"""
            ),
            "record": items(
                """a library loan; a train ticket; a hospital bed; a football player; a parcel; a garden plant; a bank
                transfer; a hotel room; a weather report; a music album; a recipe; a job advert; a museum object; a
                dog in a shelter; a software licence; a cinema show"""
            ),
            "service": items(
                """a small web shop; a chat server; a nightly backup; a photo upload; a login with two steps; a job
                queue; a weather station; a ticket machine; a newsletter; a web crawler; a translation service; a
                log collector; a coffee machine; a library catalogue"""
            ),
        },
    ),
)
