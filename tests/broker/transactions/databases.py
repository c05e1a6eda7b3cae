"""Databases with an outbox table: SQLite, and a separate PostgreSQL server where the system has it."""

from __future__ import annotations

import glob
import itertools
import os
import pwd
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from aioproducer.testing.processes import Processes
from tests.broker.fixtures import PATIENCE_S

WRITERS = 4
PROGRAMS = ("initdb", "postgres")
AS_USER = (
    "import os, sys; os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[1])); os.execv(sys.argv[3], sys.argv[3:])"
)
INSERT = "INSERT INTO outbox (topic, key, payload) VALUES ({0}, {0}, {0})"


class Outbox(Protocol):
    """A table for the relay."""

    argument: str
    """The command-line argument of the relay."""

    def insert(self, topic: str, count: int) -> None:
        """Commit that many more rows."""

    def payloads(self) -> list[bytes]:
        """The committed payloads, in the order of the rows."""


def row(topic: str, number: int) -> tuple[str, str, str]:
    return topic, f"customer-{number % 7}", f"order {number}"


class SqliteOutbox:
    """One writer, because SQLite allows only one at a time."""

    def __init__(self, path: Path) -> None:
        self.argument = str(path)
        self._numbers = itertools.count()
        with self._database() as database:
            columns = "id INTEGER PRIMARY KEY AUTOINCREMENT, topic TEXT, key TEXT, payload TEXT"
            database.execute(f"CREATE TABLE outbox ({columns})")

    def insert(self, topic: str, count: int) -> None:
        with self._database() as database:
            rows = [row(topic, number) for number in itertools.islice(self._numbers, count)]
            database.executemany(INSERT.format("?"), rows)

    def payloads(self) -> list[bytes]:
        with self._database() as database:
            return [each.encode() for (each,) in database.execute("SELECT payload FROM outbox ORDER BY id")]

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        database = sqlite3.connect(self.argument)
        try:
            with database:
                yield database
        finally:
            database.close()


class PostgresOutbox:
    """Several writers at a time, whose transactions end in a different order than their rows were numbered.

    Some are rolled back, which leaves gaps between the numbers.
    """

    def __init__(self, url: str) -> None:
        import psycopg

        self.argument = url
        self._numbers = itertools.count()
        self._rng = random.Random(1)
        with psycopg.connect(url) as database:
            database.execute("DROP TABLE IF EXISTS outbox")
            database.execute("CREATE TABLE outbox (id BIGSERIAL PRIMARY KEY, topic TEXT, key TEXT, payload TEXT)")

    def insert(self, topic: str, count: int) -> None:
        numbers = list(itertools.islice(self._numbers, count))
        shares = [numbers[each::WRITERS] for each in range(WRITERS)]
        seeds = [self._rng.random() for _ in shares]
        with ThreadPoolExecutor(WRITERS) as threads:
            list(threads.map(self._write, itertools.repeat(topic), shares, seeds))

    def _write(self, topic: str, numbers: list[int], seed: float) -> None:
        import psycopg

        rng = random.Random(seed)
        with psycopg.connect(self.argument) as database:
            while numbers:
                some, numbers = numbers[: (size := rng.randint(1, 40))], numbers[size:]
                for each in some:
                    database.execute(INSERT.format("%s"), row(topic, each))
                time.sleep(rng.uniform(0, 0.02))  # others commit rows with higher numbers meanwhile
                if rng.random() < 0.2:
                    database.rollback()
                    numbers = some + numbers
                database.commit()

    def payloads(self) -> list[bytes]:
        import psycopg

        with psycopg.connect(self.argument) as database:
            return [each.encode() for (each,) in database.execute("SELECT payload FROM outbox ORDER BY id")]


def postgres_missing() -> str:
    """Why the relay can't be tested with PostgreSQL here; empty if it can."""
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return "the package psycopg is not installed: pip install 'psycopg[binary]'"
    absent = [name for name in PROGRAMS if _program(name) is None]
    return f"{', '.join(absent)} not found: apt-get install postgresql" if absent else ""


@contextmanager
def postgres() -> Iterator[str]:
    """A PostgreSQL server that listens only on a socket in a directory; yields its URL. It ends with this process."""
    user = pwd.getpwuid(os.getuid())
    become: list[str] = []
    if user.pw_uid == 0:  # PostgreSQL refuses to run as root
        user = pwd.getpwnam("nobody")
        become = [sys.executable, "-c", AS_USER, str(user.pw_uid), str(user.pw_gid)]
    directory = Path(tempfile.mkdtemp(prefix="postgres-", dir="/tmp"))
    processes = Processes(directory)
    try:
        os.chown(directory, user.pw_uid, user.pw_gid)
        data = directory / "data"
        make = [*become, str(_program("initdb")), "-D", str(data), "-A", "trust", "-U", "relay", "--no-sync"]
        subprocess.run(make, check=True, capture_output=True, cwd=directory)
        serve = [str(_program("postgres")), "-D", str(data), "-k", str(directory), "-c", "listen_addresses="]
        log = directory / "log"
        processes.start("postgres", [*become, *serve], env=dict(os.environ), cwd=directory, log=log)
        url = f"postgresql://relay@/postgres?host={directory}"
        _wait(url, log, processes)
        yield url
    finally:
        processes.close()


def _wait(url: str, log: Path, processes: Processes) -> None:
    import psycopg

    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            psycopg.connect(url).close()
            return
        except psycopg.OperationalError:
            assert processes.exit_code("postgres") is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)


def _program(name: str) -> str | None:
    found = sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"))
    return found[-1] if found else shutil.which(name)
