"""Options that do nothing beside the others of a Dreamer are pointed out, and only those."""

import logging
import re

import pytest

from reverie.commands.learning import resolve
from reverie.config import store
from reverie.config.arguments import SweepArguments
from reverie.config.options import options
from reverie.config.presets import PRESETS, stacked
from reverie.config.uses import USES, unused
from reverie.tools import plan

V1, V3, CARRIED = "--configs dreamer_v1", "--configs dreamer_v3", "--configs dreamer_v3 --replay.start carried"
RETURNS = "--behavior.return_norm"
CASES = [
    # what is set, with what it does nothing, with what it does something
    ("world.classes 8", V1, V3),
    ("world.unimix 0.02", f"{V3} --world.latent gaussian", "--configs dreamer_v2"),
    ("world.std sigmoid", V3, V1),
    ("world.min_std 0.2", "--configs dreamer_v2", f"{V3} --world.latent gaussian"),
    ("world.gate_bias True", V3, "--configs dreamer_v3_2023"),
    ("world.gate_bias True", V1, "--configs dreamer_v3_2023"),
    ("world.blocks 4", "--configs dreamer_v2", V3),
    ("world.blocks 4", "--configs cartpole --world.representation barlow", "--configs cartpole"),
    ("world.decoder_keys image", f"{V3} --world.representation infonce", V3),
    ("world.decoder_keys image", f"{V3} --world.representation barlow",
     f"{V3} --world.representation barlow --world.previous_scale 1"),
    *((f"world.cont_{each}", f"{V3} --world.cont_head False", V3) for each in
      ("layers 2", "discounted False", "scale 2")),
    ("world.bins 63", V1, f"{V1} --behavior.critic_head symlog_twohot"),
    ("world.bins 63", "--configs dreamer_v2", f"{V1} --world.reward_head symexp_twohot"),
    ("world.free_mean True", "--configs dreamer_v2", V3),
    ("world.barlow_offdiagonal 1e-3", f"{V3} --world.representation infonce", f"{V3} --world.representation barlow"),
    ("world.overshoot_scale 0.5", V3, f"{V3} --world.overshoot 2"),
    ("behavior.max_std 0.9", V1, V3),
    ("behavior.max_std 0.9", f"{V3} --behavior.continuous normal", "--configs dreamer_v2"),
    ("behavior.init_std 0.9", V3, V1),
    ("behavior.init_std 0.9", "--configs dreamer_v2", f"{V3} --behavior.continuous normal"),
    ("behavior.mix 0.2", V3, f"{V3} --behavior.gradient mixed"),
    ("behavior.mix_end 0", "--configs dreamer_v2", f"{V1} --behavior.gradient mixed"),
    ("behavior.dynamics_baseline True", V3, V1),
    ("behavior.regularizer divergence", V1, f"{V1} --behavior.entropy_end 1e-3"),
    ("behavior.regularizer divergence", f"{V3} --behavior.entropy 0", V3),
    ("behavior.slow average", V1, f"{V1} --behavior.slow_scale 1"),
    ("behavior.slow copy", V1, f"{V1} --behavior.slow_target True"),
    ("behavior.slow_target True", V1, V3),
    ("behavior.slow_scale 0.5", f"{V3} --behavior.slow none", V3),
    ("behavior.slow_every 50", V3, "--configs dreamer_v2"),
    ("behavior.slow_every 50", "--configs dreamer_v2 --behavior.slow_target False", "--configs dreamer_v2"),
    ("behavior.slow_every 50", f"{V1} --behavior.slow_scale 1", f"{V1} --behavior.slow_scale 1 --behavior.slow copy"),
    ("behavior.slow_rate 0.1", "--configs dreamer_v2", V3),
    ("behavior.slow_rate 0.1", f"{V3} --behavior.slow_scale 0", f"{V3} --behavior.slow_scale 2"),
    *((f"behavior.return_{each}", f"{V3} {RETURNS} False", f"--configs dreamer_v2 {RETURNS} True") for each in
      ("low 10", "high 90", "rate 0.1")),
    *((f"replay.{each} 0.5", CARRIED, V3) for each in ("uniform", "online", "recent", "prioritised")),
    ("replay.alpha 0.5", V3, f"{V3} --replay.prioritised 1"),
    ("replay.alpha 0.5", f"{CARRIED} --replay.online 0", f"{V3} --replay.prioritised 1"),
    ("replay.recency 100", V3, f"{V3} --replay.recent 1"),
    ("replay.recency 100", f"{CARRIED} --replay.online 0", f"{V3} --replay.recent 1"),
    ("replay.ends 0.5", f"{V3} --replay.online 0 --replay.recent 1", V3),
    ("replay.ends 0.5", f"{V3} --replay.online 0 --replay.prioritised 1", CARRIED),
    ("replay.warmup 100", V1, V3),
    ("replay.warmup 3000", f"{V1} --replay.prefill 4000", V1),
    ("explore.until 100", V3, f"{V3} plan2explore"),
    ("optim.actor.lr 1e-4", V3, V1),
    ("optim.critic.clip 10", V3, f"{V3} --optim.joint False"),
]  # fmt: skip


