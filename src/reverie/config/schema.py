"""Every option there is, as frozen dataclasses: one class per component, one line of help under each option.

Nothing writes to a config. Derived values are properties; facts of an environment are never stored here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from .collect import CollectConfig, StoreConfig
from .dreamer import BehaviorConfig, ExploreConfig, OptimConfig, ReplayConfig, WorldConfig


@dataclass(frozen=True)
class AtariConfig:
    """Atari games of the Arcade Learning Environment."""

    sticky: float = 0.0
    """Probability that the emulator repeats the last action instead of the new one."""
    noops: int = 30
    """At most this many idle frames at the start of an episode."""
    fire_reset: bool = True
    """Press FIRE at the start of games that wait for it."""
    fire_lives: bool = False
    """Press FIRE after a lost life too, in place of the agent's next action."""
    all_actions: bool = False
    """All 18 actions instead of those the game uses."""
    life_loss: Literal["ignore", "terminal"] = "ignore"
    """What a lost life is while training: nothing, or the end of what the agent can earn."""


@dataclass(frozen=True)
class DMCConfig:
    """DeepMind Control Suite."""

    observation: Literal["proprio", "vision", "both"] = "proprio"
    """Joint positions and velocities, a camera image, or both."""
    camera: int = -1
    """Camera number; -1 takes the usual one of the task."""
    fast_render: bool = False
    """Render without shadows, reflections and anti-aliasing: many times faster on a CPU, slightly other images."""


@dataclass(frozen=True)
class CrafterConfig:
    """Crafter, an open world with 22 achievements."""

    area: int = 64
    """Side of the square world, in cells."""


@dataclass(frozen=True)
class MarioConfig:
    """Super Mario Bros."""

    actions: Literal["right", "simple", "complex"] = "simple"
    """Which button combinations there are: 5, 7 or 12 of them."""
    flag_bonus: float = 1000.0
    """Reward for reaching the flag, on top of the distance."""
    death_penalty: float = 15.0
    """What dying costs."""
    noops: int = 0
    """At most this many idle frames at the start of an episode."""


@dataclass(frozen=True)
class MinigridConfig:
    """MiniGrid worlds."""

    view: Literal["symbolic", "rgb", "full_rgb"] = "symbolic"
    """The partial view as object codes, the partial view as an image, or the whole grid as an image."""


@dataclass(frozen=True)
class MinatarConfig:
    """MinAtar games."""

    sticky: float = 0.1
    """Probability that the last action is repeated instead of the new one."""


@dataclass(frozen=True)
class GodotConfig:
    """Games made with Godot."""

    program: str = ""
    """Godot's program; empty takes godot3-server, godot3 or godot from the PATH, by the project's version."""
    camera: bool = False
    """Show what the game's camera sees too; needs a display, such as xvfb-run makes one."""
    timeout: float = 60.0
    """Seconds a game may take to start or to answer before it is restarted."""


@dataclass(frozen=True)
class EnvConfig:
    """What one environment is like. `None` leaves a choice to the suite."""

    repeat: int | None = None
    """How many times each action is repeated (frames per step)."""
    size: int | None = None
    """Side of images in pixels."""
    gray: bool | None = None
    """Images in gray instead of colour."""
    stack: int | None = None
    """How many consecutive images are stacked along the channels."""
    time_limit: int | None = None
    """Longest episode in agent steps; 0 removes the suite's own limit where that is possible."""
    reward_clip: float = 0.0
    """Clip training rewards to plus and minus this; 0 leaves them. Reported returns are never clipped."""
    reward_scale: float = 1.0
    """Multiply training rewards by this. Reported returns are never scaled."""
    atari: AtariConfig = field(default_factory=AtariConfig)
    dmc: DMCConfig = field(default_factory=DMCConfig)
    crafter: CrafterConfig = field(default_factory=CrafterConfig)
    mario: MarioConfig = field(default_factory=MarioConfig)
    minigrid: MinigridConfig = field(default_factory=MinigridConfig)
    minatar: MinatarConfig = field(default_factory=MinatarConfig)
    godot: GodotConfig = field(default_factory=GodotConfig)


