"""Resolution of a script's name, or of a command that is a Python script, such as ``torchrun``, to a file."""

from __future__ import annotations

import os
import re
import shutil
import sys
import zipfile

from ..basics.errors import BackprobeError

#: First line of scripts for other interpreters than Python.
_OTHERS = re.compile(rb"#! *(?:\S*/env +)?(?:\S*/)?(?:sh|bash|dash|zsh|ksh|fish|csh|tcsh|perl|ruby|node)\b")
#: First line of a Python script; if the interpreter's path is too long for it, the next line has the path.
_PYTHONS = (
    re.compile(rb"#! *(\S*/env +python[\d.]*|\S*python[\d.]*)"),
    re.compile(rb"#!/bin/sh\n'''exec' \"?([^\"\n]*python[\d.]*)"),
)


def file_of(script: str) -> str:
    """Return the file of `script`: itself, or a command of that name that Python runs.

    :raises BackprobeError: Python cannot run it here; the message says what to type.
    """
    found = script if os.path.exists(script) or os.sep in script else shutil.which(script) or script
    if not os.path.isfile(found) or not os.access(found, os.R_OK) or zipfile.is_zipfile(found):
        return found  # leave it to Python, which reports errors itself: a pipe can be read only once
    with open(found, "rb") as file:
        head = file.read(500)
    python = next((match for pattern in _PYTHONS if (match := pattern.match(head))), None)
    is_other = head.startswith(b"\x7fELF") or _OTHERS.match(head) is not None
    if found == script and (python is not None or not is_other):
        return found
    if python is None:
        if re.fullmatch(r"python[\d.]*", os.path.basename(found)):
            raise BackprobeError(f"{script} is Python itself: type 'backprobe run SCRIPT' or 'backprobe run -m MODULE'")
        raise BackprobeError(
            f"{script} is no Python script: have it start 'python -m backprobe run SCRIPT' in the place of "
            "'python SCRIPT'"
        )
    other = os.fsdecode(python[1])
    if "env " not in other and os.path.dirname(other) != os.path.dirname(sys.executable):
        raise BackprobeError(
            f"{script} is run by {other}, not by {sys.executable}: type '{other} -m backprobe run ...'"
        )
    return found
