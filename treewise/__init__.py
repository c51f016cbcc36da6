"""Tree speculative decoding whose width, depth and node budget are decided by a learned policy.

`import treewise` loads nothing heavy: each public name brings its module when it is first used, so the parts that need
no torch work where torch is not installed.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from treewise.data.cost import CostProfile
    from treewise.data.envelope import Envelope, PriorTable
    from treewise.data.errors import TreewiseError
    from treewise.data.prompt_set import Prompt, own_prompts, read_prompts
    from treewise.data.trace_reader import TraceReader
    from treewise.data.trace_writer import TraceWriter
    from treewise.engine.batch import BatchEngine, BatchRequest
    from treewise.engine.custom_generate import TreewiseGeneration
    from treewise.engine.decode import Completion, Engine, EngineSettings
    from treewise.engine.pair import Pair, encode_prompt, load_pair
    from treewise.engine.profile import measure_profile
    from treewise.engine.sampling import Sampling
    from treewise.policy.chain_controller import ChainController
    from treewise.policy.chain_signals import ChainSignals
    from treewise.policy.controller import Controller, ControllerSettings
    from treewise.policy.hook import TreePolicy
    from treewise.policy.learned import LearnedPolicy
    from treewise.policy.registry import parse_policy, policy_names
    from treewise.profiles import find_cost
    from treewise.training.ab import ab
    from treewise.training.fit import train
    from treewise.training.logged_trace import open_trace
    from treewise.training.replay import replay

__version__ = "0.1.0"

__all__ = [
    "BatchEngine",
    "BatchRequest",
    "ChainController",
    "ChainSignals",
    "Completion",
    "Controller",
    "ControllerSettings",
    "CostProfile",
    "Engine",
    "EngineSettings",
    "Envelope",
    "LearnedPolicy",
    "Pair",
    "PriorTable",
    "Prompt",
    "Sampling",
    "TraceReader",
    "TraceWriter",
    "TreePolicy",
    "TreewiseError",
    "TreewiseGeneration",
    "__version__",
    "ab",
    "encode_prompt",
    "find_cost",
    "load_pair",
    "measure_profile",
    "open_trace",
    "own_prompts",
    "parse_policy",
    "policy_names",
    "read_prompts",
    "replay",
    "train",
]

# Where each public name lives; the imports above say the same to type checkers.
_HOMES = {
    "treewise.data.cost": ("CostProfile",),
    "treewise.data.envelope": ("Envelope", "PriorTable"),
    "treewise.data.errors": ("TreewiseError",),
    "treewise.data.prompt_set": ("Prompt", "own_prompts", "read_prompts"),
    "treewise.data.trace_reader": ("TraceReader",),
    "treewise.data.trace_writer": ("TraceWriter",),
    "treewise.engine.batch": ("BatchEngine", "BatchRequest"),
    "treewise.engine.custom_generate": ("TreewiseGeneration",),
    "treewise.engine.decode": ("Completion", "Engine", "EngineSettings"),
    "treewise.engine.pair": ("Pair", "encode_prompt", "load_pair"),
    "treewise.engine.profile": ("measure_profile",),
    "treewise.engine.sampling": ("Sampling",),
    "treewise.policy.chain_controller": ("ChainController",),
    "treewise.policy.chain_signals": ("ChainSignals",),
    "treewise.policy.controller": ("Controller", "ControllerSettings"),
    "treewise.policy.hook": ("TreePolicy",),
    "treewise.policy.learned": ("LearnedPolicy",),
    "treewise.policy.registry": ("parse_policy", "policy_names"),
    "treewise.profiles": ("find_cost",),
    "treewise.training.ab": ("ab",),
    "treewise.training.fit": ("train",),
    "treewise.training.logged_trace": ("open_trace",),
    "treewise.training.replay": ("replay",),
}
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'treewise' has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
