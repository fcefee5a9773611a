"""The Python interface with an agent of one's own."""

import pytest
import torch
from torch import nn

import reverie
from reverie.agents.base import Agent, Learned
from reverie.agents.dreamer import Dreamer
from reverie.agents.lesson import stepper_of
from reverie.commands.learning import resolve
from reverie.data.episodes import FolderStore
from reverie.training import checkpoint


class Own(Dreamer):
    """A Dreamer with one more network and its loss."""

    def _steppers(self, optim):
        self.guess = nn.Linear(self.world.features, 1, device=self.device)
        return super()._steppers(optim) | {"guess": stepper_of(optim.model, self.guess)}

    def _world(self, seen, window):
        losses, metrics = super()._world(seen, window)
        guess = self.guess(seen.state.feature).squeeze(-1)
        return losses | {"guess": (guess - window.rows["reward"]).square()}, metrics


def config_of(folder, **options):
    options = {"run__eval_every": 0, "run__eval_at_end": False, "log__tensorboard": False, **options}
    return reverie.configure("dreamer_v3", "debug", task="toy_count", logdir=str(folder), **options)


def guess_of(folder):
    return checkpoint.load(folder / "checkpoints" / "latest.pt")["agent"]["module"]["guess.weight"]


def test_an_agent_of_ones_own_is_trained_resumed_and_loaded(tmp_path):
    reverie.train(config_of(tmp_path / "run", run__steps=200), quiet=True, agent=Own)
    before = guess_of(tmp_path / "run")
    assert "world/guess_loss" in (tmp_path / "run" / "metrics.jsonl").read_text()
    more = config_of(tmp_path / "run", run__steps=300)
    outcome = reverie.train(more, resume=True, quiet=True, agent=Own)
    assert outcome.step >= 300 and not guess_of(tmp_path / "run").equal(before)
    player = reverie.load(tmp_path / "run", agent=Own)
    assert isinstance(player.agent, Own) and player.act([0.0, 1.0]) in (0, 1)
    with pytest.raises(reverie.UserError, match="does not fit this run"):
        reverie.load(tmp_path / "run")


def test_a_run_of_an_agent_of_ones_own_goes_on_with_no_other(tmp_path, caplog):
    """One that learns otherwise with the same networks would be continued as a plain Dreamer without a word."""

    class Calm(Dreamer):
        pass

    reverie.train(config_of(tmp_path / "run", run__steps=200), quiet=True, agent=Calm)
    with pytest.raises(reverie.UserError, match=r"is a run of an agent Calm: go on by reverie.resume\(.*agent=Calm"):
        reverie.resume(tmp_path / "run")
    reverie.load(tmp_path / "run", agent=Calm)
    assert not caplog.text
    reverie.load(tmp_path / "run")
    assert "is of an agent Calm, whose weights a Dreamer takes" in caplog.text


class Repeater(Agent):
    """No Dreamer, and yet it learns from a replay; it makes no generator of its own."""

    rollout = 4
    replays = True

    def __init__(self, observation, action, config, device):
        super().__init__()
        self.action, self.windows = action, []

    def act(self, rows, carry, mode):
        drawn = torch.randint(int(self.action.n), rows["is_first"].shape, generator=self.generator)
        return {"action": drawn}, carry

    def learn_replay(self, rows):
        self.windows.append(rows["action"])
        return Learned({"train/reward": rows["reward"].mean()}, updates=1)


def test_an_agent_that_is_no_dreamer_may_learn_from_a_replay(tmp_path):
    made = []
    config = config_of(tmp_path / "run", run__steps=300, run__eval_at_end=True)
    outcome = reverie.train(config, quiet=True, agent=lambda *facts: made.append(Repeater(*facts)) or made[-1])
    assert made[0].windows and made[0].windows[0].shape == (config.replay.batch, config.replay.length + 1)
    assert outcome.evaluation["episodes"] == config.run.eval_episodes
    assert "train/reward" in (tmp_path / "run" / "metrics.jsonl").read_text()
    assert reverie.resume(tmp_path / "run", agent=Repeater).idle


def test_configure_makes_what_the_command_line_makes(caplog):
    assert reverie.configure(seed=1) == resolve(["--seed", "1"])[0]
    short = reverie.configure("atari_ppo", env_id="Atari-Breakout", learning_rate=1e-3, num_envs=4)
    assert (
        short == resolve(["--configs", "atari_ppo", "--env_id", "Atari-Breakout", "--lr", "1e-3", "--num_envs", "4"])[0]
    )
    assert not caplog.text
    reverie.configure("cartpole_ppo", replay__batch=4)
    assert "--replay.batch does nothing here" in caplog.text


def test_generators_act_with_an_agent_of_ones_own(tmp_path, monkeypatch):
    """They find its class by import, as they do environments."""
    lines = ["from reverie.agents.dreamer import Dreamer", "class Timid(Dreamer):", "    def _explored(self, vector):"]
    (tmp_path / "timid.py").write_text("\n".join([*lines, "        return self.code.decode(vector) * 0"]))
    monkeypatch.syspath_prepend(str(tmp_path))
    kind = __import__("timid").Timid
    own = {"collect__mode": "process", "collect__generators": 2, "replay__prefill": 0, "store__write": "folder"}
    reverie.train(config_of(tmp_path / "run", run__steps=200, **own), quiet=True, agent=kind)
    store = FolderStore(tmp_path / "run" / "episodes")
    assert store.names() and not any(store.read(name)["action"].any() for name in store.names())
