"""The columns of a trace's two Parquet tables: names, types, units and what an unknown value reads as."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

SCHEMA_VERSION = 3

NAN = float("nan")
FINISHES = ("", "eos", "length", "error")


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a trace table."""

    name: str
    type: Any  # pyarrow type
    unknown: Any  # what a builder fills in where nothing is said; None: must be given
    description: str  # with its unit
    is_late: bool = False  # files from before it lack it, and read as if it were unknown throughout

    def field(self) -> Any:
        """The pyarrow field, its description in the metadata."""
        return pa.field(self.name, self.type, nullable=False, metadata={"description": self.description})


_I8, _I16, _I32, _I64, _U8 = pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8()
_F32, _BOOL, _TEXT = pa.float32(), pa.bool_(), pa.string()


def _list_of(item: Any) -> Any:
    return pa.list_(pa.field("item", item, nullable=False))


LISTS = ("committed", "draft_agrees", "lookup_agrees")  # these three share their offsets

ROUND_COLUMNS: tuple[Column, ...] = (
    Column("request", _I32, None, "index of the request, counted from 0 within its shard"),
    Column("prompt_id", _TEXT, None, "id of the prompt in its prompt set"),
    Column("task", _TEXT, None, "kind of task of the prompt"),
    Column(
        "told_task",
        _TEXT,
        "",
        "kind of task that the policy was told of, by the caller or a recogniser; empty: none",
        is_late=True,
    ),
    Column("round", _I32, None, "index of the round within its request; dense: of the root position"),
    Column("position", _I32, None, "absolute position of the root, counted from 0 at the prompt's first token"),
    Column("generated_tokens", _I32, None, "completion tokens committed before this round, tokens"),
    Column("remaining_tokens", _I32, None, "completion tokens that may still be committed, tokens"),
    Column("prompt_tokens", _I32, None, "length of the prompt, tokens"),
    Column("temperature", _F32, 0.0, "sampling temperature; 0 is greedy"),
    Column("seed", _I64, 0, "seed of the request's noise"),
    Column("root_token", _I32, -1, "token id of the root; -1 where ids are left out"),
    Column("committed", _list_of(_I32), None, "token ids committed by the round; dense: the one next token"),
    Column(
        "draft_agrees",
        _list_of(_I8),
        None,
        "per committed token: 1 if it was the draft's first guess there, 0 if not, -1 if the draft was not asked",
    ),
    Column(
        "lookup_agrees",
        _list_of(_I8),
        None,
        "per committed token: 1 if it was the lookup's first continuation there, 0 if not, -1 if it had none",
    ),
    Column("target_entropy", _F32, NAN, "entropy of the target distribution that the root was drawn from, bits"),
    Column("target_margin", _F32, NAN, "p1 - p2 of the same distribution"),
    Column("lookup_match_length", _F32, NAN, "context matched by the lookup below the root, tokens; 0 is no match"),
    Column("lookup_count", _F32, NAN, "occurrences of the root's first continuation"),
    Column("lookup_share", _F32, NAN, "that count over all continuations of the match"),
    Column("lookup_age", _F32, NAN, "distance from the latest of those occurrences, tokens"),
    Column("recycled_prob", _F32, NAN, "highest recycled probability below the root; NaN without that source"),
    Column("recycled_order", _F32, NAN, "context behind it, tokens; 0: nothing is known"),
    Column("recycled_weight", _F32, NAN, "occurrences of that context"),
    Column("opening", _U8, 0, "source bits asked at the root: 1 lookup, 2 draft, 4 recycled; dense: every source"),
    Column("num_nodes", _I32, None, "rows of this round in the table of nodes"),
    Column("accepted_length", _I32, -1, "depth of the deepest surviving kept node; dense: -1"),
    Column("draft_growths", _I32, 0, "forward passes of the draft in the round"),
    Column("draft_tokens", _I32, 0, "tokens run by those passes, catch-up included, tokens"),
    Column("verify_rows", _I32, 0, "rows of the verify pass, root and padding included; dense: 0"),
    Column("policy_calls", _I32, 0, "calls of the policy's expand and select"),
    Column("fallback", _BOOL, False, "the policy failed and the round was finished without it"),
    Column("suspended", _BOOL, False, "the policy was not asked: it had been slow, or could not begin the request"),
    Column("draft_ms", _F32, NAN, "time of the draft's passes, milliseconds"),
    Column("verify_ms", _F32, NAN, "time of the verify pass, milliseconds"),
    Column("policy_ms", _F32, NAN, "time of the policy's calls, milliseconds"),
    Column("finish", _TEXT, "", "eos, length or error on the last round of a request, else empty"),
    Column(
        "explorer",
        _TEXT,
        "",
        "policy that was drawn to decide the request in place of the manifest's; empty: that one decided",
        is_late=True,
    ),
    Column(
        "propensity",
        _F32,
        1.0,
        "probability with which the policy that decided was drawn; 1 where none was drawn",
        is_late=True,
    ),
    Column(
        "batch_size",
        _I32,
        1,
        "requests that took the round together, whose milliseconds are one share each; dense: 1",
        is_late=True,
    ),
)

