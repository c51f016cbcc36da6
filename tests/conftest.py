"""What holds for the whole suite: no network, and no deadline on a busy machine."""

import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

# Read by the hub's client when it is first imported, so no fixture could set it in time.
os.environ["HF_HUB_OFFLINE"] = "1"

# One process: a test that is about several says so.
os.environ["TREEWISE_WORKERS"] = "1"

settings.register_profile("house", deadline=None)
settings.load_profile("house")


@pytest.fixture(autouse=True, scope="session")
def no_network() -> Iterator[None]:
    """A test that opens a connection fails, instead of passing only where the network is up."""
    connect = socket.socket.connect

    def refuse(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6):
            raise AssertionError(f"tests must not use the network, tried {address!r}")
        connect(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", refuse)
        yield
