"""Definition of a fact about torch's internals, and the runner that checks facts on the installed torch.

Note [Checking facts]: a check runs in the user's process, so it must leave no trace there. It runs on a thread of its
own, which has none of the user's modes, hooks, autocast or gradient mode, and a sequence counter of its own. It draws
no random number, calls no module (there may be global module hooks) and creates tensors on the CPU only. If a check
needs more than that, it says so (``needs``), and `missing` skips it if that would have side effects.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

#: The needs of a check: to run a backward, which starts the engine's threads for accelerators (a process that forks
#: afterwards cannot use them in its children); Dynamo or a module that imports it, which takes seconds; a process of
#: our own (it starts a profiler, opens a local socket, or takes long).
ENGINE, DYNAMO, OWN_PROCESS = "engine", "dynamo", "own process"


@dataclass(frozen=True)
class Fact:
    """An undocumented property of torch that backprobe relies on.

    :ivar name: its subject.
    :ivar missed: what does not work if it does not hold.
    :ivar uses: names that it covers: private ones of torch, and those of ``torch_texts`` and ``code_objects``.
    :ivar needs: requirements of its check: ``ENGINE``, ``DYNAMO``, ``OWN_PROCESS``.
    :ivar check: tries it, and raises if it does not hold.
    """

    name: str
    missed: str
    uses: tuple[str, ...]
    needs: frozenset[str]
    check: Callable[[], None]


@dataclass(frozen=True)
class Checked:
    """The result of a check; both texts are empty if the fact holds.

    :ivar problem: how it does not hold.
    :ivar skipped: why it cannot be checked here.
    """

    fact: Fact
    problem: str = ""
    skipped: str = ""


class NotHere(Exception):
    """The error of a check if this torch, or this machine, lacks the subject of the fact."""


def fact(name: str, missed: str, uses: str = "", needs: Iterable[str] = ()) -> Callable[[Callable[[], None]], Fact]:
    """Return a decorator that makes a ``Fact`` of the function that checks it. `uses` are names separated by spaces."""

    def make(check: Callable[[], None]) -> Fact:
        """Make a fact of its checking function."""
        return Fact(name, missed, tuple(uses.split()), frozenset(needs), check)

    return make


def expect(holds: bool, otherwise: str) -> None:
    """Check one condition of a fact.

    :raises AssertionError: it does not hold; with the text `otherwise`.
    """
    if not holds:
        raise AssertionError(otherwise)


def said_by(call: Callable[[], object], kind: type[Exception] = RuntimeError) -> str:
    """Return the text of the error, a `kind`, that `call` raises.

    :raises AssertionError: it raises none.
    """
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError("torch raised no error where one was expected")


def leaf(size: int = 3) -> torch.Tensor:
    """Return a leaf that requires a gradient, independent of the default device and dtype."""
    return torch.ones(size, dtype=torch.float32, device="cpu", requires_grad=True)


def check(facts: Iterable[Fact]) -> list[Checked]:
    """Check facts on a new thread without any of the user's state; return the result for each."""
    found: list[Checked] = []
    thread = threading.Thread(target=functools.partial(_check, facts, found), name="backprobe-facts")
    anomaly, nan = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    if anomaly:  # it would print the origin of the errors that are provoked here
        torch.autograd.set_detect_anomaly(False)
    try:
        thread.start()
        thread.join()
    finally:
        if anomaly:
            torch.autograd.set_detect_anomaly(True, nan)
    return found


def _check(facts: Iterable[Fact], found: list[Checked]) -> None:
    """Check `facts` on this thread, and append the results to `found`."""
    for one in facts:
        try:
            one.check()
        except NotHere as error:
            found.append(Checked(one, skipped=str(error)))
        except Exception as error:  # any error means that torch differs from what we rely on
            kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
            found.append(Checked(one, f"{kind}{error}".strip() or type(error).__name__))
        else:
            found.append(Checked(one))
