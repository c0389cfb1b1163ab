"""Captured values on disk: safetensors, written as they come and read back one at a time.

``to="acts.safetensors"`` is one file: room for its header is left at the start, and the header is written when the
capture ends. ``to="acts/"`` is a folder with one complete file for each value: nothing is lost when the process dies.
Any safetensors reader opens both.
"""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors import safe_open

from ...basics.errors import BackprobeError
from ...basics.files import replacing

#: What the format calls the types.
_TYPES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.int16: "I16",
    torch.int32: "I32",
    torch.int64: "I64",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.float64: "F64",
    torch.complex64: "C64",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
}
#: Bytes reserved for the header of a single file; a longer header costs a second pass over the file.
_HEADER_BYTES = 1 << 16
#: Name of the tensor in each file of a folder, and the key of its own name in the metadata.
_TENSOR_KEY, _NAME_KEY = "value", "name"


class TensorFiles:
    """Writes each value as it comes."""

    def __init__(self, to: Path) -> None:
        """Create the file, with room for its header, or the folder.
        :raises BackprobeError: the file exists, or the folder is not empty.
        """
        self.to = to
        self.single = to.suffix == ".safetensors"
        self._header: dict[str, Any] = {}
        self._at = 0
        self._count = 0
        self._file: BinaryIO | None = None
        self._open: Any = None
        try:
            if not self.single:
                to.mkdir(parents=True, exist_ok=True)
                if any(to.iterdir()):
                    raise BackprobeError(f"{to} is not empty: give a new folder for the captured values")
            else:
                to.parent.mkdir(parents=True, exist_ok=True)
                self._file = to.open("xb")
                self._file.write(bytes(8 + _HEADER_BYTES))
        except FileExistsError:
            raise BackprobeError(f"{to} is there already: give a new file for the captured values") from None

    def write(self, name: str, tensor: torch.Tensor) -> str:
        """Write one captured value under `name`; return the key that ``read`` takes."""
        tensor = tensor.detach().to("cpu").contiguous().resolve_conj().resolve_neg()
        if tensor.dtype not in _TYPES or tensor.layout is not torch.strided:
            raise BackprobeError(f"{name!r}: safetensors has no {tensor.dtype}, {tensor.layout}: cast with dtype=")
        size = tensor.numel() * tensor.element_size()
        data = (ctypes.c_char * size).from_address(tensor.data_ptr()) if size else b""
        entry = {"dtype": _TYPES[tensor.dtype], "shape": list(tensor.shape)}
        if self._file is not None:
            self._header[name] = entry | {"data_offsets": [self._at, self._at + size]}
            self._file.write(data)
            self._at += size
            return name
        key = f"{self._count:06d}.safetensors"
        self._count += 1
        header = {"__metadata__": {_NAME_KEY: name}, _TENSOR_KEY: entry | {"data_offsets": [0, size]}}
        with replacing(self.to / key) as part, part.open("wb") as file:
            text = json.dumps(header).encode()
            text += b" " * (-len(text) % 8)
            file.write(len(text).to_bytes(8, "little") + text)
            file.write(data)
        return key

    def close(self) -> None:
        """Complete the file: write its header. A folder needs nothing."""
        if self._file is None:
            return
        file, self._file = self._file, None
        text = json.dumps(self._header).encode()
        with file:
            if len(text) <= _HEADER_BYTES:
                file.seek(0)
                file.write(_HEADER_BYTES.to_bytes(8, "little") + text.ljust(_HEADER_BYTES))
                return
        text += b" " * (-len(text) % 8)
        with replacing(self.to) as part, part.open("wb") as out, self.to.open("rb") as old:
            out.write(len(text).to_bytes(8, "little") + text)
            old.seek(8 + _HEADER_BYTES)
            while block := old.read(1 << 24):
                out.write(block)

    def read(self, key: str) -> Any:
        """Read a captured value from its file; `key` is what ``write`` returned."""
        if self._file is not None:
            raise BackprobeError(f"{self.to} is being written: read the values when the capture is over")
        path = self.to if self.single else self.to / key
        try:
            with safe_open(str(path), "pt") as opened:
                return opened.get_tensor(key if self.single else _TENSOR_KEY)
        except FileNotFoundError:
            raise BackprobeError(f"{path}, which holds captured values, is gone") from None
