"""The channel: what one side sends the other gets, and the end of either is a message too."""

from __future__ import annotations

import asyncio
import socket

from gateway.server.channel import Channel


async def pair() -> tuple[Channel, Channel]:
    ours, theirs = socket.socketpair()
    return await Channel.over(ours), await Channel.over(theirs)


async def test_messages_arrive_whole_and_in_order() -> None:
    one, other = await pair()
    big = {"text": "é\n" * 200_000}
    one.send({"do": "report"})
    one.send(big)
    assert await other.receive() == {"do": "report"}
    assert await other.receive() == big
    one.close()
    other.close()


async def test_the_end_of_one_side_is_none_and_sending_to_it_harmless() -> None:
    one, other = await pair()
    one.send({"last": 1})
    one.close()
    assert await other.receive() == {"last": 1}
    assert await other.receive() is None
    other.send({"anybody": "there"})
    other.send({"anybody": "there"})
    await asyncio.sleep(0)
    assert await other.receive() is None
    other.close()
    other.send({"closed": True})
