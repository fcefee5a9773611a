"""Which of a Dreamer's options do something only with certain others: what is set in vain is pointed out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .schema import Config


@dataclass(frozen=True)
class Use:
    """Options that are used on a condition; a name that ends in a dot is a whole group of them."""

    options: tuple[str, ...]
    used: Callable[[Config], bool]
    otherwise: str
    """Why they are not, and what to set so that they are."""


def decodes(config: Config) -> bool:
    """Whether there is a decoder, of this observation or of the one before."""
    return config.world.representation == "reconstruction" or config.world.previous_scale > 0


def asks_slow(config: Config) -> bool:
    """Whether anything would ask a slow critic."""
    behavior = config.behavior
    return behavior.slow_target or (behavior.slow_scale > 0 and config.agent.policy == "imagined")


USES = (
    Use(
        ("world.classes", "world.unimix"),
        lambda config: config.world.latent == "categorical",
        "latents are Gaussian (--world.latent categorical makes them choices among classes)",
    ),
    Use(
        ("world.std", "world.min_std"),
        lambda config: config.world.latent == "gaussian",
        "latents are categorical and have no deviation (--world.latent gaussian has)",
    ),
    Use(
        ("world.gate_bias",),
        lambda config: config.world.cell == "norm",
        "gates have no layer norm (--world.cell norm has)",
    ),
    Use(
        ("world.blocks",),
        lambda config: config.world.cell == "block" or (config.world.cnn == "pool" and decodes(config)),
        "no layer is in blocks (--world.cell block is)",
    ),
    Use(
        ("world.decoder_keys",),
        decodes,
        "there is no decoder (--world.representation reconstruction has one)",
    ),
    Use(
        ("world.cont_layers", "world.cont_discounted", "world.cont_scale"),
        lambda config: config.world.cont_head,
        "ends of episodes are not learned (--world.cont_head True learns them)",
    ),
    Use(
        ("world.bins",),
        lambda config: (config.world.reward_head, config.behavior.critic_head) != ("normal", "normal"),
        "no head is two-hot (--world.reward_head symexp_twohot or --behavior.critic_head symexp_twohot is)",
    ),
    Use(
        ("world.free_mean",),
        lambda config: config.world.free_nats > 0,
        "no nats are free (--world.free_nats 1 leaves one)",
    ),
    Use(
        ("world.barlow_offdiagonal",),
        lambda config: config.world.representation == "barlow",
        "nothing is made free of redundancy (--world.representation barlow does it)",
    ),
    Use(
        ("world.overshoot_scale",),
        lambda config: config.world.overshoot > 0,
        "heads learn nothing ahead (--world.overshoot 2 lets them)",
    ),
    Use(
        ("behavior.max_std",),
        lambda config: config.behavior.continuous in ("bounded_normal", "truncated_normal"),
        "the actions' distribution has no greatest deviation (--behavior.continuous bounded_normal has)",
    ),
    Use(
        ("behavior.init_std",),
        lambda config: config.behavior.continuous in ("tanh_normal", "normal"),
        "the actions' distribution begins between its bounds (--behavior.continuous normal begins where it is told)",
    ),
    Use(
        ("behavior.mix", "behavior.mix_end"),
        lambda config: config.behavior.gradient == "mixed",
        "gradients are not mixed (--behavior.gradient mixed mixes them)",
    ),
    Use(
        ("behavior.dynamics_baseline",),
        lambda config: config.behavior.gradient != "reinforce",
        "no gradient goes through the dynamics (--behavior.gradient dynamics lets it)",
    ),
    Use(
        ("behavior.regularizer",),
        lambda config: bool(config.behavior.entropy or config.behavior.entropy_end),
        "its weight is 0 (--behavior.entropy 3e-4 gives it one)",
    ),
    Use(
        ("behavior.slow", "behavior.slow_every", "behavior.slow_rate"),
        lambda config: config.behavior.slow == "none" or asks_slow(config),
        "nothing asks the slow critic (--behavior.slow_target True, or in imagination --behavior.slow_scale 1)",
    ),
    Use(
        ("behavior.slow_target", "behavior.slow_scale"),
        lambda config: config.behavior.slow != "none",
        "there is no slow critic (--behavior.slow average makes one)",
    ),
    Use(
        ("behavior.slow_every",),
        lambda config: config.behavior.slow == "copy",
        "the slow critic is not copied (--behavior.slow copy copies it)",
    ),
    Use(
        ("behavior.slow_rate",),
        lambda config: config.behavior.slow == "average",
        "the slow critic is no running average (--behavior.slow average makes it one)",
    ),
    Use(
        ("behavior.return_low", "behavior.return_high", "behavior.return_rate"),
        lambda config: config.behavior.return_norm,
        "advantages are not divided by a range (--behavior.return_norm True divides them)",
    ),
    Use(
        ("replay.uniform", "replay.online", "replay.recent", "replay.prioritised", "replay.alpha", "replay.recency"),
        lambda config: config.replay.start != "carried",
        "windows follow one another (--replay.start stored or zeros draws them)",
    ),
    Use(
        ("replay.alpha",),
        lambda config: config.replay.prioritised > 0,
        "no window is drawn by priority (--replay.prioritised 0.5 draws some)",
    ),
    Use(
        ("replay.recency",),
        lambda config: config.replay.recent > 0,
        "no window is drawn by age (--replay.recent 0.5 draws some)",
    ),
    Use(
        ("replay.ends",),
        # where there is no new window, and where none goes on, one is drawn evenly
        lambda config: config.replay.uniform + config.replay.online > 0 or config.replay.start == "carried",
        "no window is drawn evenly (--replay.uniform 0.5 draws some)",
    ),
    Use(
        ("replay.warmup",),
        lambda config: config.replay.warmup >= config.replay.prefill,
        "random actions take longer than that (--replay.prefill)",
    ),
    Use(
        ("explore.",),
        lambda config: config.explore.intrinsic > 0,
        "there is no explorer (--configs plan2explore adds one)",
    ),
    Use(
        ("optim.actor.", "optim.critic."),
        lambda config: not config.optim.joint,
        "one optimiser does it all (--optim.joint False makes three)",
    ),
)
"""In order: of an option that several of these name, the first that does not hold is told."""


def unused(name: str, config: Config) -> str:
    """Why an option does nothing in a Dreamer's run, and what it would need; empty if it does something."""
    for use in USES:
        named = any(name == each or (each.endswith(".") and name.startswith(each)) for each in use.options)
        if named and not use.used(config):
            return use.otherwise
    return ""
