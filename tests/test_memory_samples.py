"""Samples of tensors that are read from their memory."""

from __future__ import annotations

from array import array

import pytest
import torch
from torch import nn

from backprobe.torch_internals.memory_samples import MAX_ELEMENTS, MemorySample, WriteSample, has_memory


@pytest.mark.parametrize("size", [1, MAX_ELEMENTS - 1, MAX_ELEMENTS, 1000])
def test_the_elements_in_the_middle(size: int) -> None:
    parameter = nn.Parameter(torch.arange(float(size)))
    sample = MemorySample(parameter)
    count = min(size, MAX_ELEMENTS)
    first = (size - count) // 2
    assert array(sample.format, sample.read() or b"").tolist() == parameter.tolist()[first : first + count]
    parameter.data.add_(1)  # which leaves the version as it is
    assert array(sample.format, sample.read() or b"")[0] == first + 1
    assert sample.of(torch.zeros(size)) == bytes(4 * count) and sample.of(torch.zeros(size + 1)) is None


def test_other_memory_of_the_parameter() -> None:
    parameter = nn.Parameter(torch.zeros(100))
    sample = MemorySample(parameter)
    assert sample.read() == bytes(4 * MAX_ELEMENTS)
    parameter.data = torch.ones(100)
    assert array("f", sample.read() or b"").tolist() == [1.0] * MAX_ELEMENTS
    parameter.data = parameter.data[:20]  # the same address, and fewer elements
    assert sample.read() is None
    parameter.data = torch.empty(0)
    assert sample.read() is None
    del parameter
    assert sample.read() is None


def test_what_cannot_be_read() -> None:
    assert has_memory(torch.zeros(3))
    for tensor in (torch.zeros(3, 2).t(), torch.zeros(0), torch.zeros(3, device="meta"), torch.eye(3).to_sparse()):
        assert not has_memory(tensor)


@pytest.mark.parametrize("transposed", [False, True])
def test_writes_are_noticed(transposed: bool) -> None:
    """A transposed tensor has no memory that could be read as it is: its sample is a copy."""
    tensor = torch.zeros(30, 20)
    parameter = nn.Parameter(tensor.t() if transposed else tensor)
    assert has_memory(parameter) is not transposed
    sample = WriteSample(parameter)
    assert not sample.is_changed()
    parameter.data.add_(1)
    assert sample.is_changed()
    sample = WriteSample(parameter)
    assert not sample.is_changed()
    with torch.no_grad():
        parameter[0, 0] = 1.0  # the same value: its version tells
    assert sample.is_changed()
    parameter.data = torch.ones(3)
    assert not WriteSample(parameter).is_changed()
    del parameter, tensor
    assert not sample.is_changed()


def test_parameters_without_values_change_by_their_version_only() -> None:
    parameter = nn.Parameter(torch.zeros(3, dtype=torch.int64, device="meta"), requires_grad=False)
    sample = WriteSample(parameter)
    assert not sample.is_changed()
    parameter.add_(1)
    assert sample.is_changed()
