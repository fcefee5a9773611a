"""Compiled updates: the same numbers as plain ones, for every generation."""

import copy
import pickle

import numpy as np
import pytest
import torch
from gymnasium import spaces

from reverie.agents import compiled
from reverie.agents.dreamer import Dreamer
from reverie.config.options import replaced
from reverie.config.presets import stacked

OBSERVATION = spaces.Dict({"vector": spaces.Box(-np.inf, np.inf, (3,), np.float32)})
IMAGES = spaces.Dict({"image": spaces.Box(0, 255, (64, 64, 3), np.uint8)})
ACTIONS = {"discrete": spaces.Discrete(3), "continuous": spaces.Box(-2, 2, (2,), np.float32)}
CASES = [
    ("dreamer_v1", "continuous", OBSERVATION),
    ("dreamer_v2", "discrete", OBSERVATION),
    ("dreamer_v3_2023", "continuous", OBSERVATION),
    ("dreamer_v3", "discrete", IMAGES),
]


@pytest.fixture(autouse=True)
def traced(monkeypatch):
    """Traced and differentiated as for a GPU, but run by torch itself: the code generator takes minutes on a CPU."""
    monkeypatch.setattr(compiled, "BACKEND", "aot_eager")
    torch._dynamo.reset()


def agent_of(preset, action, observation, fast):
    torch.manual_seed(0)
    options = {
        "run.fast": fast,
        "replay.prefill": 0,
        "optim.model.warmup": 0,
        "optim.model.lr": 1e-2,
        "replay.batch": 2,
        "replay.length": 3,
        "behavior.horizon": 2,
    }
    return Dreamer(observation, action, replaced(stacked([preset, "debug"]), options), torch.device("cpu"))


def rows_of(agent, observation):
    """Rows (2, 4) the agent has acted upon, with an end and a beginning in the middle."""
    rng = np.random.default_rng(0)
    length = 3 + int(agent.replay.start == "stored")
    rows = {"reward": torch.from_numpy(rng.normal(size=(2, length)).astype(np.float32))}
    for key, space in observation.items():
        made = rng.integers(0, 256, (2, length, *space.shape)) if key == "image" else rng.normal(size=(2, length, 3))
        rows[key] = torch.from_numpy(made.astype(space.dtype))
    rows |= {key: torch.zeros(2, length, dtype=torch.bool) for key in ("is_first", "is_last", "is_terminal")}
    rows["is_last"][0, 1] = rows["is_terminal"][0, 1] = rows["is_first"][0, 2] = True
    carry, columns = agent.initial_carry(2), []
    for t in range(length):
        added, carry = agent.act({key: x[:, t] for key, x in rows.items()}, carry, "train")
        columns.append(added)
    return rows | {key: torch.stack([column[key] for column in columns], 1) for key in columns[0]}


@pytest.mark.parametrize(("preset", "kind", "observation"), CASES)
def test_updates_are_the_same(preset, kind, observation, assert_updates_alike):
    plain, fast = (agent_of(preset, ACTIONS[kind], observation, how) for how in ("off", "compile"))
    rows = rows_of(plain, observation)
    fast.generator.set_state(plain.generator.get_state())
    assert_updates_alike(plain, fast, rows)


def test_dreams_use_the_weights_of_the_moment():
    agent = agent_of("dreamer_v3", ACTIONS["discrete"], OBSERVATION, "compile")
    rssm, policy = agent.world.rssm, agent.behavior.policy
    state = rssm.initial(64)
    draws, noise = policy.noise((1, 64), agent.generator), rssm.latent.noise((1, 64), agent.generator)
    with torch.no_grad():
        _, before = agent.behavior.dreamt(rssm, state, draws, noise)
        agent.behavior.actor[-1].bias.copy_(torch.tensor([0.0, 50.0, 0.0]))
        _, after = agent.behavior.dreamt(rssm, state, draws, noise)
    assert before[0].argmax(-1).unique().tolist() == [0, 1, 2]
    assert after[0].argmax(-1).ne(1).float().mean() < 0.05  # what is left is the uniform share


def test_what_cannot_be_compiled_runs_as_it_is_and_says_why(monkeypatch, caplog):
    monkeypatch.setattr(compiled, "BACKEND", "no such compiler")
    agent = agent_of("dreamer_v3", ACTIONS["discrete"], OBSERVATION, "compile")
    agent.learn_replay(rows_of(agent, OBSERVATION))
    (line,) = [record.message for record in caplog.records]
    assert line.startswith("updates are not compiled, which is slower: ") and "\n" not in line


def test_memory_formats_are_pickled_the_same_whoever_has_loaded_torch():
    compiled.keep_compiled()
    pickled = pickle.dumps(torch.channels_last)
    assert b"test_compiled" not in pickled and b"reverie.agents.compiled" in pickled
    assert pickle.loads(pickled) is copy.deepcopy(torch.channels_last) is torch.channels_last


def test_many_agents_of_a_process_are_compiled():
    """By itself torch compiles eight forms of a function and then no more."""
    taken = []

    def backend(graph, examples):
        taken.append(len(examples[-1]))
        return graph

    compiled.keep_compiled()
    doubled = torch.compile(lambda x: 2 * x, backend=backend, dynamic=False)
    for size in range(2, 14):
        doubled(torch.ones(size))
    assert taken == list(range(2, 14))


def test_where_not_even_a_small_kernel_can_be_made_nothing_is_compiled(monkeypatch, caplog):
    """Triton is there in many images that have no compiler of C, which it needs."""

    def failing(images):
        raise RuntimeError("Failed to find C compiler.\nPlease specify via CC environment variable.")

    cpu = torch.device("cpu")
    assert compiled.manner("compile", cpu, tried=False) == "compile"
    monkeypatch.setattr(compiled, "patches_of", failing)
    assert compiled.manner("compile", cpu, tried=False) == "graph"
    assert "updates are not compiled, which is slower: Failed to find C compiler" in caplog.text
