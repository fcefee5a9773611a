"""The update of examples/one_update.py, which reads like the paper, is the one that the agent makes."""

import copy
import importlib.util
from pathlib import Path

import pytest
import torch

import reverie
from reverie.actors import make_agent, make_stream

SPEC = importlib.util.spec_from_file_location("one_update", Path(__file__).parents[1] / "examples/one_update.py")
one_update = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(one_update)


@pytest.mark.parametrize("task", ["toy_catch", "toy_hybrid", "gym_Pendulum-v1"])
def test_the_page_learns_what_the_agent_learns(task):
    options = {"run__fast": "off", "env__time_limit": 12, "behavior__starts": 0, "optim__model__warmup": 0}
    config = reverie.configure("dreamer_v3", "debug", task=task, **options)  # windows have ends inside
    stream = make_stream(config)
    agent = make_agent(config, *stream.spaces, torch.device("cpu"))
    stream.close()
    rows = one_update.batch_of(agent, config)
    assert rows["is_first"][:, 1:].any() and rows["is_last"].any()
    page, untouched = copy.deepcopy(agent), copy.deepcopy(agent)
    for _ in range(2):  # heads that begin at zero pass no gradient on before the second
        page.generator.set_state(agent.generator.get_state())
        mine, theirs = one_update.update(page, rows), agent.learn_replay(rows).metrics
        found = {name.split("/", 1)[1].removesuffix("_loss"): x for name, x in theirs.items() if name.endswith("_loss")}
        assert set(mine) == set(found)
        for name, loss in mine.items():
            torch.testing.assert_close(loss, found[name], rtol=1e-5, atol=1e-6)
        for (name, left), right in zip(page.named_parameters(), agent.parameters()):
            assert (left.grad is None) == (right.grad is None), name
            if left.grad is not None:
                torch.testing.assert_close(left.grad, right.grad, rtol=1e-4, atol=1e-6, msg=name)
    for left, right, before in zip(page.parameters(), agent.parameters(), untouched.parameters()):
        moved = (right - before).norm()
        assert (left - right).norm() <= 1e-3 * moved
