"""Builds the record of a backward call that is over."""

from __future__ import annotations

from dataclasses import replace

from ...basics.torch_texts import ONCE
from ...graphs.packed_calls import Signature
from ...records import Derivative
from ...torch_internals.entry_points import describe, root_record
from ..forward.observers import ForwardObservers
from ..schedule.losses import loss_scale, unscaled
from ..schedule.steps import StepWatch
from .active_backward import ActiveBackward
from .failures import Failures
from .measurement_plan import MeasurementPlan, signature_of
from .pending_call_record import Cause, PendingCallRecord
from .second import SecondOrder


class CallRecordBuilder:
    """Makes a ``PendingCallRecord`` of each finished backward call."""

    def __init__(
        self,
        forward: ForwardObservers,
        steps: StepWatch,
        failures: Failures,
        second: SecondOrder,
    ) -> None:
        """Take the observers that know names, steps, failures and second-order nodes."""
        self._names, self._recorder, self._values = forward.names, forward.recorder, forward.values
        self._steps, self._failures, self._second = steps, failures, second

    def of(self, running: ActiveBackward) -> PendingCallRecord:
        """Return the record of a finished call, and add the call and its loss to the step."""
        recorded = self._build(running)
        if running.scale != 1.0:
            recorded.arguments["loss_scale"] = f"{running.scale:g}"
        elif recorded.has_trouble and (scale := loss_scale(self._names.frames)) is not None:
            recorded.arguments["loss_scale"] = f"{scale:g}"
        if running.inside is None and not running.was_counted:
            self._steps.call_indices.append(recorded.index)
            if recorded.kind != "autograd.grad":
                self._steps.losses.add_call([root.value for root in recorded.roots], running.scale)
                self._steps.losses.note_gradients(leaf for _, leaf in running.graph.leaves)
            elif not running.creates_graph and not running.arguments.get("retain_graph"):
                self._steps.note_autograd_grad()
        return recorded

    def _build(self, running: ActiveBackward) -> PendingCallRecord:
        """Return the record of a finished call, with the cause of its error if it raised."""
        watch, graph = running.watch, running.graph
        raised, cause = self._failures.raised_record(running), Cause()
        signature = self._signature(running)
        if raised is not None and raised.node is not None:
            node = raised.node
            raised = replace(raised, of=self._derivative(running, node, raised.text))
            cause = self._failures.cause(node, raised.text, running)
        else:
            self._failures.remember(running)
        number = {n: i for i, n in enumerate(graph.nodes[: len(running.starts)])}
        roots = tuple(
            unscaled(root_record(r, None if n is None else number.get(n), running.root_values.get(at)), running.scale)
            for at, (r, n) in enumerate(zip(running.roots, running.starts, strict=True))
        )
        return PendingCallRecord(
            index=running.index,
            step=running.step,
            kind=running.kind,
            arguments={name: describe(value) for name, value in running.arguments.items()},
            roots=roots,
            site=self._names.frames.site(running.spot),
            seconds=running.ended - running.began - watch.seconds_in_hooks,
            raised=raised,
            live=running.live,
            signature=signature,
            norms=watch.norms.values if running.scale == 1.0 else [n / running.scale for n in watch.norms.values],
            times=watch.seconds,
            unmeasured=frozenset(watch.norms.unmeasured),
            bad=watch.norms.bad,
            bad_nodes=self._second.with_derivatives(watch.bad_nodes, graph.seqs.__getitem__),
            nonfinite_results=self._values.take_bad(),
            base=graph.span[0],
            inside=running.inside,
            cause=cause,
            names=self._names,
            second=self._second,
        )

    def _derivative(self, running: ActiveBackward, node: int, text: str) -> Derivative | None:
        """Return the forward op of which the node that raised computes a derivative, if an earlier backward made that
        node.
        :param text: the text of the error.
        """
        graph = running.graph
        if ONCE not in text:
            return self._second.derivative(graph.seqs[node])
        users = {s for i, s in enumerate(graph.seqs) if any(edge and edge[0] == node for edge in graph.plan.edges(i))}
        return self._second.nondifferentiable_maker(users)

    def _signature(self, running: ActiveBackward) -> Signature:
        """Return the signature of the measurements.

        It is that of the last call if both are equal; otherwise a new one, with which the next call is compared.
        """
        rows, live = running.watch.rows_if_changed(), running.live
        if rows is None:
            assert live.signature is not None
            return live.signature
        signature = signature_of(rows)
        if not self._recorder.inspecting:
            live.signature, live.measurement_plan = signature, MeasurementPlan(*rows, live.plan)
        return signature
