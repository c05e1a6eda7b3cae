"""Serves the application of the web server benches: ``python -m benchmarks.web_app JOB``, until SIGTERM.

It prints one line: the port.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import socket
import sys

import uvicorn

from benchmarks.peers import WEB_CLIENTS
from benchmarks.peers.base import Settings

BACKLOG = 1_024
"""Connections that may wait while the application starts."""

KEEP_ALIVE_S = 600
"""Longer than a run: the connection that asks for the number of events is mostly idle."""


@dataclasses.dataclass(frozen=True, slots=True)
class WebJob:
    """What to serve.

    Attributes:
        http: uvicorn's parser: ``h11``, its default dependency, or ``httptools``.
        gc_frozen: whether the collector is told to ignore the application's permanent objects, see docs/web.md.
    """

    client: str
    settings: Settings
    http: str
    gc_frozen: bool

    def to_json(self) -> str:
        """Return the argument of the command line."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> WebJob:
        """Read what `to_json` wrote."""
        values = json.loads(text)
        return cls(**{**values, "settings": Settings(**values["settings"])})


def main() -> None:
    """Serve on a free port; connections may come as soon as the port is printed."""
    job = WebJob.from_json(sys.argv[1])
    (client,) = (client for client in WEB_CLIENTS if client.name == job.client)
    app = client.web_app(job.settings).app
    if job.gc_frozen:
        gc.collect()
        gc.freeze()
        gc.set_threshold(10_000, 20, 20)
    with socket.create_server(("127.0.0.1", 0), backlog=BACKLOG) as listener:
        print(listener.getsockname()[1], flush=True)
        options = {"log_level": "warning", "access_log": False, "timeout_keep_alive": KEEP_ALIVE_S}
        config = uvicorn.Config(app, loop="uvloop", http=job.http, **options)
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
