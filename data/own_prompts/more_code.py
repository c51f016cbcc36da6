"""Code that someone pastes: to explain, mend, shorten, translate or test."""

from treewise.data.own_prompts.forms import Forms, lines

_SNIPPETS = (
    "def average(values):\n    total = 0\n    for v in values:\n        total += v\n    return total / len(values)",
    'def greet(names):\n    for i in range(len(names) + 1):\n        print("Hello, " + names[i])',
    "function add(item, cart = []) {\n  cart.push(item)\n  if (cart.length = 10) console.log('full')\n  return cart\n}",
    "SELECT name, SUM(price) FROM sales WHERE SUM(price) > 100 GROUP BY shop;",
    "for f in *.txt; do\n  mv $f `echo $f | tr A-Z a-z`\ndone",
    "import time\n\ncache = {}\n\ndef slow(n):\n    if n in "
    "cache:\n        return cache[n]\n    time.sleep(1)\n    return n * n",
    "class Account:\n    balance = 0\n    history = []\n\n    "
    "def deposit(self, amount):\n        self.balance += amount\n"
    "        self.history.append(amount)",
    "int find(int[] a, int x) {\n  int lo = 0, hi = a.length;\n  while (lo < hi) {\n    int mid = (lo + hi) / 2;\n"
    "    if (a[mid] < x) lo = mid; else hi = mid;\n  }\n  return lo;\n}",
    "words = open('book.txt').read().split()\nunique = []\nfor w "
    "in words:\n    if w not in unique:\n        unique.append(w)\n"
    "print(len(unique))",
    'def load(path):\n    try:\n        return json.load(open(path))\n    except:\n        return {}',
    "<ul>\n  <li>Tea\n  <li><a href=coffee.html>Coffee</a></li>\n  <img src='cup.png'>\n</ul>",
    "const total = orders.filter(o => o.paid).map(o => o.price).reduce((a, b) => a + b)",
    "func worker(jobs chan int, results chan int) {\n\tfor {\n\t\tj := <-jobs\n\t\tresults <- j * 2\n\t}\n}",
    "def fib(n):\n    return n if n < 2 else fib(n - 1) + fib(n - 2)",
    "server:\n  port: 80\n  hosts:\n  - a.example.org\n   - b.example.org\n  tls: yes",
    "fn longest(a: &str, b: &str) -> &str {\n    if a.len() > b.len() { a } else { b }\n}",
    "df = pd.read_csv('rain.csv')\nfor i in range(len(df)):\n    df.loc[i, 'inches'] = df.loc[i, 'mm'] / 25.4",
    "^(\\d{2})[./-](\\d{2})[./-](\\d{4})$",
)  # fmt: skip

FORMS = (
    Forms(
        lines(
            """
            What does this code do?¶¶{snippet}
            Find the mistake, if there is one, and show the corrected version.¶¶{snippet}
            Explain this line by line to a beginner:¶¶{snippet}
            Make this faster or say why it cannot be made faster.¶¶{snippet}
            Rewrite this in {language}:¶¶{snippet}
            Write comments and better names for this code, but do not change what it does:¶¶{snippet}
            Write three tests for this code:¶¶{snippet}
            A colleague asks for a review of this. Write the review in at most five points.¶¶{snippet}
            How should this be changed so that it {wish}?¶¶{snippet}
            {snippet}¶¶What can go wrong here?
            """
        ),
        18,
        {
            "snippet": _SNIPPETS,
            "wish": lines(
                """
                copes with empty input
                reports its progress
                can be called from several threads
                writes its result to a file
                reads its settings from the command line
                stops after ten seconds
                handles text in every language
                returns an error instead of failing silently
                works on very large input
                """
            ),
        },
    ),
)
