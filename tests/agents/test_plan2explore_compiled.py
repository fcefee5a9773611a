"""Compiled updates of Plan2Explore: the same numbers as plain ones, in each of its lessons."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from reverie.agents import compiled
from reverie.agents.plan2explore import Plan2Explore
from reverie.config.options import replaced
from reverie.config.presets import stacked

OBSERVATION = spaces.Dict({"vector": spaces.Box(-np.inf, np.inf, (3,), np.float32)})
CASES = [("dreamer_v1", spaces.Box(-2, 2, (2,), np.float32), (0.0,)), ("dreamer_v3", spaces.Discrete(3), (0.0, 1.0))]
"""Preset, actions, and how far a run is at each update: exploring, and fitting when it is over."""


def agent_of(preset, space, fast):
    torch.manual_seed(0)
    options = {
        "run.fast": fast, "replay.prefill": 0, "optim.joint": True, "optim.model.warmup": 0, "world.bins": 15,
        "explore.fit": 1, "behavior.horizon": 2,
    }  # fmt: skip
    config = replaced(stacked([preset, "plan2explore", "debug"]), options)
    return Plan2Explore(OBSERVATION, space, config, torch.device("cpu"))


def rows_of(agent):
    rng = np.random.default_rng(0)
    rows = {
        "vector": torch.from_numpy(rng.normal(size=(2, 3, 3)).astype(np.float32)),
        "reward": torch.from_numpy(rng.normal(size=(2, 3)).astype(np.float32)),
    }
    rows |= {key: torch.zeros(2, 3, dtype=torch.bool) for key in ("is_first", "is_last", "is_terminal")}
    rows["is_last"][0, 1] = rows["is_terminal"][0, 1] = rows["is_first"][0, 2] = True
    carry, columns = agent.initial_carry(2), []
    for t in range(3):
        added, carry = agent.act({key: x[:, t] for key, x in rows.items()}, carry, "train")
        columns.append(added)
    return rows | {key: torch.stack([column[key] for column in columns], 1) for key in columns[0]}


@pytest.mark.parametrize(("preset", "space", "progress"), CASES)
def test_updates_are_the_same(preset, space, progress, monkeypatch):
    monkeypatch.setattr(compiled, "BACKEND", "aot_eager")
    torch._dynamo.reset()
    plain, fast = (agent_of(preset, space, how) for how in ("off", "compile"))
    rows = rows_of(plain)
    fast.generator.set_state(plain.generator.get_state())
    for part in progress:
        for agent in (plain, fast):
            agent.schedule(part)
        expected, found = plain.learn_replay(rows), fast.learn_replay(rows)
        assert expected.metrics.keys() == found.metrics.keys()
        for name, value in expected.metrics.items():
            torch.testing.assert_close(found.metrics[name], value, rtol=1e-3, atol=1e-5, msg=name)
    assert plain.lesson == ("explore" if progress == (0.0,) else "exploit")
    for (name, value), other in zip(plain.state_dict().items(), fast.state_dict().values()):
        torch.testing.assert_close(other, value, rtol=1e-3, atol=1e-4, msg=name)
