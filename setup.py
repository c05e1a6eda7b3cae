"""Builds the compiled core; everything else about the package is in pyproject.toml.

AIOPRODUCER_DEBUG=1     bounds checks
AIOPRODUCER_SANITIZE=1  AddressSanitizer and UndefinedBehaviorSanitizer (implies the debug checks)
AIOPRODUCER_WERROR=1    a warning of the C compiler ends the build, as it does in CI
MAX_JOBS=2              how many compilers run at once, at most four unless it is set; each takes some 150 MB
"""

import os
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SANITIZE = os.environ.get("AIOPRODUCER_SANITIZE") == "1"
DEBUG = SANITIZE or os.environ.get("AIOPRODUCER_DEBUG") == "1"

DIRECTIVES = {
    "language_level": 3,
    "embedsignature": True,
    "embedsignature.format": "clinic",
    "binding": False,
    "boundscheck": DEBUG,
    "wraparound": False,
    "initializedcheck": DEBUG,
    "cdivision": True,
    "always_allow_keywords": True,
    "auto_pickle": False,  # a copy would have pointers of its own to what belongs to the original
    "warn.unreachable": True,
    "warn.unused": True,
}

# Users build with compilers that we have not tried, and newer ones warn of code that Cython writes.
WARNINGS_ARE_ERRORS = ["-Werror"] if os.environ.get("AIOPRODUCER_WERROR") == "1" else []

if sys.platform == "win32":
    compile_args, link_args = ["/O2"], []
else:
    # The exceptions come from code that Cython itself generates.
    compile_args = [
        "-O3",
        "-g0",  # a third of the time to compile, and of the size, would go into debug information
        "-Wall",
        "-Wextra",
        *WARNINGS_ARE_ERRORS,
        "-Wno-unused-parameter",
        "-Wno-missing-field-initializers",
        "-Wno-cast-function-type",
        "-Wno-unused-function",
        "-Wno-deprecated-declarations",
        "-Wno-maybe-uninitialized",
        "-Wno-unknown-warning-option",  # clang has not all of them
    ]
    link_args = []
    if SANITIZE:
        flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer"]
        compile_args = ["-O1", "-g", *compile_args[2:], *flags]
        link_args = flags

extensions = [
    Extension(
        f"aioproducer.{path.stem}",
        [str(path)],
        extra_compile_args=compile_args,
        extra_link_args=link_args,
    )
    for path in sorted(Path("aioproducer").glob("_*.pyx"))
]


def job_count():
    """A container has the memory for few compilers, even on a machine with many processors."""
    chosen = os.environ.get("MAX_JOBS")
    if chosen:
        return max(1, int(chosen))
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(4, there)


class BuildCore(build_ext):
    """Cython runs when the core is built, not for an sdist or the metadata; all cores compile."""

    def build_extensions(self):
        from Cython.Build import cythonize

        self.parallel = self.parallel or job_count()
        # Cython does not see that a directive has changed, so that what it makes of the debug build has its own folder.
        made = cythonize(
            self.extensions,
            compiler_directives=DIRECTIVES,
            build_dir="build/cython-debug" if DEBUG else "build/cython",
            nthreads=self.parallel,
        )
        for extension, compiled in zip(self.extensions, made, strict=True):
            extension.sources, extension.depends = compiled.sources, compiled.depends
            extension.define_macros = compiled.define_macros  # what a module asks for in its first lines
        super().build_extensions()


# Processes that help with the work import this file again where they are not forked.
if __name__ == "__main__":
    setup(ext_modules=extensions, cmdclass={"build_ext": BuildCore})
