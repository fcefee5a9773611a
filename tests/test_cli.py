"""The command as a person uses it: what works, and what is told when something is wrong."""

import json
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

import reverie


def test_eval_json(call, trained):
    status, out, _ = call("eval", "--logdir", str(trained), "--episodes", "3", "--json")
    figures = json.loads(out)
    assert status == 0
    assert set(figures) == {
        "mean_return", "median_return", "min_return", "max_return", "success_rate", "mean_length", "episodes",
    }  # fmt: skip
    assert figures["episodes"] == 3
    assert figures["min_return"] <= figures["median_return"] <= figures["max_return"]
    assert figures["success_rate"] is None
    again = json.loads(call("eval", "--logdir", str(trained), "--episodes", "3", "--json")[1])
    assert again == figures
    other = json.loads(call("eval", "--logdir", str(trained), "--episodes", "3", "--json", "--stochastic")[1])
    assert other != figures


def test_play_saves_gifs(call, trained, tmp_path):
    words = [
        "play",
        "--logdir",
        str(trained),
        "--episodes",
        "2",
        "--save-gif",
        "--gif-fps",
        "25",
        "--gif-dir",
        str(tmp_path),
    ]
    status, out, _ = call(*words)
    assert status == 0
    assert "episode 2: return" in out
    gifs = sorted(tmp_path.glob("*.gif"))
    assert len(gifs) == 2
    with Image.open(gifs[0]) as gif:
        assert gif.n_frames > 5
        assert gif.info["duration"] == 40
        first = np.asarray(gif.convert("RGB")).copy()
        gif.seek(gif.n_frames - 1)
        assert (np.asarray(gif.convert("RGB")) != first).any()


