"""The file that a person means by the name of a script, or of a command that is one, such as ``torchrun``."""

from __future__ import annotations

import os
import re
import shutil
import sys
import zipfile

from ..errors import BackprobeError

#: The first line of a script that a Python runs; where the name is too long for it, the line after it has it.
_PYTHONS = (
    re.compile(rb"#! *(\S*/env +python[\d.]*|\S*python[\d.]*)"),
    re.compile(rb"#!/bin/sh\n'''exec' \"?([^\"\n]*python[\d.]*)"),
)


def file_of(script: str) -> str:
    """The file of `script`: itself, or a command of that name that Python runs.

    :raises BackprobeError: it is none that Python can run here; the text says what to type.
    """
    found = script if os.path.exists(script) or os.sep in script else shutil.which(script)
    if found is None or not os.path.exists(found):
        raise BackprobeError(f"no such script: {script}")
    if os.path.isdir(found) or zipfile.is_zipfile(found):
        return found
    with open(found, "rb") as file:
        head = file.read(500)
    python = next((match for pattern in _PYTHONS if (match := pattern.match(head))), None)
    if found == script and (python is not None or not head.startswith((b"#!", b"\x7fELF"))):
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
