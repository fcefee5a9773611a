"""Which OpenGL library MuJoCo draws with where there is no display.

MuJoCo's Python bindings, dm_control and Gymnasium choose it by the environment variable MUJOCO_GL and by nothing else.
Without the variable they take GLFW, which loads without a display but cannot draw (dm_control decides while it is
imported, Gymnasium at its first picture). So the variable is touched, and pygame's beside it: only on Linux, only
without a display, only if the user has not set it, and only for as long as the choice is being made.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

VARIABLE = "MUJOCO_GL"

SDL_VARIABLE = "SDL_VIDEODRIVER"
"""What pygame, which draws the classic control tasks, looks for a display by; it complains aloud when it finds none."""

ADVICE = "install libegl1 (or libosmesa6, with MUJOCO_GL=osmesa)"
"""What helps where nothing can draw."""


def undecided() -> bool:
    """Whether the choice is open: no display, and no wish of the user's."""
    display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return sys.platform == "linux" and not display and not os.environ.get(VARIABLE)


@contextmanager
def offscreen(backend: str = "egl") -> Iterator[None]:
    """While it is open MuJoCo chooses `backend` and SDL no screen, unless there is a display or the user has chosen."""
    if not undecided():
        yield
        return
    wanted = {VARIABLE: backend, SDL_VARIABLE: os.environ.get(SDL_VARIABLE, "dummy")}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
