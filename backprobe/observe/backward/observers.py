"""The parts that observe backward calls, as one group."""

from __future__ import annotations

from dataclasses import dataclass

from ...torch_internals.async_scalars import Later
from ..events import Events
from ..forward.observers import ForwardObservers
from ..schedule.step_schedule import StepSchedule
from .call_record_builder import CallRecordBuilder
from .call_router import CallRouter
from .calls import BackwardCalls
from .engine_interceptor import EngineInterceptor
from .failures import Failures
from .intercepted_functions import InterceptedFunctions
from .second import SecondOrder
from .sentinel_calls import SentinelCalls


@dataclass(frozen=True)
class BackwardObservers:
    """The parts that observe the backward calls of a session.

    :ivar calls: of recorded steps; ``sentinels``: of steps in which ``interceptor`` receives the calls of the engine.
    """

    calls: BackwardCalls
    sentinels: SentinelCalls
    interceptor: EngineInterceptor
    router: CallRouter
    intercepted: InterceptedFunctions

    @classmethod
    def build(
        cls, forward: ForwardObservers, schedule: StepSchedule, events: Events, later: Later
    ) -> BackwardObservers:
        """Make the parts that observe backward calls.

        :param later: fetches numbers from accelerators.
        """
        second, failures = SecondOrder(forward.recorder.log, forward.names), Failures(forward, schedule)
        builder = CallRecordBuilder(forward, schedule.steps, failures, second)
        calls = BackwardCalls(forward, schedule, second, builder, later)
        sentinels = SentinelCalls(calls, forward.names, schedule.steps, events, failures.remember_unrecorded)
        interceptor = EngineInterceptor(sentinels, schedule.policy.budget, events, schedule.state, later)
        router = CallRouter(forward, schedule, calls, interceptor)
        intercepted = InterceptedFunctions(forward, schedule.steps, calls, router)
        return cls(calls, sentinels, interceptor, router, intercepted)
