import io
import logging
import os
import pty
import select
import signal
import subprocess
import sys
import time

import pytest
from rich.console import Console

from reverie.log.sinks.live import LiveSink, WarningsAbove
from reverie.log.sinks.phrases import duration, metric, number, size
from reverie.log.sinks.terminal import PlainSink, TerminalSink

SCALARS = {
    "time": 3.0,
    "time/sps": 5432.0,
    "time/fps": 21_600.0,
    "time/ups": 96.0,
    "time/eta": 12.0,
    "episode/return": 113.2,
    "episode/recent_mean": 100.4,
    "episode/recent_best": 200.0,
    "eval/mean_return": 200.0,
    "train/entropy": 0.61,
}


def test_a_plain_line_says_it_all():
    file = io.StringIO()
    PlainSink(50_000, file).write(12_288, SCALARS, {})
    assert file.getvalue() == (
        "step 12,288/50,000 24% | return 113.2 | eval 200.0 | 5.4k sps | 21.6k fps | 96 ups | eta 0:00:12\n"
    )


def test_plain_lines_keep_the_last_evaluation_and_end_with_advice():
    file = io.StringIO()
    sink = PlainSink(0, file)
    sink.write(1, {"eval/mean_return": 7.0}, {})
    sink.advise(2, ["lower the learning rate", "explore more"])
    sink.write(2, {}, {})
    sink.write(3, {"eval/mean_return": 8.0}, {})
    assert file.getvalue().splitlines() == [
        "step 1 | eval 7.0",
        "step 2 | eval 7.0 | ! lower the learning rate | ! explore more",
        "step 3 | eval 8.0",
    ]


def test_training_goes_on_when_nobody_reads():
    reading, writing = os.pipe()
    file = os.fdopen(writing, "w")
    sink = PlainSink(0, file)
    sink.write(1, {}, {})
    os.close(reading)
    sink.write(2, {}, {})
    sink.write(3, {}, {})
    with pytest.raises(BrokenPipeError):
        file.close()


def test_without_a_terminal_lines_are_plain(capsys):
    sink = TerminalSink("task", 100)
    sink.write(50, {}, {})
    sink.close()
    assert capsys.readouterr().out == "step 50/100 50%\n"


def test_what_is_known_beforehand_comes_first(capsys):
    sink = TerminalSink("task", 100, opening=["10 weights", "replay: 5 steps"])
    sink.write(50, {}, {})
    sink.close()
    assert capsys.readouterr().out == "10 weights\nreplay: 5 steps\nstep 50/100 50%\n"


def test_what_is_known_beforehand_stands_above_the_live_panel():
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    sink = LiveSink("task", 100, console)
    sink.announce(["[10] weights"])
    sink.close()
    shown = console.file.getvalue()
    assert 0 < shown.index("[10] weights") < shown.rindex("step 0/100")


@pytest.mark.parametrize(("count", "words"), [(999, "999 bytes"), (1_500, "1.5 kB"), (16_431_000_000, "16.4 GB")])
def test_sizes(count, words):
    assert size(count) == words


@pytest.mark.parametrize(
    ("value", "words"), [(96.0, "96"), (5432, "5.4k"), (1.25e6, "1.2M"), (3.14, "3.1"), (0, "0"), (float("nan"), "?")]
)
def test_numbers(value, words):
    assert number(value) == words


@pytest.mark.parametrize(
    ("value", "words"), [(12, "0:00:12"), (3661, "1:01:01"), (2 * 86400 + 3 * 3600 + 5, "2d 3:00:05")]
)
def test_durations(value, words):
    assert duration(value) == words


@pytest.mark.parametrize(
    ("value", "words"), [(0.0123, "0.012"), (0.00001, "1.0e-05"), (123.4, "123.4"), (float("nan"), "NaN")]
)
def test_metrics(value, words):
    assert metric(value) == words


def panel(width=80, **changes):
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    sink = LiveSink("toy_catch", 50_000, console)
    try:
        sink.advise(12_288, ["lower the learning rate"])
        sink.write(12_288, SCALARS | changes, {})
    finally:
        sink.close()
    return console.file.getvalue().rpartition("╭")[2]


