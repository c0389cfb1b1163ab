"""Each thing that we rely on and torch does not promise, with a check that tells whether it holds here."""

from __future__ import annotations

import importlib
import os
import sys
from functools import cache, partial

from ...records import Unseen
from .registry import DYNAMO, ENGINE, Checked, Fact, check

#: Versions of torch on which all of them hold.
KNOWN = frozenset({"2.8.0", "2.13.0"})
_FILES = ("graphs", "tensors", "saved", "checkpoints", "dispatch", "engine", "errors", "modules", "others")


@cache
def all_facts() -> tuple[Fact, ...]:
    """Every fact, by subject."""
    return tuple(one for name in _FILES for one in _facts_of(name))


def _facts_of(name: str) -> list[Fact]:
    try:
        module = importlib.import_module(f"{__name__}.{name}")
    except Exception as error:  # this torch has not even the names that they are about
        return [Fact(f"{name}: all facts", "backprobe does not start", (), frozenset(), partial(_again, error))]
    return [one for one in vars(module).values() if isinstance(one, Fact)]


def _again(error: Exception) -> None:
    raise error


def check_all() -> list[Checked]:
    """Check every fact: for a process that is ours, such as ``backprobe doctor``'s."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)  # older torch prints from C++ when two ranks meet
    try:
        return check(all_facts())
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def missing(backward_ran: bool = False) -> list[Unseen]:
    """What will not be seen in this process, because this torch is not as those that we know. Nothing on versions on
    which all facts are known to hold, and less than a tenth of a second of work, once, on others.

    :param backward_ran: whether this process has run a backward already. Before, on a torch that may start threads for
        an accelerator, no check runs one.
    """
    import torch

    version = str(torch.__version__)
    if version.partition("+")[0] in KNOWN:
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
    return tuple(check(one for one in all_facts() if one.needs <= may))


def _has_accelerators() -> bool:
    """Whether this build of torch knows accelerators: asking whether there is one may start it."""
    import torch

    builds = (torch.version.cuda, torch.version.hip, getattr(torch.version, "xpu", None))
    return any(builds) or torch.backends.mps.is_built()