@dataclass(frozen=True)
class EnvsConfig:
    """How many environments there are and where they run."""

    count: int = 8
    """How many environments collect in parallel."""
    backend: Literal["auto", "serial", "process", "native"] = "auto"
    """In this process, in worker processes with shared memory, or the suite's own vector environment."""
    workers: int = 0
    """Worker processes of the process backend; 0 takes one per core, at most one per environment."""
    groups: int = 1
    """Groups of environments that take turns: while a GPU acts for one, the games of the others go on."""
    timeout: float = 300.0
    """Seconds after which an environment that does not answer is restarted (process backend)."""
    max_restarts: int = 5
    """Stop when one environment breaks this many times in a row without finishing an episode."""
    checks: bool = True
    """Check observations, actions and rewards of the first steps."""


@dataclass(frozen=True)
class PPOConfig:
    """Proximal Policy Optimisation."""

    rollout: int = 128
    """Steps each environment takes between two rounds of learning."""
    epochs: int = 4
    """Passes over each rollout."""
    minibatch: int = 256
    """Rows in one gradient step."""
    lr: float = 2.5e-4
    """Learning rate of Adam."""
    lr_anneal: bool = False
    """Lower the learning rate linearly to 0 over the run."""
    adam_eps: float = 1e-5
    """Epsilon of Adam."""
    gamma: float = 0.99
    """Discount of future rewards."""
    lam: float = 0.95
    """Lambda of generalised advantage estimation: 0 trusts the critic, 1 the rewards."""
    clip: float = 0.2
    """How far the probability ratio may move before the objective is cut."""
    clip_anneal: bool = False
    """Lower the clip range linearly to 0 over the run."""
    value_clip: float = 0.0
    """Keep new values within this distance of the old ones; 0 does not clip."""
    value_scale: float = 0.5
    """Weight of the value loss."""
    entropy: float = 0.01
    """Weight of the entropy bonus."""
    grad_norm: float = 0.5
    """Longest gradient; longer ones are scaled down. 0 leaves them."""
    target_kl: float = 0.0
    """Stop an update's epochs when the policy has moved this far; 0 never stops."""
    normalize_advantage: bool = True
    """Advantages of each minibatch to mean 0 and deviation 1."""
    normalize_observation: bool = False
    """Vector observations to mean 0 and deviation 1 by running statistics, cut at 10."""
    normalize_reward: bool = False
    """Rewards divided by the running deviation of the discounted return, cut at 10."""
    cnn: Literal["auto", "guide", "nature", "small"] = "auto"
    """Network for images: padded for 64x64, unpadded for 84x84 (Atari), one layer for tiny grids; auto goes by size."""
    features: int = 512
    """Width of the layer behind the CNN."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Arithmetic of the CNN; auto takes bfloat16 on a GPU or a CPU that computes with it, weights stay float32."""
    units: int = 64
    """Width of the hidden layers for vectors."""
    layers: int = 2
    """Hidden layers for vectors."""
    policy_layers: int | None = None
    """Hidden layers of the policy on vectors alone, 0 for a linear one; None takes as many as the critic has."""
    activation: Literal["tanh", "relu", "silu"] = "tanh"
    """Activation of the layers for vectors."""
    log_std: float = 0.0
    """Initial log standard deviation of continuous actions."""


@dataclass(frozen=True)
class AgentConfig:
    """Which agent learns."""

    name: Literal["ppo", "dreamer", "random"] = "ppo"
    """ppo, dreamer, or random for a baseline that does not learn."""
    policy: Literal["imagined", "on_policy_ppo", "imagined_ppo"] = "imagined"
    """How a Dreamer's actor and critic learn: in imagination, by PPO on real trajectories, or by PPO on dreamt ones."""