def test_the_panel_shows_what_matters():
    text = panel()
    for words in (
        "toy_catch",
        "24%",
        "step 12,288/50,000",
        "5.4k SPS",
        "21.6k FPS",
        "96 UPS",
        "0:00:12 left",
        "100.4 mean return (best 200.0)",
        "200.0 last evaluation",
        "entropy 0.610",
        "! lower the learning rate",
    ):
        assert words in text


def test_the_panel_shows_how_a_dreamer_learns():
    shown = {"train/actor_loss": 0.5, "train/critic_loss": 2.5, "train/imagined_return": 7.25, "world/kl": 1.5}
    for words in ("actor 0.500", "critic 2.500", "imagined return 7.250", "world kl 1.500"):
        assert words in panel(width=110, **shown)


def test_the_panel_fits_a_narrow_terminal():
    assert max(map(len, panel(width=40).splitlines()[1:])) <= 40


def test_warnings_are_printed_above_and_handlers_come_back():
    master, slave = pty.openpty()
    logger = logging.getLogger("reverie")
    console = Console(file=io.StringIO(), width=80)
    with os.fdopen(slave, "w") as terminal:
        across, elsewhere = logging.StreamHandler(terminal), logging.StreamHandler(io.StringIO())
        logger.addHandler(across)
        logger.addHandler(elsewhere)
        above = WarningsAbove(console)
        above.start()
        try:
            logger.warning("environment %d broke [red]", 3)
            assert "warning: environment 3 broke [red]" in console.file.getvalue()
            assert "environment 3" in elsewhere.stream.getvalue()
            assert not select.select([master], [], [], 0)[0]
        finally:
            above.stop()
        assert across in logger.handlers and above not in logger.handlers
        for handler in (across, elsewhere):
            logger.removeHandler(handler)
    os.close(master)


PROGRAM = """
import logging, os, signal, sys, time
from reverie.log.sinks.terminal import TerminalSink
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets its background jobs ignore it
sink = TerminalSink("toy_catch", 1000)
sink.write(500, {"time/sps": 10.0}, {})
logging.getLogger("reverie").warning("something odd")
print("from elsewhere")
sys.stdin.readline()
{end}
"""


def run_in_terminal(end, interrupt=False):
    """Output and exit status of a program that shows the live display in a terminal of its own.

    It ends, or is interrupted, after the display has been drawn with its figures.
    """
    master, slave = pty.openpty()
    environment = dict(os.environ, TERM="xterm-256color", COLUMNS="80", LINES="24")
    command = [sys.executable, "-c", PROGRAM.replace("{end}", end)]
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment)
    os.close(slave)
    output, limit, seen = b"", time.monotonic() + 60, False
    while time.monotonic() < limit:
        if select.select([master], [], [], 0.1)[0]:
            try:
                data = os.read(master, 65536)
            except OSError:  # the other side is closed
                break
            output += data
        if not seen and b"50%" in output:
            os.write(master, b"\n")
            seen = True
        if interrupt and b"ready" in output:
            process.send_signal(signal.SIGINT)
            interrupt = False
        if process.poll() is not None and not select.select([master], [], [], 0.1)[0]:
            break
    status = process.wait(timeout=10)
    os.close(master)
    return output.decode(), status


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("sink.close()", 0),
        ("raise RuntimeError('boom')", 1),
        ("print('ready'); time.sleep(30)", -2),
        ("os._exit(3)", 3),
    ],
    ids=["closed", "exception", "interrupt", "killed"],
)
def test_a_terminal_is_left_sane(end, status):
    output, found = run_in_terminal(end, interrupt="ready" in end)
    assert found in (status, 128 - status if status < 0 else status)
    assert "something odd" in output and "from elsewhere" in output and "50%" in output
    assert output.rindex("\x1b[?25h") > output.rindex("\x1b[?25l")  # the cursor is shown again
