"""A service that sorts customers' messages: one line of text in, one line of JSON out, on a TCP port.

python triage.py 127.0.0.1:8500 9000 &
echo "my parcel has not come" | nc localhost 9000
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict, dataclass
from typing import Annotated, Literal

from tidegate import Client, Exhausted, TidegateError, system, user

TASK = system("You sort messages of a parcel service's customers. Answer in JSON.")


@dataclass
class Ticket:
    topic: Literal["lost", "late", "damaged", "praise", "other"]
    urgent: bool
    reply: Annotated[str, "one friendly sentence to the customer"]


async def triage(client: Client, message: str) -> dict[str, object]:
    """What to do with a message, or why that cannot be said now."""
    try:
        return asdict(await client.chat(TASK, user(message), into=Ticket, max_output_tokens=200, deadline=20).value())
    except Exhausted as busy:
        return {"error": "busy", "retry_after": busy.retry_after}
    except TidegateError as error:
        return {"error": error.reason, "request_id": error.request_id}


async def serve(client: Client, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection: its messages one after the other."""
    async for line in reader:
        writer.write(json.dumps(await triage(client, line.decode().strip())).encode() + b"\n")
        await writer.drain()
    writer.close()


async def main(router: str, port: int) -> None:
    """Serves until it is stopped."""
    async with Client(router) as client:
        server = await asyncio.start_server(lambda reader, writer: serve(client, reader, writer), "127.0.0.1", port)
        print(f"listening on {server.sockets[0].getsockname()[1]}", flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
