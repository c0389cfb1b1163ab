"""The records of a trace: plain frozen dataclasses, by subject. Imports neither torch nor other parts of backprobe.

Producers (``observe``) create them; consumers (``findings``, ``view``, ``report``, ``store``) read them.
"""

from .batches import KeptBatch
from .broadcasts import SilentBroadcast
from .buffers import BadBuffers, FrozenStatistics, StaleStatistics
from .calls import BackwardCall, FailedAllocation, ModuleCall, Mutation, Raised, Reuse, Root
from .checks import CompiledWrong, Divergence, FunctionChecked
from .compared import Applied, Gap, Judged, Print, Taken, Tape, TapeOp
from .compiled import CompiledRegion, GivenToCompiled, GraphBreak, Recompiled, RefusedToCompile
from .corruption import GradientHook, Spoilt
from .facts import Aside, Facts, Unseen
from .findings import Finding, FindingSite
from .hooks import HookSeen, HooksPileUp, StaleRead
from .ledger import LedgerEvent, LedgerOptimizer, LedgerRow
from .loss_targets import AttachedAdvantage, CollapsedEmbeddings
from .loss_terms import LostTerm
from .memory import (
    GradientCycle,
    Retained,
    SavedBytes,
    SavedEntry,
    SavedMemory,
    SavedModule,
    SavedMoment,
    SavedPlaced,
    SavedUnknown,
    SilentWrite,
)
from .nodes import (
    ACCUMULATE_SEQ,
    BadNode,
    BadOp,
    Born,
    Derivative,
    GradStat,
    InferredLine,
    Inside,
    Node,
    NodeRun,
    RegionRun,
)
from .parameters import (
    COLLECTIVES,
    Cut,
    FreeParameter,
    FrozenLoss,
    GradientUse,
    NoGradient,
    PaddingRowUsed,
    Parameter,
    RefusedOp,
    StoppedLearning,
    Stray,
    Unreduced,
)
from .places import Site
from .ranks import Collective, RankSeen, RankWait, Replica, Replicas, ReplicaState
from .regions import Recomputed, RegionDiffers, RegionGradient
from .registry import KINDS, record
from .schedules import PlateauMetric, ScheduleOfOther, ScheduleRestarted, ScheduleSeen
from .statistics import Measured
from .steps import BriefSteps, OptimizerSeen, ParameterStat, Step
from .updates import (
    ClimbingUpdates,
    EqualUnits,
    FreezeAttempt,
    LeftInEvaluation,
    NewOptimizers,
    ScaledGradients,
    StateNotCopied,
    TinyUpdates,
    UselessClipping,
    WeightsPutBack,
    ZeroRate,
)
from .values import BadValues, TensorSeen, TensorStat, together
from .watched import Process, Stopped, Watched

__all__ = [
    "ACCUMULATE_SEQ",
    "COLLECTIVES",
    "KINDS",
    "Applied",
    "Aside",
    "AttachedAdvantage",
    "BackwardCall",
    "BadBuffers",
    "BadNode",
    "BadOp",
    "BadValues",
    "Born",
    "BriefSteps",
    "ClimbingUpdates",
    "CollapsedEmbeddings",
    "Collective",
    "CompiledRegion",
    "CompiledWrong",
    "Cut",
    "Derivative",
    "Divergence",
    "EqualUnits",
    "Facts",
    "FailedAllocation",
    "Finding",
    "FindingSite",
    "FreeParameter",
    "FreezeAttempt",
    "FrozenLoss",
    "FrozenStatistics",
    "FunctionChecked",
    "Gap",
    "GivenToCompiled",
    "GradStat",
    "GradientCycle",
    "GradientHook",
    "GradientUse",
    "GraphBreak",
    "HookSeen",
    "HooksPileUp",
    "InferredLine",
    "Inside",
    "Judged",
    "KeptBatch",
    "LedgerEvent",
    "LedgerOptimizer",
    "LedgerRow",
    "LeftInEvaluation",
    "LostTerm",
    "Measured",
    "ModuleCall",
    "Mutation",
    "NewOptimizers",
    "NoGradient",
    "Node",
    "NodeRun",
    "OptimizerSeen",
    "PaddingRowUsed",
    "Parameter",
    "ParameterStat",
    "PlateauMetric",
    "Print",
    "Process",
    "Raised",
    "RankSeen",
    "RankWait",
    "Recompiled",
    "Recomputed",
    "RefusedOp",
    "RefusedToCompile",
    "RegionDiffers",
    "RegionGradient",
    "RegionRun",
    "Replica",
    "ReplicaState",
    "Replicas",
    "Retained",
    "Reuse",
    "Root",
    "SavedBytes",
    "SavedEntry",
    "SavedMemory",
    "SavedModule",
    "SavedMoment",
    "SavedPlaced",
    "SavedUnknown",
    "ScaledGradients",
    "ScheduleOfOther",
    "ScheduleRestarted",
    "ScheduleSeen",
    "SilentBroadcast",
    "SilentWrite",
    "Site",
    "Spoilt",
    "StaleRead",
    "StaleStatistics",
    "StateNotCopied",
    "Step",
    "Stopped",
    "StoppedLearning",
    "Stray",
    "Taken",
    "Tape",
    "TapeOp",
    "TensorSeen",
    "TensorStat",
    "TinyUpdates",
    "Unreduced",
    "Unseen",
    "UselessClipping",
    "Watched",
    "WeightsPutBack",
    "ZeroRate",
    "record",
    "together",
]
