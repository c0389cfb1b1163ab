"""The crash report of a process: its signal, the user's line, and the collective that it was in."""

from __future__ import annotations

import pytest

from backprobe.observe.forward import torch_call_recorder
from backprobe.store import CRASH
from backprobe.store.crashes import read_crash

HEAD = """Fatal Python error: Aborted

Thread 0x1 (most recent call first):
  File "/x/lib/python3.11/threading.py", line 9 in run

"""
C10D = "/x/site-packages/torch/distributed/distributed_c10d.py"


@pytest.mark.parametrize(
    ("stack", "op"),
    [
        ([(C10D, "all_reduce"), ("/x/site-packages/torch/distributed/c10d_logger.py", "wrapper")], "all_reduce"),
        ([(C10D, "_new_group"), (C10D, "new_group")], "new_group"),
        (
            [
                ("<frozen posixpath>", "realpath"),
                (torch_call_recorder.__file__, "__torch_function__"),
                ("/x/site-packages/torch/_library/autograd.py", "autograd_impl"),
                ("/x/site-packages/torch/_ops.py", "__call__"),
                ("/x/site-packages/torch/distributed/_functional_collectives.py", "all_gather_single"),
                ("/x/site-packages/torch/autograd/function.py", "apply"),
                ("/x/site-packages/torch/distributed/checkpoint/state_dict.py", "get_model_state_dict"),
            ],
            "get_model_state_dict",
        ),
        (
            [
                ("/x/site-packages/torch/nn/functional.py", "linear"),
                ("/x/site-packages/torch/distributed/fsdp/_fully_shard/_fsdp_state.py", "fsdp_hook_wrapper"),
            ],
            "",
        ),
        ([("/x/site-packages/torch/autograd/graph.py", "_engine_run_backward")], ""),
        ([], ""),
    ],
)
def test_the_collective_in_which_a_process_crashed(tmp_path, stack: list[tuple[str, str]], op: str) -> None:
    frames = [*stack, ("/work/train.py", "main")]
    lines = [f'  File "{file}", line 7 in {function}' for file, function in frames]
    (tmp_path / CRASH).write_text(HEAD + "Current thread 0x2 (most recent call first):\n" + "\n".join(lines) + "\n")
    crash = read_crash(tmp_path)
    assert crash is not None
    how, site, found = crash
    assert (how, found) == ("Aborted", op)
    assert site is not None
    assert (site.file, site.line, site.function) == ("/work/train.py", 7, "main")


def test_a_process_that_did_not_crash(tmp_path) -> None:
    assert read_crash(tmp_path) is None
    (tmp_path / CRASH).write_text("")
    assert read_crash(tmp_path) is None
