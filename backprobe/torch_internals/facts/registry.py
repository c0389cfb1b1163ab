"""What a fact about torch's insides is, and how the facts are checked on the torch that is installed.

Note [Checking facts]: a check runs in the user's process, so it may leave no trace there. It runs on a thread of its
own, where no mode, hook, autocast or gradient mode of the user's is on, and whose nodes are numbered by themselves. It
draws no random number, calls no module (others may have hooks on all of them) and makes tensors on the CPU only. What a
check needs beyond that, it says (``needs``): `missing` leaves it out where that would show.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

#: What a check may need: to run a backward, which starts the threads of the engine for accelerators (a process that
#: forks afterwards cannot use them in its children); Dynamo or what it imports, which takes seconds; to be in a process
#: of ours (it starts a profiler, opens a socket of this machine, or takes long).
ENGINE, DYNAMO, OWN_PROCESS = "engine", "dynamo", "own process"


@dataclass(frozen=True)
class Fact:
    """Something that torch does not say publicly and that we rely on.

    :ivar name: what it is about.
    :ivar missed: what does not work where it does not hold.
    :ivar uses: names that it covers: private ones of torch, and those of ``torch_texts`` and ``places``.
    :ivar needs: what its check needs: ``ENGINE``, ``DYNAMO``, ``OWN_PROCESS``.
    :ivar check: tries it, and raises where it does not hold.
    """

    name: str
    missed: str
    uses: tuple[str, ...]
    needs: frozenset[str]
    check: Callable[[], None]


@dataclass(frozen=True)
class Checked:
    """What came of a check: nothing where the fact holds.

    :ivar problem: how it does not hold.
    :ivar skipped: why it cannot be told here.
    """

    fact: Fact
    problem: str = ""
    skipped: str = ""


class NotHere(Exception):
    """This torch, or this machine, has nothing of what a fact is about."""


def fact(name: str, missed: str, uses: str = "", needs: Iterable[str] = ()) -> Callable[[Callable[[], None]], Fact]:
    """Make a fact of the function that checks it. `uses` are names with spaces between."""

    def make(check: Callable[[], None]) -> Fact:
        return Fact(name, missed, tuple(uses.split()), frozenset(needs), check)

    return make


def expect(holds: bool, otherwise: str) -> None:
    """A part of a check.

    :raises AssertionError: it does not hold.
    """
    if not holds:
        raise AssertionError(otherwise)


def said_by(call: Callable[[], object]) -> str:
    """The text of the ``RuntimeError`` that `call` raises.

    :raises AssertionError: it raises none.
    """
    try:
        call()
    except RuntimeError as error:
        return str(error)
    raise AssertionError("torch raised no error where one was expected")


def leaf(size: int = 3) -> torch.Tensor:
    """A leaf that requires a gradient, the same whatever is the default device and dtype."""
    return torch.ones(size, dtype=torch.float32, device="cpu", requires_grad=True)


def check(facts: Iterable[Fact]) -> list[Checked]:
    """Check facts; see Note [Checking facts]."""
    found: list[Checked] = []
    thread = threading.Thread(target=functools.partial(_check, facts, found), name="backprobe-facts")
    anomaly, nan = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    if anomaly:  # it would print where the errors come from that are provoked here
        torch.autograd.set_detect_anomaly(False)
    try:
        thread.start()
        thread.join()
    finally:
        if anomaly:
            torch.autograd.set_detect_anomaly(True, nan)
    return found


def _check(facts: Iterable[Fact], found: list[Checked]) -> None:
    for one in facts:
        try:
            one.check()
        except NotHere as error:
            found.append(Checked(one, skipped=str(error)))
        except Exception as error:  # whatever it is: what we rely on is not as we know it
            kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
            found.append(Checked(one, f"{kind}{error}".strip() or type(error).__name__))
        else:
            found.append(Checked(one))
