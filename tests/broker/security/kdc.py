"""A Kerberos realm for the tests of GSSAPI, made with the system's krb5-kdc."""

from __future__ import annotations

import functools
import glob
import os
import random
import shutil
import socket
import subprocess
import time
from pathlib import Path

from aioproducer.testing.ports import HOST, free_ports

REALM = "TEST.LOCAL"
START_S = 20.0

JGSS = "jdk.security.jgss"
PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local")


def missing() -> str:
    """Why Kerberos can't be tested here; empty if it can."""
    try:
        import gssapi  # noqa: F401
    except ImportError:
        return "the package gssapi is not installed (it needs libkrb5-dev): pip install 'aioproducer[gssapi]'"
    absent = [name for name in PROGRAMS if _program(name) is None]
    if absent:
        return f"{', '.join(absent)} not found: apt-get install krb5-kdc krb5-admin-server"
    return "" if java() else f"no Java with the module {JGSS} found: apt-get install openjdk-17-jre-headless"


@functools.cache
def java() -> str | None:
    """A Java that has GSSAPI."""
    for path in [*sorted(glob.glob("/usr/lib/jvm/*/bin/java"), reverse=True), shutil.which("java")]:
        if path:
            modules = subprocess.run([path, "--list-modules"], capture_output=True, text=True, check=False).stdout
            if JGSS in modules:
                return path
    return None


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


class Kdc:
    """A running KDC with the brokers' and a user's key tables."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        (port,) = free_ports(1, random.Random())
        self.port = port
        self.config = directory / "krb5.conf"
        self.config.write_text(
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n"
            " dns_canonicalize_hostname = false\n rdns = false\n udp_preference_limit = 1\n"
            f"[realms]\n {REALM} = {{\n  kdc = {HOST}:{port}\n }}\n"
        )
        profile = directory / "kdc.conf"
        profile.write_text(
            f'[kdcdefaults]\n kdc_listen = ""\n kdc_tcp_listen = {HOST}:{port}\n'
            f"[realms]\n {REALM} = {{\n  database_name = {directory}/principal\n  key_stash_file = {directory}/stash\n"
            f'  acl_file = {directory}/acl\n  kdc_listen = ""\n  kdc_tcp_listen = {HOST}:{port}\n }}\n'
        )
        self._environ = {**os.environ, "KRB5_CONFIG": str(self.config), "KRB5_KDC_PROFILE": str(profile)}
        self._run("kdb5_util", "create", "-s", "-P", "master", "-r", REALM)
        self.broker_keys = self._key_table(f"kafka/{HOST}")
        self.user_keys = self._key_table("alice")
        with (directory / "kdc.log").open("ab") as log:
            self._process = subprocess.Popen(
                [_program("krb5kdc") or "krb5kdc", "-n"],
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._wait()

    def _key_table(self, principal: str) -> Path:
        path = self._directory / f"{principal.partition('/')[0]}.keytab"
        self._run("kadmin.local", "-q", f"addprinc -randkey {principal}")
        self._run("kadmin.local", "-q", f"ktadd -k {path} {principal}")
        return path

    def _run(self, name: str, *arguments: str) -> None:
        done = subprocess.run(
            [_program(name) or name, *arguments], env=self._environ, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"

    def _wait(self) -> None:
        deadline = time.monotonic() + START_S
        while True:
            try:
                socket.create_connection((HOST, self.port), 1).close()
                return
            except OSError:
                assert time.monotonic() < deadline, (self._directory / "kdc.log").read_text()
                assert self._process.poll() is None, (self._directory / "kdc.log").read_text()
                time.sleep(0.05)

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait()
