"""Pages of TensorBoard (Custom Scalars) that show at a glance whether an agent is well, one for each family."""

from __future__ import annotations

from ...agents.base import Family

Charts = dict[str, tuple[str, ...]]
"""Title of a chart -> regular expressions of the metrics in it."""

RETURNS: Charts = {"return": ("episode/return", "eval/mean_return")}
CLIPPED: Charts = {
    "actor loss": ("train/policy_loss",),
    "critic loss": ("train/value_loss",),
    "entropy of the policy": ("train/entropy",),
    "KL from the old policy to the new": ("train/approx_kl",),
    "clip fraction": ("train/clip_fraction",),
    "explained variance": ("train/explained_variance",),
}
BY_SCORE: Charts = {
    "actor loss": ("train/actor_loss",),
    "critic loss": ("train/critic_loss", "train/replay_critic_loss"),
    "entropy of the policy": ("train/entropy",),
    "range of returns": ("train/return_range",),
}
WORLD: Charts = {
    "reconstruction": (r"world/(?!dyn_|rep_|reward_|cont_)\w+_loss",),
    "reward and end": ("world/reward_loss", "world/cont_loss"),
    "KL of the world model": ("world/kl", "world/new_kl"),
    "entropy of posterior and prior": ("world/posterior_entropy", "world/prior_entropy"),
    "value of real and of imagined states": ("train/real_value", "train/imagined_value"),
    "gradient norms": (r"train/\w+_grad_norm",),
}
GUARDS: Charts = {"guards": ("train/ratio_clamped", "train/output_clamped", "train/grad_clipped", "train/ppo_skipped")}

PAGES: dict[Family, tuple[str, Charts]] = {
    "ppo": ("PPO", RETURNS | CLIPPED | {"gradient norms": ("train/grad_norm",)}),
    "dreamer": ("Dreamer", RETURNS | BY_SCORE | WORLD),
    "on_policy_ppo": ("PPO on the world model", RETURNS | CLIPPED | WORLD | GUARDS),
    "imagined_ppo": ("PPO in imagination", RETURNS | CLIPPED | WORLD | GUARDS),
}


def layout(family: Family) -> dict[str, dict[str, list[str | list[str]]]]:
    """The page of a family as `SummaryWriter.add_custom_scalars` takes it; empty where none is known."""
    if family not in PAGES:
        return {}
    title, charts = PAGES[family]
    # TensorBoard looks at beginnings of names alone
    return {title: {name: ["Multiline", [f"{metric}$" for metric in metrics]] for name, metrics in charts.items()}}