NODE_COLUMNS: tuple[Column, ...] = (
    Column("request", _I32, None, "index of the request, as in the table of rounds"),
    Column("round", _I32, None, "index of the round, as in the table of rounds"),
    Column("node", _I32, None, "row of the round's forest, counted from 1; parents come first"),
    Column("parent", _I32, None, "row of the parent; 0 is the root"),
    Column("depth", _I16, None, "distance from the root, tokens"),
    Column("token", _I32, -1, "guessed token id; -1 where ids are left out"),
    Column("level", _I16, None, "level that offered the candidate"),
    Column("sources", _U8, None, "bits of the sources that proposed it: 1 lookup, 2 draft, 4 recycled"),
    Column("draft_prob", _F32, NAN, "draft softmax at temperature 1; NaN where the draft did not run on the parent"),
    Column("draft_rank", _F32, NAN, "rank in the draft's distribution, 0 is the first choice; from 32 on it reads 32"),
    Column("draft_entropy", _F32, NAN, "entropy of the draft's distribution below the parent, bits"),
    Column("draft_margin", _F32, NAN, "p1 - p2 of the same distribution"),
    Column("in_draft_vocab", _BOOL, True, "the draft's head can say this token"),
    Column("draft_drawn_prob", _F32, NAN, "softmax of the draft's warped scores plus the noise; NaN without noise"),
    Column(
        "draft_drawn_rank", _F32, NAN, "rank by those scores, 0 is what the draft would draw; from 32 on it reads 32"
    ),
    Column("draft_gap", _F32, NAN, "highest perturbed score minus the token's, nats, at most 64"),
    Column("lookup_match_length", _F32, NAN, "context matched below the parent, path included, tokens; 0 is no match"),
    Column("lookup_count", _F32, NAN, "occurrences of the match followed by the token"),
    Column("lookup_share", _F32, NAN, "that count over all continuations of the match"),
    Column("lookup_age", _F32, NAN, "distance from the latest of those occurrences, tokens"),
    Column("lookup_rank", _F32, NAN, "rank by count, 0 is the most frequent continuation"),
    Column("recycled_prob", _F32, NAN, "probability that the target gave it behind the same tokens; 0: not remembered"),
    Column("recycled_order", _F32, NAN, "tokens of the longest such context, path included; 0: nothing is known"),
    Column("recycled_weight", _F32, NAN, "occurrences of that context"),
    Column("recycled_rank", _F32, NAN, "rank by that probability, 0 is the highest"),
    Column("admitted", _BOOL, True, "the candidate entered the tree"),
    Column("grown", _U8, 0, "source bits asked below it: by the policy, or by the chain that it is part of"),
    Column("drafted", _BOOL, False, "the draft ran on it: asked for, or as an ancestor of one that was"),
    Column("kept", _BOOL, False, "it was sent to the target"),
    Column("on_path", _BOOL, False, "kept and on the committed path"),
    Column("match", _I8, -1, "1 or 0: it is or is not the target's token below a parent on the path; -1 unknown"),
    Column("survives", _BOOL, False, "its whole path matches"),
)

LATE: dict[str, Any] = {column.name: column.unknown for column in ROUND_COLUMNS if column.is_late}
ROUNDS_SCHEMA: Any = pa.schema([column.field() for column in ROUND_COLUMNS])
NODES_SCHEMA: Any = pa.schema([column.field() for column in NODE_COLUMNS])
