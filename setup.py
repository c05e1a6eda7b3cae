"""Builds the compiled core; everything else about the package is in pyproject.toml.

AIOPRODUCER_DEBUG=1     bounds checks
AIOPRODUCER_SANITIZE=1  AddressSanitizer and UndefinedBehaviorSanitizer (implies the debug checks)
"""

import os
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

SANITIZE = os.environ.get("AIOPRODUCER_SANITIZE") == "1"
DEBUG = SANITIZE or os.environ.get("AIOPRODUCER_DEBUG") == "1"

DIRECTIVES = {
    "language_level": 3,
    "embedsignature": True,
    "binding": False,
    "boundscheck": DEBUG,
    "wraparound": False,
    "initializedcheck": DEBUG,
    "cdivision": True,
    "always_allow_keywords": True,
    "warn.unreachable": True,
    "warn.unused": True,
}

if sys.platform == "win32":
    compile_args, link_args = ["/O2"], []
else:
    # Warnings in our C are errors; the three exceptions come from code that Cython itself generates.
    compile_args = [
        "-O3",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-unused-parameter",
        "-Wno-missing-field-initializers",
        "-Wno-cast-function-type",
        "-Wno-unused-function",
        "-Wno-deprecated-declarations",
    ]
    link_args = []
    if SANITIZE:
        flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer"]
        compile_args = ["-O1", "-g", *compile_args[1:], *flags]
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

# Cython does not see that a directive has changed, so that what it makes of the debug build has a folder of its own.
build_dir = "build/cython-debug" if DEBUG else "build/cython"

setup(ext_modules=cythonize(extensions, compiler_directives=DIRECTIVES, build_dir=build_dir, nthreads=0))
