"""The cell of blocks as kernels: the numbers of the cell.

They need a GPU, or triton's interpreter: `TRITON_INTERPRET=1 pytest tests/nn/test_gru_kernels.py`.
"""

import os
from importlib.util import find_spec

import pytest
import torch
from torch.utils._triton import has_triton

from reverie.nn.gru import BlockCell, CellWeights
from reverie.nn.layers import Layers

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1" and find_spec("triton") is not None
DEVICE = "cpu" if INTERPRETED else "cuda"
pytestmark = pytest.mark.skipif(not INTERPRETED and not has_triton(), reason="there is no GPU with triton")


@pytest.mark.parametrize(
    ("count", "width", "hidden"),
    [(16, 64, 64), (5, 64, 16), (130, 192, 64), (7, 128, 32), (3, 256, 128), (2, 320, 16)],
)
def test_a_step_of_the_cell_is_that_of_plain_operations(count, width, hidden):
    from reverie.nn.gru_kernels import advance

    torch.manual_seed(0)
    deter = 4 * width
    cell = BlockCell(Layers(), deter, 8, 3, hidden, 4).to(DEVICE)
    with torch.no_grad():
        for weight in cell.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.1)
        state = torch.randn(count, deter, device=DEVICE).tanh()
        inputs = torch.randn(count, 3 * hidden, device=DEVICE)
        blocks = state.unflatten(-1, (4, -1))
        mixed = cell.mix(torch.cat([blocks, inputs.unsqueeze(1).expand(-1, 4, -1)], -1))
        x = cell.tail(mixed.flatten(1)).reshape(blocks.shape)
        reset, candidate, update = cell.gates(x).chunk(3, -1)
        update = (update - 1).sigmoid()
        expected = (update * (reset.sigmoid() * candidate).tanh() + (1 - update) * blocks).flatten(1)
    held, after = torch.cat([state, inputs], 1), torch.zeros(count, deter + 32, device=DEVICE)
    weights = CellWeights(
        cell.mix.weight, cell.mix.bias, cell.tail[0].weight, cell.gates.weight, cell.gates.bias, cell.tail[0].eps
    )
    with torch.no_grad():
        advance(held, weights, after[:, :deter])
    torch.testing.assert_close(held[:, :deter], expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(after[:, :deter], expected, atol=1e-5, rtol=1e-5)
    assert torch.equal(held[:, deter:], inputs) and after[:, deter:].eq(0).all()
