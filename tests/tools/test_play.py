import os
import subprocess
import sys

import numpy as np
import pytest

import reverie
from required import package
from reverie import reopened
from reverie.config.store import load
from reverie.tools.play import Played, Show, Window, note, open_screen, play


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    reverie.train(reverie.configure("debug", task="toy_catch", logdir=str(folder), ppo__features=16), quiet=True)
    return folder


class Counting:
    """A screen that is closed after some frames."""

    def __init__(self, most):
        self.most, self.frames, self.closed = most, [], False

    def show(self, frame):
        self.frames.append(frame)
        return len(self.frames) < self.most

    def close(self):
        self.closed = True


def played(trained, show, episodes=2):
    config = load(trained)
    with reopened.make_task_env(config) as env, show:
        player = reopened.make_player(config, trained / "checkpoints/latest.pt", env)
        return list(play(player, env, episodes, 0, False, show))


def test_every_observation_of_an_episode_is_shown_the_last_one_too(trained):
    screen = Counting(1000)
    episodes = played(trained, Show(screen, keep=True))
    assert [episode.number for episode in episodes] == [1, 2]
    assert [len(episode.frames) for episode in episodes] == [episode.length + 1 for episode in episodes]
    assert len(screen.frames) == sum(len(episode.frames) for episode in episodes)
    assert screen.closed and all(episode.success is not None for episode in episodes)


def test_success_is_told_beside_other_figures_of_an_episode(tmp_path):
    folder = tmp_path / "run"
    reverie.train(reverie.configure("debug", task="toy_corridor", logdir=str(folder)), quiet=True)
    assert [episode.success for episode in played(folder, Show(), episodes=1)] in ([0.0], [1.0])


def test_closing_the_window_ends_it(trained):
    screen = Counting(3)
    assert played(trained, Show(screen)) == []
    assert len(screen.frames) == 3


def test_an_overlay_enlarges_small_pictures_and_leaves_out_unknown_values():
    episode = Played(1)
    Show(keep=True, overlay=True).take(np.zeros((64, 64, 3), np.uint8), episode, "return 1.0")
    assert episode.frames[0].shape == (256, 256, 3) and episode.frames[0].max() > 200
    assert note(1.5, -2.0, 3.25) == "return 1.5  reward -2.0  value 3.2"
    assert note(1.5, 0.0, float("nan")) == "return 1.5  reward 0.0"


def test_a_window_scales_what_it_shows_and_says_when_it_is_closed(monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    pygame = package("pygame")
    window = Window(pygame, 1000)
    frame = np.zeros((16, 32, 3), np.uint8)
    frame[:, :16, 0] = 250
    try:
        assert window.show(frame)
        assert window.surface.get_size() == (960, 480)
        assert window.surface.get_at((10, 470))[:3] == (250, 0, 0) and window.surface.get_at((950, 10))[:3] == (0, 0, 0)
        pygame.event.post(pygame.event.Event(pygame.QUIT))
        assert not window.show(frame)
    finally:
        window.close()


def test_a_display_that_does_not_answer_is_no_screen():
    code = "from reverie.tools.play import open_screen; assert open_screen(20) is None"
    places = {**os.environ, "DISPLAY": ":4242"}
    places.pop("WAYLAND_DISPLAY", None)
    done = subprocess.run([sys.executable, "-c", code], env=places, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_no_display_is_no_screen(monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert open_screen(20) is None
