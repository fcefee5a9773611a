"""Rows reach the agent as they are, whatever order their axes have in memory."""

import numpy as np
import pytest
import torch

from reverie.collect.transfer import Transfer, _like

ROWS = {
    "image": np.arange(2 * 3 * 4 * 5, dtype=np.uint8).reshape(2, 3, 4, 5).transpose(0, 2, 3, 1),
    "reward": np.array([1.5, -2.0], np.float32),
    "is_first": np.array([True, False]),
}


def test_memory_takes_the_order_of_the_axes():
    memory = torch.zeros(ROWS["image"].nbytes, dtype=torch.uint8)
    tensor = _like(ROWS["image"], memory)
    tensor.numpy()[...] = ROWS["image"]
    assert tensor.shape == (2, 4, 5, 3)
    assert (tensor.numpy() == ROWS["image"]).all()
    assert (memory.numpy() == np.arange(120)).all()  # one plain copy, and nothing turned round on the way


def test_a_cpu_sees_the_arrays_themselves():
    found = Transfer(torch.device("cpu"))(ROWS)
    assert found["reward"].data_ptr() == ROWS["reward"].ctypes.data


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_all_columns_arrive_on_a_gpu_and_again_when_they_change():
    transfer = Transfer(torch.device("cuda"))
    for rows in (ROWS, {name: value.copy() for name, value in ROWS.items()}, {"x": np.zeros((3, 2))}):
        found = transfer(rows)
        assert found.keys() == rows.keys()
        for name, value in rows.items():
            assert found[name].is_cuda
            np.testing.assert_array_equal(found[name].cpu().numpy(), value)
