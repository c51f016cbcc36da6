"""Tree speculative decoding whose width, depth and node budget are decided by a learned policy."""

__version__ = "0.1.0"
