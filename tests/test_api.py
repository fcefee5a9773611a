"""The Python interface with an agent of one's own."""

import json
import re
import subprocess
import sys

import pytest
import torch
from torch import nn

import reverie
from reverie.agents.base import Agent, Learned
from reverie.agents.dreamer import Dreamer
from reverie.agents.lesson import stepper_of
from reverie.agents.ppo import PPO
from reverie.agents.random import RandomAgent
from reverie.cli import run
from reverie.commands.learning import resolve
from reverie.data.episodes import FolderStore
from reverie.envs.corridor import Corridor
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
    assert "is of an agent Calm, with whose weights a Dreamer acts here" in caplog.text


def test_a_run_of_a_built_in_agent_goes_on_without_one_of_ones_own(tmp_path):
    reverie.train(config_of(tmp_path / "run", run__steps=200), quiet=True)
    with pytest.raises(reverie.UserError, match=r"is a run of an agent Dreamer: go on by reverie.resume\('[^,]*'\)$"):
        reverie.resume(tmp_path / "run", agent=Own)


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


class Steady(PPO):
    """PPO that takes no schedule."""

    def schedule(self, progress):
        pass


@pytest.mark.parametrize("kind", [Steady, RandomAgent])
def test_agents_without_a_world_model_can_be_built_upon_too(tmp_path, kind):
    config = reverie.configure("cartpole_ppo", "debug", logdir=str(tmp_path / "run"), run__eval_every=0)
    outcome = reverie.train(config, quiet=True, agent=kind)
    assert outcome.step >= config.run.steps
    assert type(reverie.load(tmp_path / "run", "latest", agent=kind).agent) is kind


class Listening:
    """A sink that keeps what it is given."""

    def __init__(self):
        self.writes, self.closed = [], 0

    def write(self, step, scalars, videos):
        self.writes.append((step, scalars))

    def close(self):
        self.closed += 1


def test_sinks_of_ones_own_hear_what_the_log_says(tmp_path):
    sink = Listening()
    config = reverie.configure("cartpole_ppo", "debug", logdir=str(tmp_path / "run"))
    reverie.train(config, quiet=True, sinks=[sink])
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [step for step, _ in sink.writes] == [line["step"] for line in lines] and sink.closed
    assert sink.writes[-1][1]["eval/mean_return"] == lines[-1]["eval/mean_return"]
    later = Listening()
    assert reverie.resume(tmp_path / "run", quiet=True, sinks=[later]).idle and later.closed


class Watching(Listening):
    """A sink that looks how products of float32 are taken meanwhile."""

    def write(self, step, scalars, videos):
        self.writes.append(torch.get_float32_matmul_precision())


def test_training_leaves_torch_as_it_was(tmp_path, monkeypatch):
    torch.set_float32_matmul_precision("highest")
    sink = Watching()
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    before, word = torch_now(), torch.get_float32_matmul_precision()
    config = reverie.configure("cartpole_ppo", "debug", logdir=str(tmp_path / "run"), run__threads=before[0] + 1)
    reverie.train(config, quiet=True, sinks=[sink])
    assert set(sink.writes) == {"high"} and word == "highest"
    assert torch_now() == before and torch.get_float32_matmul_precision() == word
    assert not torch.backends.cudnn.benchmark


def torch_now():
    products = torch.backends.cuda.matmul, torch.backends.mkldnn.matmul
    return torch.get_num_threads(), *(product.fp32_precision for product in products)


PRECISE = """
import torch
import reverie

products = torch.backends.cuda.matmul, torch.backends.mkldnn.matmul
products[0].fp32_precision = "tf32"
reverie.train(reverie.configure("cartpole_ppo", "debug", logdir="run"), quiet=True)
print([product.fp32_precision for product in products])
"""


def test_a_program_may_have_said_in_any_way_how_exact_products_are(tmp_path):
    done = subprocess.run([sys.executable, "-c", PRECISE], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "['tf32', 'none']"


def test_evaluate_plays_what_the_command_plays(tmp_path, capsys):
    folder = str(tmp_path / "run")
    reverie.train(reverie.configure("cartpole_ppo", "debug", logdir=folder), quiet=True)
    figures = reverie.evaluate(folder, 3)
    assert figures["episodes"] == 3 and figures["success_rate"] is None
    assert run(["eval", "--logdir", folder, "--episodes", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == figures
    with pytest.raises(reverie.UserError, match="--episodes is 0: it must be at least 1"):
        reverie.evaluate(folder, 0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_run_of_another_device_is_evaluated_on_this_one(tmp_path):
    reverie.train(reverie.configure("cartpole_ppo", "debug", logdir=str(tmp_path / "run")), quiet=True)
    text = (tmp_path / "run" / "config.yaml").read_text()
    (tmp_path / "run" / "config.yaml").write_text(re.sub("device: .*", "device: cuda", text))
    assert reverie.evaluate(tmp_path / "run", 1)["episodes"] == 1
    with pytest.raises(reverie.UserError, match="no GPU here"):
        reverie.evaluate(tmp_path / "run", 1, device="cuda")


def test_a_task_may_be_the_class_itself():
    assert reverie.configure(task=Corridor).task == "reverie.envs.corridor:Corridor"
    with pytest.raises(reverie.UserError, match="top of a module"):
        reverie.configure(task=lambda: None)


PROGRAM = """
import reverie
from reverie.envs.corridor import Corridor


class Mine(Corridor):
    pass


if __name__ == "__main__":
    config = reverie.configure("debug", task=Mine, logdir="run", envs__backend="process", ppo__features=8)
    print(config.task, reverie.train(config, quiet=True).step)
"""


def test_a_class_of_the_program_itself_is_found_by_workers_and_later(tmp_path):
    (tmp_path / "mine.py").write_text(PROGRAM)
    done = subprocess.run([sys.executable, "mine.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"mine:Mine \d+\n", done.stdout)
    later = [sys.executable, "-m", "reverie", "eval", "--logdir", "run", "--episodes", "1", "--json"]
    assert json.loads(subprocess.run(later, cwd=tmp_path, capture_output=True, check=True).stdout)["episodes"] == 1


def test_a_program_that_would_train_whenever_it_is_imported_is_told(tmp_path):
    (tmp_path / "mine.py").write_text(
        PROGRAM.replace('__name__ == "__main__"', "True").replace('"process"', '"serial"')
    )
    subprocess.run([sys.executable, "mine.py"], cwd=tmp_path, capture_output=True, check=True)
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    later = [sys.executable, "-m", "reverie", "eval", "--logdir", "run", "--episodes", "1"]
    done = subprocess.run(later, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2 and "mine trains whenever it is imported" in done.stderr
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before


def test_a_class_of_a_program_without_a_file_serves_that_program_alone(tmp_path):
    program = PROGRAM.replace('"process"', '"serial"')
    done = subprocess.run([sys.executable, "-"], input=program, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "Mine is defined in no file" in done.stderr
    later = [sys.executable, "-m", "reverie", "eval", "--logdir", "run", "--episodes", "1"]
    done = subprocess.run(later, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2 and "'__main__:Mine' was defined in a program without a file" in done.stderr


def test_public_names_are_listed():
    assert set(reverie.__all__) < set(dir(reverie))
    assert all(getattr(reverie, name) for name in dir(reverie))


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
