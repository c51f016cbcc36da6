"""The suite's network guard works."""

import socket

import pytest


def test_a_connection_is_refused() -> None:
    with socket.socket() as client, pytest.raises(AssertionError, match="must not use the network"):
        client.connect(("127.0.0.1", 9))
