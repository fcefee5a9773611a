"""Evaluations of another process on their way to W&B."""

from reverie.config.schema import LogConfig
from reverie.log.sinks import relay
from reverie.log.sinks.jsonl import GuestSink, JsonlSink


class Record:
    """A sink that keeps what it gets."""

    def __init__(self, *_):
        self.got, self.closed = [], False

    def write(self, step, scalars, videos):
        self.got.append((step, scalars.get("eval/mean_return")))

    def close(self):
        self.closed = True


def test_every_evaluation_is_sent_once_by_the_run_or_after_it(tmp_path, monkeypatch):
    path, late = tmp_path / "metrics.jsonl", Record()
    monkeypatch.setattr(relay, "WandbSink", lambda *_: late)
    own, guest = JsonlSink(path), GuestSink(path)
    guest.write(1, {"eval/mean_return": 1.0}, {})  # of an earlier life of the run
    sink = Record()
    relayed = relay.RelaySink(sink, tmp_path)
    for step in (10, 20):
        own.write(step, {"train/loss": 0.5}, {})
        guest.write(step, {"eval/mean_return": float(step)}, {})
        relayed.write(step + 1, {"train/loss": 0.5}, {})
    guest.write(30, {"eval/mean_return": 30.0, "eval/success_rate": float("nan")}, {})
    with path.open("a") as file:
        file.write('{"step": 40, "eval/mean_return"')  # half a line of one who is writing
    relayed.close()
    own.close()
    assert sink.got == [(10, 10.0), (11, None), (20, 20.0), (21, None), (30, 30.0)] and sink.closed
    with path.open("a") as file:
        file.write(": 40.0}\n")
    for _ in range(2):
        relay.pass_on_rest(tmp_path, LogConfig())
    assert late.got == [(40, 40.0)] and late.closed


def test_a_run_that_never_was_on_wandb_has_nothing_to_send(tmp_path):
    JsonlSink(tmp_path / "metrics.jsonl").close()
    relay.pass_on_rest(tmp_path, LogConfig(wandb_mode="offline"))
    assert not (tmp_path / "wandb").exists()
