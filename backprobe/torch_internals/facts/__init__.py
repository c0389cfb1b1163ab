"""Facts: undocumented properties of torch that backprobe relies on, each with a check for the installed version."""

from __future__ import annotations

import importlib
import os
import sys
from functools import cache, partial

from ...records import Unseen
from .registry import DYNAMO, ENGINE, Checked, Fact, check

#: Versions of torch for which all facts hold.
VERIFIED_VERSIONS = frozenset({"2.8.0", "2.13.0"})
_FILES = ("graphs", "tensors", "saved", "checkpoints", "dispatch", "engine", "errors", "modules", "others")


@cache
def all_facts() -> tuple[Fact, ...]:
    """Return every fact, by subject."""
    return tuple(one for name in _FILES for one in _facts_of(name))


def _facts_of(name: str) -> list[Fact]:
    """Return the facts of the module `name` of this package; one fact that does not hold, if it cannot be imported."""
    try:
        module = importlib.import_module(f"{__name__}.{name}")
    except Exception as error:  # this torch lacks even the names that the facts use
        return [Fact(f"{name}: all facts", "backprobe does not start", (), frozenset(), partial(_again, error))]
    return [one for one in vars(module).values() if isinstance(one, Fact)]


def _again(error: Exception) -> None:
    """Raise `error`."""
    raise error


def check_all() -> list[Checked]:
    """Check every fact; only for a process of our own, such as ``backprobe doctor``."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)  # older torch prints from C++ when two ranks connect
    try:
        return check(all_facts())
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def missing(backward_ran: bool = False) -> list[Unseen]:
    """Return what will not be observed in this process because a fact does not hold for this torch.

    Empty for versions for which all facts are known to hold; on others it takes less than a tenth of a second, once.

    :param backward_ran: whether this process has run a backward already. If not, on a torch that may start threads for
        an accelerator, no check runs one.
    """
    import torch

    version = str(torch.__version__)
    if version.partition("+")[0] in VERIFIED_VERSIONS:
        return []
    may = {ENGINE} if backward_ran or not _has_accelerators() else set()
    if "torch._dynamo" in sys.modules:
        may.add(DYNAMO)
    return [
        Unseen(f"fact about torch {version} that does not hold", 1, f"{one.fact.name}: {one.fact.missed}")
        for one in _checked(version, frozenset(may))
        if one.problem
    ]


@cache
def _checked(version: str, may: frozenset[str]) -> tuple[Checked, ...]:
    """Check the facts whose needs are all in `may`. The result is cached for each `version` of torch."""
    return tuple(check(one for one in all_facts() if one.needs <= may))


def _has_accelerators() -> bool:
    """Return whether this build of torch supports accelerators. Asking whether one is present might initialise it."""
    import torch

    builds = (torch.version.cuda, torch.version.hip, getattr(torch.version, "xpu", None))
    return any(builds) or torch.backends.mps.is_built()