def test_play_can_write_its_thoughts_into_the_pictures(call, trained, tmp_path, monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    shown = []
    for name, extra in (("plain", []), ("noted", ["--overlay"])):
        words = ["play", "--logdir", str(trained), "--episodes", "1", "--save-gif", "--gif-dir", str(tmp_path / name)]
        assert call(*words, *extra)[0] == 0
        (path,) = (tmp_path / name).glob("*.gif")
        with Image.open(path) as gif:
            gif.seek(3)
            shown.append(np.asarray(gif.convert("RGB")).astype(int))
    changed = np.abs(shown[0] - shown[1]).max(-1) > 60  # palettes differ a little too
    assert changed[:20, :200].mean() > 0.05 > 0.001 > changed[30:].mean()


def test_play_without_a_screen_says_how_to_see_it(call, trained, monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    status, out, _ = call("play", "--logdir", str(trained), "--episodes", "1", "--checkpoint", "latest.pt")
    assert status == 0
    assert "--save-gif" in out


def test_help_is_readable(call):
    status, out, _ = call("train", "--help")
    assert status == 0
    known = ("cartpole_ppo", "PPO on CartPole", "crafter", "--ppo.lr X", "Learning rate of Adam.", "Short names")
    for words in (*known, "Seed of everything random. [0]"):
        assert words in out
    assert max(map(len, out.splitlines())) <= 130
    for command in ("eval", "play", "dream", "export", "plot", "sweep", "envs", "bench"):
        assert f"reverie {command}" in call(command, "--help")[1]
    assert "reverie train" in call()[1]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("trian", "unknown command 'trian': did you mean train?"),
        ("train --configs cartpol_ppo", "did you mean cartpole_ppo"),
        ("train --config cartpole", "unknown option --config: did you mean --configs?"),
        ("train cartpole_ppo", "unexpected 'cartpole_ppo': did you mean --configs cartpole_ppo?"),
        ("train --task cartpole", "--configs cartpole is a preset of that name"),
        ("eval {run}", "did you mean --logdir"),
        ("eval best", "unexpected 'best': options are written --name value"),
        ("train --configs cartpole explore", "preset 'explore' does nothing for the agent dreamer"),
        ("train --task atari_pongg", "did you mean atari_pong"),
        ("train --task gym_CartPole-v9", "CartPole-v1"),
        ("train --task nothing", "tasks are SUITE_NAME"),
        ("train --task no_module:Env", "no_module"),
        ("train --imports no_such_package --task gym_X-v0", "cannot import 'no_such_package'"),
        ("train --ppo.lerning 1", "unknown option --ppo.lerning"),
        ("train --ppo.lr high", "--ppo.lr takes a number"),
        ("train --envs.count 0", "--envs.count is 0: it must be at least 1"),
        ("train --ppo.gamma 1.5", "--ppo.gamma is 1.5: it must be between 0 and 1"),
        ("train --seed -1", "--seed is -1: it must be at least 0"),
        ("eval --logdir {run} --episodes 0", "--episodes is 0: it must be at least 1"),
        ("train --task gym_Pendulum-v1 --envs.backend native", "no vector environment of its own"),
        ("train --resume --logdir {tmp}/none", "no run folder"),
        ("train --resume --logdir {tmp}", "holds no run"),
        ("train --logdir {tmp}/file", "holds other files"),
        ("train --device cuda", "torch sees no GPU"),
        ("eval", "--logdir is missing"),
        ("eval --logdir {tmp}/none", "no run folder"),
        ("eval --logdir {run} --checkpoint other.pt", "there is best.pt, latest.pt"),
        ("play --logdir {run} --checkpoint {tmp}/file", "damaged or no checkpoint"),
        ("play --logdir {run} --checkpoint /etc/passwd", "damaged or no checkpoint"),
        ("play --logdir {run} --episods 2", "did you mean --episodes"),
        ("dream --logdir {run}", "this run's agent has no world model"),
        ("dream --logdir {run} --web", "this run's agent has no world model"),
        ("dream --logdir {run} --web --port 70000", "--port is 70000: it must be between 0 and 65535"),
        ("dream --logdir {run} --length 1", "--length is 1: it must be at least 2"),
        ("dream --logdir {run} --context 0", "--context is 0: it must be at least 1"),
        ("dream --logdir {run} --checkpoint other.pt", "there is best.pt, latest.pt"),
        ("export --logdir {run}", "--out is missing"),
        ("export --logdir {run} --out {tmp}/policy.pth", "name a file .onnx or .pt2"),
        ("export --logdir {run} --out {tmp}/none/policy.onnx", "there is no folder"),
        ("export --logdir {run} --out {tmp}/policy.onnx --checkpoint other.pt", "there is best.pt, latest.pt"),
        (
            "export --logdir {run} --out /proc/x.pt2",
            "cannot write /proc/x.pt2: No such file or directory: make room or",
        ),
        ("play --logdir {run} --episodes 1 --save-gif --gif-dir /proc/x", "make room or choose another --gif-dir"),
        ("envs --check toy_katch", "did you mean toy_catch"),
        ("envs --check toy_catch --env.sise 8", "did you mean --env.size"),
        ("envs --check toy_catch --envs.count 0", "--envs.count is 0: it must be at least 1"),
    ],
)
def test_bad_input_is_one_line_and_status_2(call, tmp_path, trained, line, words):
    (tmp_path / "file").write_text("not a run")
    status, out, err = call(*line.format(tmp=tmp_path, run=trained).split())
    assert status == 2
    assert words in err
    assert len(err.strip().splitlines()) == 1
    assert "Traceback" not in out + err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_an_agent_in_three_lines_of_another_program(trained):
    import gymnasium

    agent = reverie.load(trained)
    env = gymnasium.make("CartPole-v1")
    observation, _ = env.reset(seed=0)
    for _ in range(10):
        action = agent.act(observation)
        assert action in (0, 1)
        observation, _, ended, _, _ = env.step(action)
        if ended:
            break
    with pytest.raises(reverie.UserError, match="shape"):
        agent.act(observation[:2])


def test_help_and_errors_do_not_wait_for_torch():
    code = "import sys; from reverie.cli import run; run(['train', '--help']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_programs_that_only_start_runs_do_not_wait_for_torch():
    modules = "reverie.commands.learning, reverie.tools.launch, reverie.tools.sweep, reverie.tools.sweep_report"
    code = f"import sys; import {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_runs_that_compile_nothing_do_not_wait_for_the_compiler_of_torch(tmp_path):
    train = f"reverie.train(reverie.configure('cartpole_ppo', 'debug', logdir={str(tmp_path / 'run')!r}), quiet=True)"
    code = f"import sys; import reverie; {train}; sys.exit('torch._dynamo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_a_checkpoint_of_another_run_is_told_in_one_line(call, trained, tmp_path):
    other = tmp_path / "other"
    reverie.train(reverie.configure("debug", task="gym_Pendulum-v1", logdir=str(other)), quiet=True)
    words = ["eval", "--logdir", str(trained), "--checkpoint", str(other / "checkpoints" / "latest.pt")]
    status, _, err = call(*words)
    assert status == 2
    assert "does not fit this run: Missing key" in err or "does not fit this run: size mismatch" in err
    assert len(err.strip().splitlines()) == 1
