"""Weak references to tensors."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest
import torch

from backprobe.torch_internals import references
from backprobe.torch_internals.references import MIN_PRUNED_ENTRIES, tensor_ref


def test_one_object_for_each_tensor_as_long_as_somebody_has_it() -> None:
    first, second = torch.ones(2), torch.ones(2)
    kept = tensor_ref(first)
    assert tensor_ref(first) is kept and kept() is first
    assert tensor_ref(second) is not kept and tensor_ref(second)() is second
    del first
    gc.collect()
    assert kept() is None


def test_no_list_of_references_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collection during ``getweakrefs`` crashes CPython 3.11: Note [References without a list]."""
    tensor = torch.ones(1)
    kept = tensor_ref(tensor)
    monkeypatch.setattr(weakref, "getweakrefs", None)
    assert tensor_ref(tensor) is kept and tensor_ref(torch.ones(1)) is not kept


def test_references_that_are_gone_leave_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    table = references._ReferenceTable()
    monkeypatch.setattr(references, "_references", table)
    tensors = [torch.empty(0) for _ in range(MIN_PRUNED_ENTRIES)]
    for _ in range(5):
        refs = [tensor_ref(tensor) for tensor in tensors]
        tensors = [torch.empty(0) for _ in range(MIN_PRUNED_ENTRIES)]
    assert len(refs) == MIN_PRUNED_ENTRIES
    assert len(table._entries) <= 2 * MIN_PRUNED_ENTRIES


def test_threads_that_refer_to_the_same_tensors() -> None:
    tensors = [torch.ones(1) for _ in range(200)]
    wrong: list[int] = []
    together = threading.Barrier(4)

    def refer() -> None:
        together.wait(600)
        wrong.extend(i for _ in range(20) for i, tensor in enumerate(tensors) if tensor_ref(tensor)() is not tensor)

    threads = [threading.Thread(target=refer) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
    assert wrong == []
