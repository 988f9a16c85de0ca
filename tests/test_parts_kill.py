"""Processes of a training on parts that are killed: all are started again, and the figures are the same."""

from __future__ import annotations

import threading
from datetime import timedelta

import torch.distributed as dist

from graphdiffusion.training.rendezvous import fresh_store

PATIENCE = timedelta(seconds=20)


def test_an_attempt_does_not_see_what_earlier_ones_have_written():
    """Every attempt shares one store; of the first one, a process has died before it answered."""
    server = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)

    def client():
        return dist.TCPStore("localhost", server.port, is_master=False)

    client().set("grand/asks/2", "dead")
    for attempt in range(3):
        found = {}

        def join(number, found=found):
            found[number] = fresh_store(client(), number, 3, PATIENCE)

        threads = [threading.Thread(target=join, args=(number,)) for number in (2, 0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not found[1].check(["address"])
        found[0].set("address", str(attempt))
        assert [found[k].get("address").decode() for k in range(3)] == [str(attempt)] * 3
