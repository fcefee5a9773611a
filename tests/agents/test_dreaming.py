"""Dreams by kernels: those of plain operations, from the same random numbers.

The kernels need a GPU, or triton's interpreter: `TRITON_INTERPRET=1 pytest tests/agents/test_dreaming.py`.
"""

import copy
import math
import os
import pickle
from importlib.util import find_spec
from types import MethodType

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.utils._triton import has_triton

from reverie.agents import compiled
from reverie.agents.behavior import Behavior
from reverie.agents.compiled import Dreaming, Dreamt, hasten
from reverie.agents.dreamer import Dreamer
from reverie.agents.dreaming import KernelDreaming, unsuited
from reverie.config.options import replaced
from reverie.config.presets import stacked

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1" and find_spec("triton") is not None
DEVICE = "cpu" if INTERPRETED else "cuda"
needs_triton = pytest.mark.skipif(not INTERPRETED and not has_triton(), reason="there is no GPU with triton")
OBSERVATION = spaces.Dict({"vector": spaces.Box(-np.inf, np.inf, (3,), np.float32)})
OPTIONS = {
    "run.fast": "off", "world.deter": 512, "world.hidden": 64, "world.units": 64, "behavior.units": 64,
    "world.groups": 8, "world.classes": 4, "world.precision": "bfloat16",
}  # fmt: skip


def agent_of(action=None, device="cpu", **options):
    torch.manual_seed(0)
    config = replaced(stacked(["dreamer_v3", "1m"]), OPTIONS | options)
    agent = Dreamer(OBSERVATION, action or spaces.Discrete(3), config, torch.device(device))
    with torch.no_grad():
        for weight in agent.parameters():  # so that no scale is 1, no bias 0, and actions differ
            weight.add_(torch.randn_like(weight), alpha=0.1)
    return agent


def kernels_of(agent):
    return KernelDreaming(agent.world.rssm, agent.behavior, torch.float32)


def dreamt(agent, dream, count, horizon=3):
    """Features and actions of dreams from made-up states."""
    rssm, policy = agent.world.rssm, agent.behavior.policy
    generator = torch.Generator(agent.device).manual_seed(0)
    groups, classes = rssm.latent.groups, rssm.latent.classes
    drawn = torch.randint(classes, (count, groups), generator=generator, device=agent.device)
    deter = torch.randn(count, rssm.deter, generator=generator, device=agent.device).tanh()
    draws, noise = policy.noise((horizon, count), generator), rssm.latent.noise((horizon, count), generator)
    with torch.no_grad():
        return dream(rssm, type(rssm.initial(1))(deter, rssm.latent.unpack(drawn)), draws, noise)


@needs_triton
@pytest.mark.parametrize(
    ("actions", "count", "options"),
    [
        (3, 16, {}),
        (18, 37, {}),
        (2, 5, {"world.prior_layers": 3, "behavior.actor_layers": 1}),
        (3, 16, {"world.prior_layers": 1, "behavior.actor_layers": 4}),
        (3, 16, {"world.prior_layers": 1, "behavior.actor_layers": 1}),
        (3, 16, {"world.unimix": 0.3, "behavior.unimix": 0.0}),
        (3, 16, {"world.hidden": 16, "behavior.units": 16}),
        (3, 5, {"world.hidden": 32, "behavior.units": 32, "world.deter": 1536}),
        (3, 5, {"world.hidden": 128, "behavior.units": 128, "world.groups": 32, "world.classes": 32}),
        (spaces.Box(-2, 2, (3,)), 16, {}),
        (spaces.Box(-1, 1, (21,)), 37, {"behavior.min_std": 0.3, "behavior.max_std": 2.0}),
    ],
)
def test_kernels_dream_what_plain_operations_dream(actions, count, options):
    agent = agent_of(spaces.Discrete(actions) if isinstance(actions, int) else actions, DEVICE, **options)
    rssm, behavior = agent.world.rssm, agent.behavior
    assert not unsuited(rssm, behavior, True)
    features, taken = dreamt(agent, Dreaming(rssm, behavior), count)
    found, chosen = dreamt(agent, kernels_of(agent), count)
    assert taken.argmax(-1).unique().numel() > 1
    torch.testing.assert_close(chosen, taken, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found, features, atol=1e-5, rtol=1e-5)


