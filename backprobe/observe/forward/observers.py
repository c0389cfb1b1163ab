"""The parts that observe the forward, as one group."""

from __future__ import annotations

from dataclasses import dataclass

from ...source.frames import Frames
from ..events import Events
from .detach_points import DetachPoints
from .leaves import Leaves
from .modules import ModuleWatch
from .naming import Naming
from .node_places import NodePlaces
from .regions import Regions
from .torch_call_recorder import TorchCallRecorder
from .values import ForwardValues
from .writes import WriteLog


@dataclass(frozen=True)
class ForwardObservers:
    """The parts that observe the forward of a session."""

    frames: Frames
    modules: ModuleWatch
    leaves: Leaves
    names: Naming
    recorder: TorchCallRecorder
    writes: WriteLog
    values: ForwardValues
    regions: Regions
    detach_points: DetachPoints

    @classmethod
    def build(cls, own: tuple[str, ...], events: Events, *, holds_results: bool, owner: object) -> ForwardObservers:
        """Make the parts that observe the forward.

        :param own: folders whose code counts as the user's although it is installed.
        :param holds_results: small results of ops may be kept until they are checked.
        :param owner: the session, found from the recorder.
        """
        frames = Frames(own)
        modules = ModuleWatch(frames, events)
        leaves = Leaves(modules, frames, events)
        names = Naming(modules, leaves, frames)
        recorder = TorchCallRecorder(frames, modules, events, owner=owner)
        writes = WriteLog(frames, modules)
        values = ForwardValues(names, events.own, holds_results=holds_results)
        regions, detach_points = Regions(names, writes, events), DetachPoints(names)
        return cls(frames, modules, leaves, names, recorder, writes, values, regions, detach_points)

    def origins(self) -> NodePlaces:
        """Return the places where the nodes of a graph were made, as far as they were recorded."""
        return NodePlaces(self.recorder.log, self.modules, self.frames)
