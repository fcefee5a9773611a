import json
import math
from pathlib import Path

import pytest

from reverie.config.errors import UserError
from reverie.log.sinks.jsonl import JsonlSink


def lines(path):
    return [json.loads(text) for text in path.read_text().splitlines()]


def filled(path, steps):
    sink = JsonlSink(path)
    for step in steps:
        sink.write(step, {"loss": float(step)}, {})
    sink.close()


def test_a_line_begins_with_the_counts(tmp_path):
    path = tmp_path / "run" / "metrics.jsonl"
    sink = JsonlSink(path)
    sink.write(8, {"loss": 0.5, "time": 1.25, "updates": 2.0, "frames": 32.0}, {})
    assert path.read_text() == '{"step": 8, "frames": 32, "updates": 2, "time": 1.25, "loss": 0.5}\n'  # before close
    sink.close()


def test_what_json_cannot_say_is_null(tmp_path):
    sink = JsonlSink(tmp_path / "metrics.jsonl")
    sink.write(1, {"a": math.nan, "b": math.inf, "c": -math.inf, "frames": math.nan}, {})
    sink.close()
    assert lines(tmp_path / "metrics.jsonl") == [{"step": 1, "frames": None, "a": None, "b": None, "c": None}]


def test_a_resumed_run_cuts_what_lies_after_its_checkpoint(tmp_path):
    path = tmp_path / "metrics.jsonl"
    filled(path, [10, 20, 30, 40])
    sink = JsonlSink(path, resume_step=20)
    sink.write(25, {}, {})
    sink.close()
    assert [line["step"] for line in lines(path)] == [10, 20, 25]
    assert [each.name for each in tmp_path.iterdir()] == ["metrics.jsonl"]


@pytest.mark.parametrize("rest", ['{"step": 20, "lo', '{"step": 20, "loss": 1', "{", '{"step": 15}'])
def test_an_unfinished_last_line_does_no_harm(tmp_path, rest):
    path = tmp_path / "metrics.jsonl"
    filled(path, [10])
    with path.open("a") as file:
        file.write(rest)
    sink = JsonlSink(path, resume_step=30)
    sink.write(40, {}, {})
    sink.close()
    steps = [line["step"] for line in lines(path)]
    assert steps == ([10, 15, 40] if rest.endswith("}") else [10, 40])


def test_an_unreadable_line_in_the_middle_is_dropped_with_a_warning(tmp_path, caplog):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\nnonsense\n[1]\n{"step": 2}\n')
    JsonlSink(path, resume_step=9).close()
    assert [line["step"] for line in lines(path)] == [1, 2]
    assert "line 2" in caplog.text and "line 3" in caplog.text


def test_a_resumed_run_without_a_log_starts_one(tmp_path):
    sink = JsonlSink(tmp_path / "metrics.jsonl", resume_step=5)
    sink.write(6, {}, {})
    sink.close()
    assert lines(tmp_path / "metrics.jsonl") == [{"step": 6}]


def test_a_full_disk_is_told_in_one_line():
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full here")
    sink = JsonlSink(full)
    with pytest.raises(UserError, match="cannot write /dev/full: No space left on device") as error:
        sink.write(1, {"loss": 1.0}, {})
    assert "\n" not in str(error.value)
    sink.close()
