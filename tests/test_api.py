"""The Python interface with an agent of one's own."""

import pytest
from torch import nn

import reverie
from reverie.agents.dreamer import Dreamer
from reverie.agents.lesson import stepper_of
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
