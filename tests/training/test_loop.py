import json

import reverie
from reverie.build import make_parts, make_run
from reverie.config import store
from reverie.log.logger import Logger


class Clock:
    """A clock that stands still unless it is told."""

    now = 0.0

    def __call__(self):
        return self.now


def test_the_time_of_evaluations_does_not_count_in_speeds(tmp_path):
    config = reverie.configure("debug", task="toy_count", logdir=str(tmp_path), run__eval_every=64, run__steps=256)
    store.save(config, tmp_path)
    parts = make_parts(config)
    run = make_run(config, tmp_path, parts, resume=False, quiet=True)
    clock, writes = Clock(), []

    class Keep:
        def write(self, step, scalars, videos):
            writes.append((step, scalars))

        def close(self):
            pass

    run.logger.close()
    run.logger = Logger([Keep()], clock=clock)
    collect, evaluate = run.collector.collect, run.evaluator.evaluate

    def slow_collect(steps):
        chunk = collect(steps)
        clock.now += chunk.steps / 100
        return chunk

    def slow_evaluate(*arguments):
        clock.now += 1000
        return evaluate(*arguments)

    run.collector.collect, run.evaluator.evaluate = slow_collect, slow_evaluate
    try:
        run.train()
    finally:
        parts.close()
    assert len(writes) >= 2 and any("eval/mean_return" in scalars for _, scalars in writes)
    for step, scalars in writes:
        assert round(scalars["time/sps"], 6) == 100.0, (step, json.dumps(scalars))
        assert scalars["time/eta"] <= 2.6
    assert writes[-1][1]["time"] > 1000


def test_a_run_ends_when_an_evaluation_reaches_the_goal(tmp_path):
    steps = {}
    for goal in (-1e9, 1e9):
        options = {"task": "toy_count", "run__eval_every": 64, "run__steps": 256, "run__goal": goal}
        config = reverie.configure("debug", logdir=str(tmp_path / str(goal)), **options)
        reverie.train(config, quiet=True)
        lines = [json.loads(line) for line in (tmp_path / str(goal) / "metrics.jsonl").read_text().splitlines()]
        steps[goal] = lines[-1]["step"]
        assert "eval/mean_return" in lines[-1]
    assert steps[-1e9] < 200 and steps[1e9] >= 256
