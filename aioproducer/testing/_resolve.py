"""Fetches jars from a Maven repository with jgo. Runs as a separate process, see ``artifacts.py``.

Its only argument is a JSON object: the fields of ``Artifacts``, "repository" and "url". Prints JSON lines:
{"progress": text} while it runs, {"jars": [paths]} or {"error": text} at the end. Ends when its standard input does,
so it can't outlive its parent.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

PARALLEL_DOWNLOADS = 16
PAUSES_S = (1, 3, 9)
"""Pauses between attempts at one file."""
TIMEOUT_S = 30
MAVEN_CENTRAL = "https://repo.maven.apache.org/maven2"


def say(**message: Any) -> None:
    """Send one line to the parent, in a single write because several threads do so."""
    os.write(1, json.dumps(message).encode() + b"\n")


def keep_connections() -> None:
    """Have the requests of a thread share connections: jgo opens one for each, and reads all certificates for it."""
    import requests

    own = threading.local()

    def request(*arguments: Any, **options: Any) -> Any:
        if not hasattr(own, "session"):
            own.session = requests.Session()
        return own.session.request(*arguments, **options)

    requests.request = request


def make_context(repository: Path, url: str | None) -> Any:
    """A jgo Maven context over our own directory, where a file is complete or absent."""
    from jgo.config import GlobalSettings
    from jgo.maven import MavenContext, PythonResolver

    remotes = {"central": url or MAVEN_CENTRAL, **({} if url else GlobalSettings.load().repositories)}
    staging_path = fresh_staging(repository)
    staging = MavenContext(repo_cache=staging_path, local_repos=[], remote_repos=remotes, timeout=TIMEOUT_S)

    class WholeFiles(PythonResolver):
        """Downloads outside the repository and moves complete files into it: jgo accepts any file that exists."""

        def download(self, artifact: Any) -> Path:
            staged = staging.project(artifact.groupId, artifact.artifactId).at_version(artifact.version)
            staged_artifact = staged.artifact(artifact.classifier, artifact.packaging)
            part, whole = Path(staged_artifact.cached_path or ""), Path(artifact.cached_path)

            def fetch() -> None:
                super(WholeFiles, self).download(staged_artifact)
                check(part)

            with_retries(str(artifact), fetch, part)
            whole.parent.mkdir(parents=True, exist_ok=True)
            part.replace(whole)
            return whole

    resolver = WholeFiles()
    return MavenContext(resolver, repository, local_repos=[], remote_repos=remotes, timeout=TIMEOUT_S)


def fresh_staging(repository: Path) -> Path:
    """An empty directory for unfinished downloads; removes those left by killed processes."""
    for left in repository.parent.glob("staging-*"):
        shutil.rmtree(left, ignore_errors=True)
    return repository.parent / f"staging-{os.getpid()}"


def with_retries(name: str, fetch: Callable[[], None], part: Path) -> None:
    """Call ``fetch`` until it succeeds or the pauses run out."""
    pauses_s = list(PAUSES_S)
    while True:
        part.unlink(missing_ok=True)
        try:
            return fetch()
        except Exception as error:
            # jgo reports every status but 200 like this: a passing 503 is worth one retry, a 404 not four attempts.
            if type(error) is RuntimeError:
                del pauses_s[1:]
            if not pauses_s:
                raise
            say(progress=f"trying {name} again: {short(error)}")
            time.sleep(pauses_s.pop(0))


def check(path: Path) -> None:
    """Refuse a corrupt jar, and a POM that is none: a proxy may answer a page of its own, and what is kept stays."""
    if path.suffix == ".pom":
        try:
            root = ElementTree.parse(path).getroot().tag.rpartition("}")[2]
        except ElementTree.ParseError as error:
            raise ValueError(f"{path.name} is not XML: {error}") from None
        if root != "project":
            raise ValueError(f"{path.name} is not a POM: it begins with <{root}>")
    if path.suffix == ".jar":
        with zipfile.ZipFile(path) as jar:
            broken = jar.testzip()
        if broken:
            raise zipfile.BadZipFile(f"{path.name} is broken at {broken}")


def short(error: BaseException) -> str:
    """An error in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def logger_of(artifacts: list[Any], context: Any) -> Any:
    """The simplest back-end of Kafka's logging interface, in the interface's version."""
    version = next((one.version for one in artifacts if one.artifactId == "slf4j-api"), "1.7.36")
    return context.create_dependency(f"org.slf4j:slf4j-simple:{version}").artifact


def resolve(task: dict[str, Any], repository: Path) -> list[Path]:
    """The paths of all jars; downloads missing ones."""
    context = make_context(repository, task["url"])
    artifacts = find_out(task, context)
    if task["logger"]:
        artifacts.append(logger_of(artifacts, context))
    try:
        return download_all(task["name"], artifacts)
    finally:
        shutil.rmtree(repository.parent / f"staging-{os.getpid()}", ignore_errors=True)


def find_out(task: dict[str, Any], context: Any) -> list[Any]:
    """Every artifact to fetch."""
    left_out = [context.project(*one.split(":")) for one in task["left_out"]]
    wanted = [context.create_dependency(one, left_out) for one in task["coordinates"]]
    if not task["dependencies"]:
        return [one.artifact for one in wanted]
    say(progress=f"{task['name']}: finding out which jars it needs")
    inputs, others = context.resolver.resolve(wanted)
    return [one.artifact for one in (*inputs, *others) if one.scope in (None, "compile", "runtime")]


def download_all(name: str, artifacts: list[Any]) -> list[Path]:
    """Download in parallel, with a progress line every 10%."""
    step = max(1, len(artifacts) // 10)
    with ThreadPoolExecutor(PARALLEL_DOWNLOADS) as pool:
        running = [pool.submit(one.resolve) for one in artifacts]
        try:
            for count, done in enumerate(as_completed(running), 1):
                done.result()
                if count % step == 0 or count == len(artifacts):
                    say(progress=f"{name}: {count} of {len(artifacts)} jars")
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return [one.result() for one in running]


def end_with_parent() -> None:
    """Wait for the end of standard input, which is the end of the parent."""
    os.read(0, 1)
    os._exit(1)


def main() -> None:
    """Resolve the artifacts named by the argument."""
    threading.Thread(target=end_with_parent, daemon=True).start()
    task = json.loads(sys.argv[1])
    try:
        keep_connections()
        jars = resolve(task, Path(task["repository"]))
    except Exception as error:
        say(error=short(error))
    else:
        say(jars=[str(jar) for jar in jars])


if __name__ == "__main__":
    main()
