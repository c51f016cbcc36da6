"""What the page's tree explorer reads: the explained trees as compact JSON, tokens as text where they are known."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from treewise.training.explain import ExplainedRequest, ExplainedTree, Explanation

TokenText = Callable[[int], str]
MAX_BYTES = 1_600_000  # of JSON; prompts that do not fit are left out
WITHHELD = "·"


def explorer_data(explanation: Explanation, names: Sequence[str], text_of: TokenText | None) -> dict[str, Any]:
    """A JSON-ready mapping. `names` are the policies' as the page shows them; `text_of` gives a token's text.

    Prompts beyond `MAX_BYTES` are left out from the end, the first never, and counted in `left_out`.
    """
    words = _Words(text_of)
    requests: list[dict[str, Any]] = []
    size = 0
    for request in explanation.requests:
        value = _request(request, words)
        size += len(dumps(value))
        if requests and size > MAX_BYTES:
            break
        requests.append(value)
    return {
        "policies": list(names),
        "scoring": list(explanation.scoring),
        "profile": explanation.profile,
        "floor": explanation.min_path_prior,
        "as_text": text_of is not None,
        "words": words.found,
        "requests": requests,
        "left_out": len(explanation.requests) - len(requests),
    }


def dumps(value: Any) -> str:
    """JSON that may stand inside a script element: no text of a token can end it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for mark, code in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026"), ("\u2028", "\\u2028")):
        text = text.replace(mark, code)
    return text.replace("\u2029", "\\u2029")


def first_tree_table(data: dict[str, Any], fates: Sequence[str]) -> str:
    """The first round of the first prompt as an HTML table, for readers without scripts."""
    tree = data["requests"][0]["trees"][0][0]
    lines = []
    for row in range(len(tree["parent"])):
        cells = (data["words"][tree["token"][row]], tree["depth"][row], tree["survival"][row], fates[tree["fate"][row]])
        lines.append("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in cells) + "</tr>")
    head = "".join(f'<th scope="col">{name}</th>' for name in ("token", "depth", "survival", "what became of it"))
    caption = f"{escape(data['policies'][0])}, first round of {escape(data['requests'][0]['id'])}"
    return f"<table><caption>{caption}</caption><tr>{head}</tr>{''.join(lines)}</table>"


class _Words:
    """Token strings, each once."""

    def __init__(self, text_of: TokenText | None) -> None:
        self.found: list[str] = []
        self._text_of = text_of
        self._places: dict[int, int] = {}

    def __call__(self, token: int) -> int:
        """The place of `token`'s text among those found."""
        place = self._places.get(token)
        if place is None:
            place = self._places[token] = len(self.found)
            self.found.append(self._text(token))
        return place

    def _text(self, token: int) -> str:
        if token < 0:
            return WITHHELD
        return str(token) if self._text_of is None else self._text_of(token)


def _request(request: ExplainedRequest, words: _Words) -> dict[str, Any]:
    return {
        "id": request.prompt_id,
        "task": request.task,
        "first": request.prompt_tokens - 1,
        "text": [words(token) for token in (request.root_token, *request.text)],
        "trees": [[_tree(tree, words) for tree in own] for own in request.trees.values()],
    }


def _tree(tree: ExplainedTree, words: _Words) -> dict[str, Any]:
    depth = np.zeros(len(tree.parent), dtype=np.int64)
    for row, parent in enumerate(tree.parent.tolist()):
        depth[row] = 0 if parent < 0 else depth[parent] + 1
    return {
        "position": tree.position,
        "committed": len(tree.committed),
        "parent": tree.parent.tolist(),
        "depth": depth.tolist(),
        "token": [words(token) for token in tree.token.tolist()],
        "sources": tree.sources.tolist(),
        "grown": tree.grown.tolist(),
        "prior": _numbers(tree.prior, 3),
        "survival": _numbers(tree.survival, 4),
        "draft_prob": _numbers(tree.draft_prob, 3),
        "draft_rank": _numbers(tree.draft_rank, 0),
        "lookup_match": _numbers(tree.lookup_match_length, 0),
        "lookup_count": _numbers(tree.lookup_count, 0),
        "fate": tree.fate.tolist(),
        "match": tree.match.tolist(),
    }


def _numbers(values: NDArray[Any], digits: int) -> list[float | int | None]:
    """Rounded numbers, None where they are not known."""
    rounded = (None if math.isnan(value) else round(value, digits) for value in values.tolist())
    return [None if value is None else int(value) if digits == 0 or value == int(value) else value for value in rounded]
