"""``backprobe doctor``: versions, and checks of the PyTorch internals that backprobe relies on. For bug reports."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..basics.terminal import say

if TYPE_CHECKING:
    from ..torch_internals.facts.registry import Checked

#: Environment variables that change torch's behaviour.
_VARIABLES = (
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "PYTORCH_ALLOC_CONF"),
    *("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ENABLE_MPS_FALLBACK", "PYTORCH_JIT", "TORCHDYNAMO_DISABLE"),
    *("TORCH_COMPILE_DISABLE", "TORCH_DISTRIBUTED_DEBUG", "TORCH_SHOW_CPP_STACKTRACES", "PYTHONHASHSEED"),
)
_PACKAGES = ("backprobe", "torch", "numpy", "rich", "safetensors")


class Doctor:
    """Print versions, and check each undocumented behaviour of torch that backprobe relies on.

    Put the output of ``backprobe doctor -v`` into a bug report. The exit code is 0 if all checks pass, else 1.
    """

    name = "doctor"

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        parser.add_argument("-v", "--verbose", action="store_true", help="list all checks, not only failed ones")
        parser.add_argument("--json", action="store_true", help="print JSON")

    def run(self, options: argparse.Namespace) -> int:
        """Collect versions, run all checks of torch, and print them; return 0 if all passed, else 1."""
        found: dict[str, Any] = {
            "format": 1,
            "versions": _versions(),
            "python": f"{platform.python_version()} ({platform.python_implementation()})",
            "platform": platform.platform(),
            "cpus": os.cpu_count(),
            "environment": {name: os.environ[name] for name in _VARIABLES if name in os.environ},
            "torch": None,
            "facts": [],
        }
        try:
            from ..torch_internals.machine import machine
        except (ImportError, OSError) as error:
            found["problem"] = _without_homes(f"torch cannot be imported: {type(error).__name__}: {error}")
            if isinstance(error, ModuleNotFoundError) and error.name == "torch":
                found["problem"] = "torch is not installed: kept runs can be shown, and nothing can be watched"
        else:
            from ..torch_internals.facts import check_all

            found["torch"] = machine()
            found["facts"] = [_as_dict(one) for one in check_all()]
        found["holds"] = found["torch"] is not None and all(f["holds"] is not False for f in found["facts"])
        if options.json:
            say(json.dumps(found, indent=1))
        else:
            _show(found, options.verbose)
        return 0 if found["holds"] else 1


def _versions() -> dict[str, str]:
    """Return the versions of those packages in ``_PACKAGES`` that are installed."""
    known = {}
    for name in _PACKAGES:
        try:
            known[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    if "backprobe" not in known:  # run from a checkout
        from .. import __version__

        known = {"backprobe": __version__, **known}
    return known


def _as_dict(one: Checked) -> dict[str, object]:
    """Return the result of a check as JSON data; ``holds`` is ``None`` if the check could not be made."""
    holds = None if one.skipped else not one.problem
    note = _without_homes(one.problem or one.skipped)
    return {"name": one.fact.name, "holds": holds, "note": note, "missed": one.fact.missed}


def _without_homes(text: str) -> str:
    """Return `text` without paths that identify the user: the installation folder and the home folder."""
    for folder, short in ((sys.prefix, "."), (str(Path.home()), "~")):
        text = text.replace(folder, short) if len(folder) > 1 else text
    return text


def _show(found: dict[str, Any], verbose: bool) -> None:
    """Print the collected facts as text; checks that passed only if `verbose`."""
    from ..view.parts import Line, Part
    from ..view.terminal import write

    torch, facts = found["torch"], found["facts"]
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    variables = ", ".join(f"{name}={value}" for name, value in found["environment"].items())
    parts: list[Part] = [
        Line(versions, "head"),
        Line(f"Python {found['python']} on {found['platform']}, {found['cpus']} CPUs"),
        Line(f"Environment: {variables or 'nothing that torch reads is set'}"),
    ]
    if torch is None:
        write([*parts, Line(found["problem"], "bad")], sys.stdout)
        return
    devices = f"CUDA {torch['cuda']} on {', '.join(torch['devices'])}" if torch["cuda"] else "no CUDA"
    has = ["MPS" if torch["mps"] else "no MPS", "distributed" if torch["distributed"] else "no distributed"]
    parts.append(Line(f"torch: threads {torch['threads']}, {devices}, {', '.join(has)}"))
    parts.append(Line(""))
    before = len(parts)
    for one in facts:
        if one["holds"] and verbose:
            parts.append(Line(f"ok      {one['name']}"))
        elif one["holds"] is None:
            parts.append(Line(f"unknown {one['name']}: {one['note']}", "quiet"))
        elif not one["holds"]:
            parts.append(Line(f"FAILED  {one['name']}: {one['note']}", "bad"))
            parts.append(Line(f"        missed here: {one['missed']}"))
    failed = sum(one["holds"] is False for one in facts)
    if len(parts) > before:
        parts.append(Line(""))
    what = f"checks of torch {torch['version']}"
    if failed:
        parts.append(Line(f"{failed} of {len(facts)} {what} failed.", "bad"))
    else:
        unknown = sum(one["holds"] is None for one in facts)
        passed = f"{len(facts) - unknown} of {len(facts)}" if unknown else f"All {len(facts)}"
        parts.append(Line(f"{passed} {what} passed" + (", the others could not be made." if unknown else "."), "good"))
    write(parts, sys.stdout)
