"""One process that leads a run over a NATS server, for tests that kill and freeze it.

`python -m tests.actors.planner.planner_process URL RUN HOLDER TTL_S` writes a line to stdout for each question.
"""

from __future__ import annotations

import sys
from hashlib import sha256

import anyio

from actors.bus.nats import NatsOptions, open_nats
from actors.llm.base import Answer, Request, ScriptedModel
from actors.planner.leadership import LeaseTerms, lead
from tests.actors.planner.rig import planner_answers

THINKS_S = 0.5


class TellingModel(ScriptedModel):
    """Says on stdout what it is asked."""

    async def complete(self, request: Request) -> Answer:
        """Answer one question."""
        digest = sha256(request.prompt.encode()).hexdigest()[:16]
        sys.stdout.write(f"{request.request_id} {digest}\n")
        sys.stdout.flush()
        return await super().complete(request)


async def main(url: str, run_id: str, holder: str, ttl_s: int) -> None:
    """Lead until the run is over."""
    model = TellingModel(planner_answers(news=4), latency_s=THINKS_S)
    terms = LeaseTerms(ttl_s=ttl_s, renew_s=ttl_s * 0.3, retry_s=0.2)
    async with open_nats(NatsOptions(servers=(url,), name=holder)) as bus:
        await lead(bus, model, run_id=run_id, holder=holder, terms=terms, watches_workers=False)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