@dataclass(frozen=True)
class RunConfig:
    """How long to train and when to look."""

    steps: int = 100_000
    """Budget in agent steps, over all environments."""
    eval_every: int = 100_000
    """Steps between evaluations; 0 never evaluates."""
    eval_episodes: int = 10
    """Episodes of one evaluation."""
    eval_envs: int = 10
    """Environments of the evaluation, at most one per episode."""
    eval_stochastic: bool = False
    """Sample actions while evaluating instead of taking the best ones."""
    eval_videos: int = 3
    """Episodes shown side by side in the evaluation's video, and windows in that of a dream; 0 makes none."""
    eval_at_end: bool = True
    """Evaluate once more when the budget is spent."""
    eval_apart: bool = False
    """Leave evaluations to another process (`reverie eval --follow`), as `reverie launch` does; resuming forgets it."""
    save_every: int = 100_000
    """Steps between checkpoints; the end of a run and an interruption always save."""
    stop_at: float | None = None
    """End early when the mean return of the last 100 training episodes reaches this."""
    goal: float | None = None
    """End early when the mean return of an evaluation reaches this."""
    threads: int = 0
    """CPU threads of torch; 0 chooses by the size of the network."""
    fast: Literal["auto", "compile", "shared", "graph", "native", "off"] = "auto"
    """How updates run: compiled (Dreamer; shared: on a GPU others use too), as a GPU graph, by C code on a CPU
    (Dreamer, PPO; native), plainly, or what suits."""
    compilers: int | None = None
    """Processes that compile a Dreamer's updates while those run uncompiled; 0 compiles first, which a run on a GPU
    needs to be repeated as nearly as it can be; None: as many as suit, 0 on a CPU."""


@dataclass(frozen=True)
class LogConfig:
    """What is written down, and where."""

    every: int = 0
    """Steps between two lines of the log; 0 writes after every round of learning, at most about twice a second."""
    display: Literal["auto", "live", "plain"] = "auto"
    """A live panel, plain lines, or what suits the terminal."""
    tensorboard: bool = True
    """Write TensorBoard events into the run folder."""
    mlflow: bool = False
    """Also write to MLflow."""
    mlflow_uri: str = ""
    """Tracking address of MLflow; empty keeps the store in the run folder."""
    mlflow_experiment: str = "reverie"
    """Experiment of the MLflow run."""
    wandb: bool = False
    """Also write to Weights & Biases."""
    wandb_project: str = "reverie"
    """Project of the W&B run."""
    wandb_entity: str = ""
    """User or team that owns the W&B run; empty takes your default one."""
    wandb_mode: Literal["online", "offline"] = "online"
    """Offline keeps the W&B run on this machine until it is synced."""


@dataclass(frozen=True)
class Config:
    """A whole run. Saved beside it, enough to repeat it."""

    task: str = "gym_CartPole-v1"
    """SUITE_NAME, such as atari_pong, or module:Class for an environment of your own."""
    logdir: str = ""
    """Folder of the run; empty takes logdir/TASK-AGENT-TIME."""
    seed: int = 0
    """Seed of everything random."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where networks live; auto takes a GPU if there is one."""
    imports: tuple[str, ...] = ()
    """Modules to import first, which register environments of your own."""
    agent: AgentConfig = field(default_factory=AgentConfig)
    run: RunConfig = field(default_factory=RunConfig)
    env: EnvConfig = field(default_factory=EnvConfig)
    envs: EnvsConfig = field(default_factory=EnvsConfig)
    collect: CollectConfig = field(default_factory=CollectConfig)
    ppo: PPOConfig = field(default_factory=PPOConfig)
    world: WorldConfig = field(default_factory=WorldConfig)
    behavior: BehaviorConfig = field(default_factory=BehaviorConfig)
    explore: ExploreConfig = field(default_factory=ExploreConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    replay: ReplayConfig = field(default_factory=ReplayConfig)
    store: StoreConfig = field(default_factory=StoreConfig)
    log: LogConfig = field(default_factory=LogConfig)
