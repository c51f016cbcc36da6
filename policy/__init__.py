"""Everything that decides which guesses to grow, admit and verify; numpy arrays in, numpy arrays out."""

from treewise.policy.chain_controller import ChainController as ChainController
from treewise.policy.chain_signals import ChainSignals as ChainSignals
from treewise.policy.controller import Controller as Controller
from treewise.policy.controller import ControllerSettings as ControllerSettings
