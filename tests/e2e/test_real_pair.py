"""The default target, where it was pulled: a tree commits what plain decoding does."""

import pytest

from tests.engine.tiny import example_cost
from treewise.engine import smollm2
from treewise.engine.decode import Engine, EngineSettings
from treewise.engine.pair import default_draft_folder, encode_prompt, load_pair
from treewise.policy.registry import parse_policy


@pytest.mark.skipif(not smollm2.is_pulled(), reason="smollm2-135m is not in the cache: `treewise models pull` gets it")
def test_a_tree_commits_the_plain_text() -> None:
    pair = load_pair(draft="prune:6-29" if default_draft_folder() is None else "default")
    prompt = encode_prompt(pair, "Name three colours.")
    settings = EngineSettings(time_limit_ms=1e9)
    plain = Engine(pair, parse_policy("plain"), example_cost(), settings).generate(prompt, 12)
    tree = Engine(pair, parse_policy("topn:12x2"), example_cost(), settings).generate(prompt, 12)
    assert tree.tokens == plain.tokens
    assert len(plain.tokens) == 12 or plain.finish == "eos"
    assert sum(tree.verified_nodes) > 0 and tree.growths > 0
    assert tree.fallbacks == plain.fallbacks == 0
