"""An agent that learns by the kernels learns what it learns without."""

import logging

import numpy as np
import pytest
import torch
from gymnasium import spaces

from emulation.emulated import Emulated, require_compiler
from reverie.agents import compiled
from reverie.agents.dreamer import Dreamer
from reverie.config.options import replaced
from reverie.config.presets import stacked
from reverie.world.kernel.persistent import PersistentScan

OBSERVATION = spaces.Dict({"vector": spaces.Box(-np.inf, np.inf, (3,), np.float32)})
OPTIONS = {
    "run.fast": "off", "replay.prefill": 0, "optim.model.warmup": 0, "replay.batch": 16, "replay.length": 3,
    "behavior.horizon": 2, "world.precision": "bfloat16",
}  # fmt: skip


def agent_of(device="cpu", **options):
    torch.manual_seed(0)
    config = replaced(stacked(["dreamer_v3", "1m"]), OPTIONS | options)
    return Dreamer(OBSERVATION, spaces.Discrete(3), config, torch.device(device))


def rows_of(agent):
    """Rows (16, 4) the agent has acted upon, with a beginning in the middle."""
    generator = torch.Generator().manual_seed(0)
    rows = {"vector": torch.randn(16, 4, 3, generator=generator), "reward": torch.randn(16, 4, generator=generator)}
    rows |= {key: torch.zeros(16, 4, dtype=torch.bool) for key in ("is_first", "is_last", "is_terminal")}
    rows["is_last"][0, 1] = rows["is_first"][0, 2] = True
    rows, carry, columns = {key: x.to(agent.device) for key, x in rows.items()}, agent.initial_carry(16), []
    for t in range(4):
        added, carry = agent.act({key: x[:, t] for key, x in rows.items()}, carry, "train")
        columns.append(added)
    return rows | {key: torch.stack([column[key] for column in columns], 1) for key in columns[0]}


def compare_updates(plain, fast, updates):
    """Both learn from the same rows and random numbers."""
    rows = rows_of(plain)
    fast.generator.set_state(plain.generator.get_state())
    for _ in range(updates):
        expected, found = plain.learn_replay(rows).metrics, fast.learn_replay(rows).metrics
    assert expected.keys() == found.keys()
    for name in ("world/vector_loss", "world/dyn_loss", "world/reward_loss", "train/model_grad_norm"):
        torch.testing.assert_close(found[name], expected[name], rtol=0.1, atol=0.1, msg=name)


def test_the_same_updates_on_a_gpu_that_is_played(monkeypatch, tmp_path):
    require_compiler()
    monkeypatch.setattr(compiled, "BACKEND", None)
    monkeypatch.setattr(compiled, "Program", lambda shape, device: Emulated(shape, tmp_path))
    plain, fast = agent_of(), agent_of()
    compiled.persist(fast.world.rssm, 16, fast.in_half)
    starts = []
    start = fast.world.rssm.scan.program.start
    fast.world.rssm.scan.program.start = lambda name, argument: (starts.append(name), start(name, argument))
    compare_updates(plain, fast, 1)
    assert starts == ["forward", "reverse"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_the_same_updates_in_graphs_of_a_gpu(monkeypatch):
    monkeypatch.setattr(compiled, "BACKEND", "aot_eager")
    plain, fast = (agent_of("cuda", **{"run.fast": how}) for how in ("shared", "compile"))
    assert isinstance(fast.world.rssm.scan, PersistentScan) and not isinstance(plain.world.rssm.scan, PersistentScan)
    compare_updates(plain, fast, 5)
    assert fast.updating["all"].captures and not fast.updating["all"].failed


def failing(shape, device):
    raise RuntimeError("it needs 32 thread blocks at once, the GPU holds 20\nand more")


def test_what_keeps_the_kernels_from_running_is_said(monkeypatch, caplog):
    caplog.set_level(logging.INFO, "reverie")
    rssm = agent_of().world.rssm
    plain = rssm.scan
    monkeypatch.setattr(compiled, "Program", failing)
    compiled.persist(rssm, 16, half=True)
    compiled.persist(rssm, 8, half=True)
    broken, unfit = caplog.records
    assert broken.levelname == "WARNING"
    assert broken.message.endswith(": it needs 32 thread blocks at once, the GPU holds 20")
    assert unfit.levelname == "INFO" and unfit.message.endswith("not 8")
    assert rssm.scan == plain
