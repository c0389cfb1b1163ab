"""TensorBoard: an event file."""

from __future__ import annotations

import os
import socket
import time
from typing import Any

from .alerts import Alert


class TensorBoard:
    """Writes an event file as TensorBoard's own writers do, but synchronously, since this process has no other work.

    Next to a script's own writer it uses a subfolder: of two files in one folder, a running TensorBoard reads only the
    newer one, so the script's own curves would stop.
    """

    def begin(self, about: dict[str, Any]) -> str:
        """Create an event file, in a folder that `about` gives, and return the folder."""
        from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, types_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event, self._summary, self._tensor, self._types = event_pb2, summary_pb2, tensor_pb2, types_pb2
        folder: str = about.get("open") or os.path.join("runs", about["name"])
        os.makedirs(folder, exist_ok=True)
        name = f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}.backprobe"
        self._file = open(os.path.join(folder, name), "wb")  # noqa: SIM115  it is closed at the end
        self._records = RecordWriter(self._file)
        self._write(file_version="brain.Event:2")
        return folder

    def rows(self, rows: list[tuple[int, dict[str, float]]]) -> None:
        """Write rows of (step, numbers) as scalars."""
        for step, numbers in rows:
            values = [self._summary.Summary.Value(tag=tag, simple_value=value) for tag, value in numbers.items()]
            self._write(step=step, summary=self._summary.Summary(value=values))
        self._file.flush()

    def alert(self, alert: Alert) -> None:
        """Write an alert as text."""
        meta = self._summary.SummaryMetadata(
            plugin_data=self._summary.SummaryMetadata.PluginData(plugin_name="text"),
            data_class=self._summary.DATA_CLASS_TENSOR,
        )
        text = f"**{alert.title}**\n\n{alert.text}".encode()
        tensor = self._tensor.TensorProto(
            dtype=self._types.DT_STRING,
            string_val=[text],
            tensor_shape={"dim": [{"size": 1}]},
        )
        value = self._summary.Summary.Value(tag=f"backprobe/{alert.kind}", metadata=meta, tensor=tensor)
        self._write(step=alert.step or 0, summary=self._summary.Summary(value=[value]))
        self._file.flush()

    def close(self) -> None:
        """Close the event file."""
        self._file.close()

    def _write(self, **fields: object) -> None:
        """Write one event with these fields and the current time."""
        self._records.write(self._event.Event(wall_time=time.time(), **fields).SerializeToString())