def told(line, caplog):
    """What is said about options that do nothing, by option."""
    caplog.clear()
    with caplog.at_level(logging.WARNING, "reverie"):
        resolve(line.split())
    return {message.split()[0]: message for message in caplog.messages}


@pytest.mark.parametrize(("option", "idle", "used"), CASES)
def test_what_is_set_in_vain_is_pointed_out(option, idle, used, caplog):
    name = option.split()[0]
    assert f"--{name}" not in told(f"{used} --{option}", caplog)
    line = told(f"{idle} --{option}", caplog)[f"--{name}"]
    assert line.startswith(f"--{name} does nothing here: ") and "\n" not in line and "(--" in line


def test_every_line_of_the_table_has_both_cases():
    for use in USES:
        for each in use.options:
            cases = [case for case in CASES if case[0].split()[0] == each or (each[-1] == "." and each in case[0])]
            idle = [resolve(f"{case[1]} --{case[0]}".split())[0] for case in cases]
            used = [resolve(f"{case[2]} --{case[0]}".split())[0] for case in cases]
            assert any(unused(case[0].split()[0], config) == use.otherwise for case, config in zip(cases, idle)), use
            assert any(use.used(config) for config in used), use


def test_a_slow_critic_under_clipped_updates_is_asked_for_returns_alone(caplog):
    line = "--configs {} --agent.policy imagined_ppo --behavior.slow average"
    assert "--behavior.slow" in told(line.format("dreamer_v3"), caplog)
    assert not told(line.format("dreamer_v2"), caplog)


def test_names_in_the_table_are_those_of_options():
    for use in USES:
        for each in use.options:
            assert each in options() or (each.endswith(".") and any(name.startswith(each) for name in options())), each


@pytest.mark.parametrize("preset", [*PRESETS, "cartpole debug", "dreamer_v1 plan2explore", "dreamer_v2 debug"])
def test_presets_have_nothing_to_say(preset, caplog):
    base = "dreamer_v3 " if "task" not in PRESETS[preset.split()[0]].values and preset != "explore" else ""
    line = f"--configs {base}{preset}" if preset != "explore" else "--configs cartpole_ppo explore"
    assert not told(line, caplog)


def test_what_a_warning_advises_helps(caplog):
    """With each of the options that a line names in brackets, what it says is no longer true."""
    for option, idle, _ in CASES:
        name = f"--{option.split()[0]}"
        line = told(f"{idle} --{option}", caplog)[name]
        advised = re.findall(r"--([\w.]+) ([\w.-]+)", line.partition(" (")[2])
        assert advised or name == "--replay.warmup", line
        for other, value in advised:
            words = value if other == "configs" else f"--{other} {value}"
            assert told(f"{idle} {words} --{option}", caplog).get(name) != line


def test_options_of_a_file_are_pointed_out_with_its_name_and_once(caplog, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("configs: below.yaml\nbehavior: {mix: 0.2}\nppo.lr: 1e-4\nrun.steps: 10\n")
    (tmp_path / "below.yaml").write_text("configs: [dreamer_v3]\nworld.std: sigmoid\n")
    assert list(told("--configs mine.yaml", caplog)) == ["world.std", "behavior.mix"]
    expected = (
        "behavior.mix in mine.yaml does nothing here: gradients are not mixed (--behavior.gradient mixed mixes them)"
    )
    assert expected in caplog.messages
    assert list(told("--configs mine.yaml --behavior.mix 0.3", caplog)) == ["--behavior.mix", "world.std"]
    assert list(told("--configs mine.yaml --behavior.gradient mixed", caplog)) == ["world.std"]
    assert not told("--configs mine.yaml --agent.name random", caplog)


def test_the_configuration_of_another_run_is_nobodys_choice(caplog, tmp_path):
    store.save(stacked(["dreamer_v1"]), tmp_path)
    file = tmp_path / store.NAME
    assert not told(f"--configs {file}", caplog)
    older = [line for line in file.read_text().splitlines() if "dynamics_baseline" not in line]
    file.write_text("\n".join(older))
    assert not told(f"--configs {file}", caplog)


def test_a_sweep_over_what_an_option_needs_is_not_warned_of_it(caplog, tmp_path):
    def idle(*grid):
        caplog.clear()
        config = stacked(["dreamer_v3"])
        plan.new(SweepArguments(grid=grid), config)
        return [message.split()[0] for message in caplog.messages]

    assert idle("behavior.mix=0.1,0.2") == ["--behavior.mix"]
    assert idle("behavior.mix=0.1,0.2", "behavior.gradient=reinforce,mixed") == []
    assert idle("replay.alpha=0.3,0.6", "replay.prioritised=0,1") == []
