"""Processes that belong together: labelled, told of each other's end, and interrupted together."""

import signal
import subprocess
import sys
import threading
import time

from reverie.tools import launch
from reverie.tools.launch import Member, Team
from waiting import until

SAVES = """
import signal, sys, time
def stop(number, frame):
    print("saved at", signal.Signals(number).name, flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGINT, stop)
print("ready", flush=True)
time.sleep(60)
"""


def led(learner, evaluator, at_work=None, interrupt=None):
    """What the team said, and its status; `interrupt` are lines after which someone presses Ctrl-C.

    Unless told otherwise the learner is at work, and the evaluator begins, once the learner has said something.
    """
    lines = []
    at_work = at_work or (lambda: bool(lines))

    def say(name, line):
        lines.append(f"[{name}] {line}")
        if interrupt is not None and sorted(lines) == interrupt:
            threading.Thread(target=lambda: (time.sleep(0.2), signal.raise_signal(signal.SIGINT))).start()

    commands = [[sys.executable, "-c", each] if each else [] for each in (learner, evaluator)]
    return lines, Team(say).lead(*commands, at_work)


FIRST = """
import os, sys, time
with open(sys.argv[1], "w") as file:
    file.write(str(os.getpid()))
print(1, flush=True)
while os.path.getsize(sys.argv[1]):
    time.sleep(0.01)
"""

SECOND = """
import os, sys, time
with open(sys.argv[1], "r+") as file:
    learner = int(file.read())
    file.truncate(0)  # which the learner waits for
print(2, flush=True)
try:
    while True:
        os.kill(learner, 0)  # raises once its end has been seen
        time.sleep(0.01)
except ProcessLookupError:
    print(3)
"""


def test_both_end_by_themselves(tmp_path):
    words = f"import sys; sys.argv[1:] = [{str(tmp_path / 'learner')!r}]"
    lines, status = led(words + FIRST, words + SECOND)
    assert status == 0 and sorted(lines) == ["[evaluator] 2", "[evaluator] 3", "[learner] 1"]


def test_what_a_learner_repeats_of_its_generators_has_their_label():
    lines, _ = led("print('[generator 12] a  ', '[generator 0] ', '[generator x] b', sep=chr(10))", "")
    assert lines == ["[generator 12] a", "[generator 0] ", "[learner] [generator x] b"]


def test_an_evaluator_that_fails_lets_the_learner_save():
    lines, status = led(SAVES, "raise SystemExit(3)")
    assert status == 3 and "[learner] saved at SIGTERM" in lines
    assert "[launch] the evaluator ended with status 3: the others are told to end" in lines


def test_a_learner_that_is_killed_ends_the_evaluator():
    begin = time.monotonic()
    lines, status = led(
        "import os, time; time.sleep(0.5); os.kill(os.getpid(), 9)",
        "import time; time.sleep(600)",
        at_work=lambda: True,
    )
    assert status == 137 and time.monotonic() - begin < 60
    assert lines == ["[launch] the learner was killed by signal 9: the others are told to end"]


def test_without_a_learner_that_gets_ready_there_is_no_evaluator():
    lines, status = led("raise SystemExit(2)", "print('here')", at_work=lambda: False)
    assert status == 2 and lines == ["[launch] the learner ended with status 2: the others are told to end"]


def test_an_interruption_reaches_all():
    lines, status = led(SAVES, SAVES, interrupt=["[evaluator] ready", "[learner] ready"])
    assert status == 0 and sorted(lines[2:]) == ["[evaluator] saved at SIGINT", "[learner] saved at SIGINT"]


def test_an_interruption_reaches_one_that_is_just_being_started(monkeypatch):
    class Interrupted(Member):
        def __init__(self, *words):
            super().__init__(*words)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(launch, "Member", Interrupted)
    begin = time.monotonic()
    assert led("import time; time.sleep(600)", "")[1] != 0 and time.monotonic() - begin < 60


def test_an_evaluator_that_has_seen_the_goal_lets_the_learner_end():
    lines, status = led(SAVES, "pass")
    assert status == 0 and "[learner] saved at SIGTERM" in lines


def test_an_evaluator_may_end_before_a_learner_that_is_done():
    works = iter([False, True, False])
    lines, status = led("import time; time.sleep(1); print('done')", "pass", at_work=lambda: next(works, False))
    assert status == 0 and lines == ["[learner] done"]


def test_a_launcher_that_is_killed_lets_the_learner_save(tmp_path):
    marked = SAVES.replace("print(", f"print(file=open({str(tmp_path / 'said')!r}, 'a'), flush=True) or print(")
    code = "import sys; from reverie.tools.launch import Team; Team(lambda *words: print(*words, flush=True))"
    code += f".lead([sys.executable, '-c', {marked!r}], [], lambda: True)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout.readline() == "learner ready\n"
        launcher.kill()
    assert until(lambda: len((tmp_path / "said").read_text()) >= 2)
    assert len((tmp_path / "said").read_text()) == 2  # one mark for each of the two lines


def test_a_learner_may_take_as_long_to_save_as_it_needs(monkeypatch):
    monkeypatch.setattr(launch, "PATIENCE", 0.2)
    slow = SAVES.replace("def stop(number, frame):", "def stop(number, frame):\n    time.sleep(1.5)")
    lines, status = led(slow, "raise SystemExit(3)")
    assert status == 3 and "[learner] saved at SIGTERM" in lines