@needs_triton
@pytest.mark.parametrize("action", [spaces.Discrete(3), spaces.Box(-1, 1, (2,))])
def test_kernels_limit_the_outputs_of_a_policy_that_is_limited(action):
    agent = agent_of(action, DEVICE, **{"behavior.gradient": "reinforce", "behavior.unimix": 0.0})
    with torch.no_grad():
        agent.behavior.actor[-1].bias.fill_(-9.0)[0] = 9.0
    free, limited = [], []
    for limit, found in ((math.inf, free), (0.3, limited)):
        agent.behavior.limit = limit
        for kind in (Dreaming(agent.world.rssm, agent.behavior), kernels_of(agent)):
            found.append(dreamt(agent, kind, 16)[1])
    torch.testing.assert_close(limited[1], limited[0], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(free[1], free[0], atol=1e-5, rtol=1e-5)
    assert not torch.allclose(limited[0], free[0])


def test_a_copy_of_a_behaviour_dreams_by_itself():
    behavior = agent_of().behavior
    behavior.dreamt = KernelDreaming(agent_of().world.rssm, behavior)
    for copied in (copy.deepcopy(behavior), pickle.loads(pickle.dumps(behavior))):
        assert copied is not behavior and copied.dreamt == MethodType(Behavior.dreamt, copied)


@needs_triton
def test_kernels_use_the_weights_of_the_moment():
    agent = agent_of(device=DEVICE)
    dream = kernels_of(agent)
    before, _ = dreamt(agent, dream, 16)
    with torch.no_grad():
        for weight in agent.parameters():
            weight.mul_(0.5)
    after, _ = dreamt(agent, dream, 16)
    expected, _ = dreamt(agent, Dreaming(agent.world.rssm, agent.behavior), 16)
    assert not torch.equal(before, after)
    torch.testing.assert_close(after, expected, atol=1e-5, rtol=1e-5)


@needs_triton
@pytest.mark.parametrize("action", [spaces.Discrete(3), spaces.Box(-1, 1, (2,))])
def test_kernels_that_run_take_over(action):
    agent = agent_of(action, DEVICE)
    plain, kernels = Dreaming(agent.world.rssm, agent.behavior), KernelDreaming(agent.world.rssm, agent.behavior)
    agent.behavior.dreamt = plain
    Dreamt(plain, "step", 3, agent.behavior, kernels).compile()
    assert agent.behavior.dreamt is kernels


def test_kernels_that_do_not_run_are_told_of_and_steps_are_compiled(caplog, monkeypatch):
    """As on a GPU whose Triton is another one."""
    agent = agent_of()
    plain, kernels = Dreaming(agent.world.rssm, agent.behavior), KernelDreaming(agent.world.rssm, agent.behavior)
    agent.behavior.dreamt, step = plain, plain.step
    monkeypatch.setattr(compiled, "BACKEND", "eager")
    monkeypatch.setattr(KernelDreaming, "__call__", lambda *_: 1 // 0)
    Dreamt(plain, "step", 3, agent.behavior, kernels).compile()
    (line,) = [record.message for record in caplog.records]
    assert line.endswith("which is slower than their own kernels: integer division or modulo by zero")
    assert agent.behavior.dreamt is plain and plain.step != step
    features, _ = dreamt(agent, plain, 16)
    assert features.isfinite().all()


@pytest.mark.parametrize(
    ("action", "options", "reason"),
    [
        (None, {"world.cell": "norm"}, "block cell"),
        (None, {"world.latent": "gaussian"}, "categorical latents"),
        (spaces.MultiDiscrete([2, 2]), {}, "one choice of action"),
        (spaces.Discrete(65), {}, "at most 64"),
        (spaces.Box(-1, 1, (2,)), {"behavior.continuous": "tanh_normal"}, "bounded normals"),
        (None, {"behavior.gradient": "dynamics"}, "gradients"),
        (None, {"world.norm": "layer"}, "RMS norms"),
        (None, {"world.prior_layers": 0}, "a layer at least"),
        (None, {"world.hidden": 128}, "one width"),
        (None, {"world.hidden": 512, "behavior.units": 512}, "16 to 256"),
        (None, {"world.hidden": 8, "behavior.units": 8}, "16 to 256"),
        (None, {"world.classes": 256}, "16 to 1024"),
        (None, {"world.groups": 2}, "16 to 1024"),
        (None, {"world.groups": 6}, "powers of 2"),
        (None, {"world.deter": 256}, "multiple of 64"),
    ],
)
def test_what_has_no_kernels_says_why(action, options, reason):
    agent = agent_of(action, **options)
    assert reason in unsuited(agent.world.rssm, agent.behavior, True)


def test_kernels_are_for_half_precision():
    agent = agent_of()
    assert "bfloat16" in unsuited(agent.world.rssm, agent.behavior, False)
    assert unsuited(agent.world.rssm, agent.behavior, True) == ""


@pytest.mark.skipif(not torch.cuda.is_available() or not has_triton(), reason="there is no GPU with triton")
def test_on_a_gpu_dreams_are_plain_until_kernels_take_over():
    agent = agent_of(device="cuda")
    region = hasten(agent.world, agent.policies, agent.steppers, True)["task/dream"]
    assert isinstance(agent.behavior.dreamt, Dreaming)
    region.compile()
    assert isinstance(agent.behavior.dreamt, KernelDreaming)
    with torch.autocast("cuda", torch.bfloat16):
        features, actions = dreamt(agent, agent.behavior.dreamt, 64)
        expected, taken = dreamt(agent, Dreaming(agent.world.rssm, agent.behavior), 64)
    alike = (actions == taken).all(-1).all(0) & ((features - expected).abs().amax((0, 2)) < 0.5)
    assert alike.float().mean() > 0.5  # rounding sends some draws to another class, and all that follows elsewhere
    torch.testing.assert_close(features[:, alike], expected[:, alike], atol=0.05, rtol=0.05)
