"""Environment of a run (versions, flags, variables) and of a step (random number generators, settings of modules)."""

from __future__ import annotations

import hashlib
import os
import platform
import random
import sys
from collections.abc import Iterable

import torch
from torch import nn

from ...basics.privacy import masked_variables, without_home

_VARIABLES = ("CUBLAS_", "CUDA_", "NVIDIA_", "OMP_", "MKL_", "TORCH", "PYTORCH_", "NCCL_", "PYTHONHASHSEED", "ATEN_")
_PACKAGES = ("numpy", "transformers", "torchvision", "torchaudio", "lightning", "accelerate", "triton", "peft", "timm")


def process_environment() -> dict[str, object]:
    """Return the versions, flags, machine and environment variables of the process."""
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    for name in _PACKAGES:
        module = sys.modules.get(name)
        if module is not None:
            versions[name] = str(getattr(module, "__version__", "?"))
    backends = torch.backends
    flags = {
        "threads": torch.get_num_threads(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "float32 matmul precision": torch.get_float32_matmul_precision(),
        "default dtype": str(torch.get_default_dtype()),
        "mkldnn": backends.mkldnn.enabled,
        "cudnn.benchmark": backends.cudnn.benchmark,
        "cudnn.deterministic": backends.cudnn.deterministic,
        "cudnn.allow_tf32": backends.cudnn.allow_tf32,
        "flash attention": backends.cuda.flash_sdp_enabled(),
        "memory-efficient attention": backends.cuda.mem_efficient_sdp_enabled(),
        "math attention": backends.cuda.math_sdp_enabled(),
        "flush denormal": bool(torch.tensor([1e-40]).mul(1.0).item() == 0.0),
        "cpu": torch.backends.cpu.get_cpu_capability(),
    }
    machine = {"system": platform.system(), "machine": platform.machine()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        machine["gpu"] = torch.cuda.get_device_name()
    variables = {k: v for k, v in sorted(os.environ.items()) if k.startswith(_VARIABLES)}
    variables = {name: without_home(value) for name, value in masked_variables(variables).items()}
    return {"versions": versions, "flags": flags, "machine": machine, "variables": variables}


def generator_hashes() -> dict[str, str]:
    """Return a hash of the state of each random number generator."""
    found = {"torch": _hash(bytes(torch.get_rng_state().tolist())), "random": _hash(repr(random.getstate()).encode())}
    numpy = sys.modules.get("numpy")
    if numpy is not None and "numpy.random" in sys.modules:
        _, keys, *rest = numpy.random.get_state()
        found["numpy"] = _hash(keys.tobytes() + repr(rest).encode())
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        found["cuda"] = _hash(bytes(torch.cuda.get_rng_state().tolist()))
    return found


def _hash(data: bytes) -> str:
    """Return a short hash of bytes as text."""
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def module_settings(named: Iterable[tuple[str, nn.Module]]) -> dict[str, dict[str, object]]:
    """Return by name the class of each module, its plain attributes, and which of its parameters are frozen."""
    found = {}
    for name, module in named:
        settings: dict[str, object] = {"class": type(module).__name__}
        for key, value in vars(module).items():
            if key[0] != "_" and isinstance(value, (bool, int, float, str)):
                settings[key] = value
            elif key in ("stride", "padding", "dilation", "kernel_size", "normalized_shape"):
                settings[key] = str(value)
        frozen = [key for key, p in module._parameters.items() if p is not None and not p.requires_grad]
        if frozen:
            settings["frozen"] = ", ".join(frozen)
        found[name] = settings
    return found


def optimizer_settings(one: torch.optim.Optimizer) -> dict[str, object]:
    """Return the settings of an optimizer, by parameter group."""
    groups = [
        {k: v if isinstance(v, (bool, int, float, str, type(None))) else str(v) for k, v in g.items() if k != "params"}
        for g in one.param_groups
    ]
    return {"class": type(one).__name__, "groups": groups, "sizes": [len(g["params"]) for g in one.param_groups]}
