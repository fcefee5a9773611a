"""Exported steps act as their agent does, over 200 steps of real environments."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

import reverie
from reverie import actors
from reverie.collect.collector import playable
from reverie.config.errors import UserError
from reverie.tools import export
from reverie.tools.steps import make_step

STEPS = 200
ENVS = 2
CASES = [
    ("v1", ".onnx", True, ["dreamer_v1"], {"task": "gym_Pendulum-v1"}),
    ("v2", ".pt2", True, ["dreamer_v2"], {"task": "toy_catch", "env__size": 64}),
    ("v3 of 2023", ".pt2", False, ["dreamer_v3_2023"], {"task": "gym_Pendulum-v1"}),
    ("v3", ".onnx", False, ["dreamer_v3"], {"task": "toy_hybrid"}),
    ("on policy", ".onnx", True, ["dreamer_v3"], {"task": "gym_CartPole-v1", "agent__policy": "on_policy_ppo"}),
    ("ppo", ".onnx", True, [], {"task": "gym_CartPole-v1"}),
    ("ppo of images", ".pt2", False, [], {"task": "toy_hybrid", "ppo__features": 16}),
    ("ppo of many choices", ".onnx", True, [], {"task": "toy_multi"}),
    ("ppo of numbers", ".onnx", False, [], {"task": "gym_Pendulum-v1", "ppo__normalize_observation": True}),
]


def lively(config, stream):
    """An agent whose actions depend on what it sees: new ones do the same always."""
    agent = actors.make_agent(config, *stream.spaces, torch.device("cpu"))
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in agent.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return agent


def runner(path: Path) -> Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]:
    """What a file computes, from arrays to arrays by name."""
    if path.suffix == ".onnx":
        session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
        names = [each.name for each in session.get_outputs()]
        return lambda inputs: dict(zip(names, session.run(None, inputs)))
    module = torch.export.load(path).module()
    return lambda inputs: {
        name: value.numpy() for name, value in module({key: torch.from_numpy(x) for key, x in inputs.items()}).items()
    }


def drawn(step, name: str, generator: torch.Generator) -> np.ndarray:
    """The random numbers of an input, as its description says."""
    port = next(each for each in step.inputs if each.name == name)
    draw = torch.randn if "normal" in port.meaning else torch.rand
    if port.shape == (2,) and draw is torch.rand:  # as two choices draw one after the other
        return np.concatenate([draw(ENVS, 1, generator=generator).numpy() for _ in range(2)], -1)
    return draw(ENVS, *port.shape, generator=generator).numpy()


@pytest.mark.parametrize(
    ("suffix", "stochastic", "presets", "options"), [x[1:] for x in CASES], ids=[x[0] for x in CASES]
)
def test_the_file_acts_as_the_agent_does(tmp_path, monkeypatch, suffix, stochastic, presets, options):
    plain = {"device": "cpu", "ppo__precision": "float32", "world__precision": "float32"}
    config = reverie.configure(*presets, "debug", **plain, **options)
    stream = actors.make_stream(config, count=ENVS)
    agent = lively(config, stream)
    step = make_step(agent, *stream.spaces, stochastic)
    path = tmp_path / f"policy{suffix}"
    export.export(step, export.describe(step, stream.action_space, {}), path)
    compute, names = runner(path), [each.name for each in step.inputs]
    if not stochastic and "carry_stoch" in names:
        latent = agent.world.rssm.latent
        monkeypatch.setattr(latent, "sample", lambda params, noise: latent.mode(params))

    rows, carry, seen = stream.begin(), agent.initial_carry(ENVS), set()
    twin = torch.Generator().manual_seed(config.seed)
    inputs = {each.name: each.zeros(ENVS).numpy() for each in step.inputs}
    for _ in range(STEPS):
        inputs |= {key: np.array(rows[key]) for key in rows if key in names}
        for name in ("latent_noise", "action_noise"):
            if name in names:
                inputs[name] = drawn(step, name, twin)
        found = compute(inputs)
        batch = {key: torch.from_numpy(np.array(value)) for key, value in rows.items()}
        added, carry = agent.act(batch, carry, "sample" if stochastic else "eval")
        action = playable(added["action"], stream.action_space)
        np.testing.assert_allclose(found["action"], action, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(found["value"], added["value"].numpy(), rtol=1e-3, atol=1e-3)
        for key in ("deter", "stoch"):
            if key in found:
                np.testing.assert_allclose(found[key], carry[key].numpy(), rtol=1e-3, atol=1e-3)
        inputs |= {f"carry_{key}": found[key] for key in ("deter", "stoch", "action") if f"carry_{key}" in names}
        seen |= {tuple(np.round(row, 2)) for row in action.reshape(ENVS, -1)}
        rows = stream.step(action)
    stream.close()
    assert len(seen) > 1, "an agent that always does the same proves nothing"


def test_an_agent_that_learned_nothing_is_refused():
    config = reverie.configure("debug", task="toy_count", agent__name="random")
    stream = actors.make_stream(config, count=1)
    agent = actors.make_agent(config, *stream.spaces, torch.device("cpu"))
    stream.close()
    with pytest.raises(UserError, match="acts at random"):
        make_step(agent, *stream.spaces, False)
