"""What an answer is worth beside plain decoding's: the tokens they share, ROUGE-L, and whether JSON is JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from treewise.data.errors import MissingExtraError
from treewise.data.prompt_set import Prompt
from treewise.data.task_kinds import kind_of

ROUGE_PACKAGE, ROUGE_EXTRA = "rouge-score", "quality"

# Runs of letters and digits; in scripts that put no spaces between words, single characters.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_\u3040-\u30ff\u3400-\u9fff]+")
_JSON = re.compile(r"\bjson\b", re.IGNORECASE)
_JSON_TASKS = ("json", "function_calling", "tool_use")
# A fenced block: its label and its lines; an answer that was cut off may leave its last one open.
_FENCE = re.compile(r"^[ \t]*```[ \t]*([\w+-]*)[^\n]*\n(.*?)(?:^[ \t]*```|\Z)", re.DOTALL | re.MULTILINE)
_PYTHON = ("python", "python3", "py")


class RougeL:
    """ROUGE-L by `rouge-score`: the F measure of the longest common subsequence of words.

    Words are lower-case runs of letters and digits, of any script: those of the package itself, where a text is
    English. Lin, "ROUGE: a package for automatic evaluation of summaries", 2004. Raises `MissingExtraError` without
    the package.
    """

    def __init__(self) -> None:
        try:
            from rouge_score.rouge_scorer import RougeScorer
        except ImportError as error:
            raise MissingExtraError(ROUGE_PACKAGE, ROUGE_EXTRA) from error
        self._scorer = RougeScorer(["rougeL"], tokenizer=self)

    def tokenize(self, text: str) -> list[str]:
        """The words of `text`, as the package asks for them."""
        return _WORD.findall(text.lower())

    def __call__(self, reference: str, text: str) -> float:
        """From 0 to 1; 1 for the same text, also where it holds no word."""
        return 1.0 if text == reference else float(self._scorer.score(reference, text)["rougeL"].fmeasure)


def shared_tokens(expected: Sequence[int], found: Sequence[int]) -> int:
    """Tokens before the first difference of two answers; the length of both where they are the same."""
    shared = min(len(expected), len(found))
    return next((place for place in range(shared) if expected[place] != found[place]), shared)


def asks_for_json(prompt: Prompt) -> bool:
    """Whether the answer should be JSON: the task is structured output, and its name or the prompt's text says so.

    A prompt that brings tests asks for code, whatever else it mentions.
    """
    if prompt.tests or kind_of(prompt.task) != "structured":
        return False
    return prompt.task.lower().replace("-", "_") in _JSON_TASKS or bool(_JSON.search(prompt.text))


def is_json(text: str) -> bool:
    """Whether the whole answer, or its first fenced block, is one JSON object or array by RFC 8259."""
    block = _FENCE.search(text)
    return any(_parses(part) for part in (text, block[2] if block else ""))


def _parses(text: str) -> bool:
    try:
        return isinstance(json.loads(text, parse_constant=_refuse), dict | list)
    except (ValueError, RecursionError):
        return False


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")  # NaN and infinities, which Python would read


def python_of(text: str) -> str:
    """The Python in an answer: its first block fenced as such, else its first fenced block, else all of it."""
    blocks = _FENCE.findall(text)
    marked = [lines for label, lines in blocks if label.lower() in _PYTHON]
    return next(iter(marked or [lines for _, lines in blocks]), text)
