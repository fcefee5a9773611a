"""The options of Dreamer agents: world model, behaviour, optimisers, replay. The defaults are the newest Dreamer's.

Every difference between Dreamer's generations is a number or a choice here; the presets `dreamer_v1`, `dreamer_v2`,
`dreamer_v3_2023` and `dreamer_v3` are sets of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class WorldConfig:
    """The world model: encoder, recurrent state space, decoder, reward and continue heads."""

    deter: int = 2048
    """Width of the deterministic state."""
    hidden: int = 256
    """Width of the layers around the recurrent cell."""
    groups: int = 32
    """Categorical variables of a latent, or the width of a Gaussian one."""
    classes: int = 16
    """Classes of each categorical variable."""
    units: int = 256
    """Width of the layers of vector encoder, vector decoder and heads."""
    depth: int = 16
    """Channels of the image networks are multiples of this."""
    latent: Literal["categorical", "gaussian"] = "categorical"
    """What the stochastic state is drawn from."""
    unimix: float = 0.01
    """Share of the uniform distribution mixed into categorical latents."""
    std: Literal["softplus", "sigmoid"] = "softplus"
    """How Gaussian latents keep their deviation positive: softplus(x), or 2 sigmoid(x / 2)."""
    min_std: float = 0.1
    """Least deviation of Gaussian latents."""
    cell: Literal["block", "norm", "plain"] = "block"
    """The recurrent cell: block-diagonal GRU, GRU with layer norm, or plain GRU."""
    gate_bias: bool = False
    """A bias of the gates before their layer norm (norm)."""
    blocks: int = 8
    """Blocks of the block-diagonal layers."""
    prior_layers: int = 2
    """Hidden layers of the network that predicts the next latent."""
    posterior_layers: int = 1
    """Hidden layers of the network that infers the latent from an observation."""
    initial: Literal["zeros", "learned"] = "zeros"
    """The state before the first row of an episode."""
    norm: Literal["rms", "layer", "none"] = "rms"
    """Normalisation inside the networks."""
    activation: Literal["silu", "elu", "relu"] = "silu"
    """Activation of the networks."""
    init: Literal["fan_in", "fan_avg", "glorot"] = "fan_in"
    """Initial weights: truncated normal by inputs, by inputs and outputs, or Glorot's uniform."""
    cnn: Literal["pool", "stride", "valid"] = "pool"
    """Image networks: 5x5 with pooling and upsampling, 4x4 with stride 2, or 4x4 unpadded (64x64 only)."""
    cnn_activation: Literal["same", "silu", "elu", "relu"] = "same"
    """Activation of the image networks; same takes that of the others."""
    layers: int = 3
    """Hidden layers of vector encoder and decoder."""
    encoder_keys: str = ".*"
    """Regular expression of the observations that are encoded."""
    decoder_keys: str = ".*"
    """Regular expression of the observations that are reconstructed."""
    symlog: bool = True
    """Squash vector observations by symlog, as input and as target."""
    reward_head: Literal["symexp_twohot", "symlog_twohot", "normal"] = "symexp_twohot"
    """How rewards are predicted."""
    reward_layers: int = 1
    """Hidden layers of the reward head."""
    reward_target: Literal["raw", "tanh"] = "raw"
    """What the reward head predicts: the reward or its tanh."""
    cont_head: bool = True
    """Learn when episodes end; without it imagination discounts evenly."""
    cont_layers: int = 1
    """Hidden layers of the continue head."""
    cont_discounted: bool = True
    """The continue head predicts gamma instead of 1 where the episode goes on."""
    bins: int = 255
    """Bins of two-hot heads."""
    recon_scale: float = 1.0
    """Weight of the squared errors of observations."""
    reward_scale: float = 1.0
    """Weight of the reward loss."""
    cont_scale: float = 1.0
    """Weight of the continue loss."""
    dyn_scale: float = 1.0
    """Weight of the KL that draws the prediction to the inferred latent."""
    rep_scale: float = 0.1
    """Weight of the KL that draws the inferred latent to the prediction."""
    free_nats: float = 1.0
    """KL below this is free."""
    free_mean: bool = False
    """Compare the batch's mean KL with the free nats instead of each row's."""
    grad_heads: tuple[Literal["decoder", "reward", "cont"], ...] = ("decoder", "reward", "cont")
    """Heads whose gradients reach the features: decoder (of the previous observation, too), reward, cont."""
    representation: Literal["reconstruction", "barlow", "infonce"] = "reconstruction"
    """What teaches the features: reconstruction, or without a decoder redundancy reduction or contrast."""
    barlow_offdiagonal: float = 5e-4
    """Weight of the correlations that redundancy reduction drives to zero."""
    previous_scale: float = 0.0
    """Weight of reconstructing the previous observation too; 0 leaves it out."""
    overshoot: int = 0
    """Also train the heads on predictions this many steps ahead; 0 leaves it out."""
    overshoot_scale: float = 1.0
    """Weight of the losses on predictions ahead."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Arithmetic of the networks; auto takes bfloat16 on a GPU, and for large products on a CPU that has instructions
    for it. Losses, norms and weights stay float32."""


@dataclass(frozen=True)
class BehaviorConfig:
    """Actor and critic, which learn in imagination."""

    horizon: int = 15
    """Steps imagined from every replayed state."""
    starts: int = 0
    """Rows at the end of each window that imagination starts from; 0 takes all."""
    gamma: float = 1 - 1 / 333
    """Discount of future rewards."""
    lam: float = 0.95
    """Lambda of the returns: 0 trusts the critic, 1 the imagined rewards."""
    units: int = 256
    """Width of the actor's and the critic's layers."""
    actor_layers: int = 3
    """Hidden layers of the actor."""
    critic_layers: int = 3
    """Hidden layers of the critic."""
    actor_scale: float = 0.01
    """Scale of the actor's initial outputs."""
    critic_head: Literal["symexp_twohot", "symlog_twohot", "normal"] = "symexp_twohot"
    """How values are predicted."""
    continuous: Literal["bounded_normal", "tanh_normal", "truncated_normal", "normal"] = "bounded_normal"
    """Distribution of continuous actions."""
    unimix: float = 0.01
    """Share of the uniform distribution mixed into discrete actions."""
    min_std: float | None = None
    """Least deviation of continuous actions; None takes the distribution's usual one."""
    max_std: float | None = None
    """Greatest deviation of bounded and truncated normal actions; None takes the usual one."""
    init_std: float | None = None
    """Initial deviation of tanh-normal and normal actions; None takes the usual one."""
    gradient: Literal["reinforce", "dynamics", "auto", "mixed"] = "reinforce"
    """The actor's gradient; auto takes reinforce for discrete and dynamics for continuous actions."""
    dynamics_baseline: bool = False
    """Through the dynamics, learn from advantages: a state's value, with its gradient, is taken off its return."""
    mix: float = 0.1
    """Weight of the gradient through the dynamics where gradients are mixed."""
    mix_end: float | None = None
    """Where that weight has gone, linearly, by the end of the run; None keeps it."""
    entropy: float = 3e-4
    """Weight of the actor's entropy bonus."""
    entropy_end: float | None = None
    """Where that weight has gone, linearly, by the end of the run; None keeps it."""
    regularizer: Literal["entropy", "divergence"] = "entropy"
    """Reward the policy's entropy, or punish its divergence from an uninformative one."""
    arrival: bool = False
    """Whether a state's value includes the reward that came with it (V1, V2) or begins with the next."""
    train_start: bool = True
    """Whether the critic learns at the replayed states that imagination starts from."""
    true_start: bool = False
    """Take the replayed continue flag for the first imagined state instead of the predicted one."""
    slow: Literal["none", "copy", "average"] = "average"
    """A slow critic: none, a copy made now and then, or a running average."""
    slow_every: int = 100
    """Updates between two copies."""
    slow_rate: float = 0.02
    """Share of the critic that enters the running average in each update."""
    slow_target: bool = False
    """Returns and baseline come from the slow critic."""
    slow_scale: float = 1.0
    """Weight of the loss that keeps the critic near the slow one."""
    return_norm: bool = True
    """Divide advantages by the range of returns."""
    return_low: float = 5.0
    """Lower percentile of that range."""
    return_high: float = 95.0
    """Upper percentile of that range."""
    return_rate: float = 0.01
    """How fast that range follows."""
    replay_scale: float = 0.3
    """Weight of the critic's loss on replayed rows, whose gradient reaches the world model; 0 leaves it out."""
    noise: float = 0.0
    """Deviation of Gaussian noise added to the numbers of actions while collecting."""
    epsilon: float = 0.0
    """Probability that all choices of an action are random while collecting."""


@dataclass(frozen=True)
class ExploreConfig:
    """Exploration by a second behaviour that goes where an ensemble of predictions disagrees (Plan2Explore)."""

    intrinsic: float = 0.0
    """Weight of the ensemble's disagreement in the explorer's reward; 0 has no explorer."""
    extrinsic: float = 0.0
    """Weight of the task's reward in the explorer's; 0 explores for the sake of it."""
    until: int = 0
    """Steps after which the task's behaviour collects instead of the explorer; 0 explores to the end."""
    target: Literal["embed", "stoch", "deter", "feature"] = "embed"
    """What the ensemble predicts: the next observation's embedding, latent, deterministic state, or the last two."""
    members: int = 8
    """Networks of the ensemble."""
    units: int = 0
    """Width of their layers; 0 takes world.units."""
    layers: int = 2
    """Their hidden layers."""
    measure: Literal["variance", "std"] = "variance"
    """How far predictions differ: by their variance or their standard deviation, mean over what is predicted."""
    normalize: bool = True
    """Divide disagreement by its running mean, so that it is paid alike at the beginning and at the end."""
    log: bool = False
    """Pay log(1 + x) of it, so that great surprises count for less."""
    task: bool = True
    """Learn reward and task all the while; False leaves both for explore.fit, and exploring knows no rewards."""
    fit: int = 0
    """Updates, once exploring is over, that fit reward head and task to the world model, which stays as it is."""
    show: bool = False
    """Evaluate the explorer instead of what was learned of the task."""


@dataclass(frozen=True)
class StepConfig:
    """One optimiser."""

    kind: Literal["laprop", "adam"] = "laprop"
    """LaProp normalises gradients before averaging them, Adam after."""
    lr: float = 4e-5
    """Learning rate."""
    eps: float = 1e-20
    """Epsilon of the denominator."""
    clip: float = 0.0
    """Longest gradient of all weights together; 0 leaves it."""
    agc: float = 0.3
    """Longest gradient of each weight tensor as a share of the tensor's own length; 0 leaves it."""
    decay: float = 0.0
    """Share of the weights taken off in each step."""
    warmup: int = 1000
    """Steps over which the learning rate rises."""


@dataclass(frozen=True)
class OptimConfig:
    """How gradients become steps: one optimiser for all, or one each for model, actor and critic."""

    joint: bool = True
    """One optimiser, the model's, for everything."""
    lr_end: float = 1.0
    """What share of the learning rates is left, after falling linearly, at the end of the run."""
    model: StepConfig = field(default_factory=StepConfig)
    actor: StepConfig = field(default_factory=StepConfig)
    critic: StepConfig = field(default_factory=StepConfig)


@dataclass(frozen=True)
class ReplayConfig:
    """What is remembered, and how often it is gone over."""

    capacity: int = 1_000_000
    """Rows remembered, over all environments."""
    storage: Literal["auto", "ram", "pinned", "gpu", "disk"] = "auto"
    """Where rows lie: memory, memory a GPU reads directly, the GPU's own, or files mapped into memory.
    auto takes the GPU's own where a full replay takes at most half of what is free there, and memory otherwise."""
    batch: int = 16
    """Windows in one batch."""
    length: int = 64
    """Rows of a window that are learned from."""
    start: Literal["stored", "zeros", "carried"] = "stored"
    """Where a window begins: at the stored latents of the row before, at zeros, or where the last one ended."""
    ratio: float = 32.0
    """Rows replayed for each row collected."""
    prefill: int = 0
    """Steps of random actions at the beginning."""
    warmup: int = 1024
    """Rows to collect before learning begins."""
    pretrain: int = 0
    """Updates when learning begins."""
    train_every: int = 0
    """Steps between two rounds of updates; 0 updates as soon as the ratio asks for it."""
    uniform: float = 1.0
    """Share of windows drawn evenly from everything."""
    online: float = 0.0
    """Share of windows that are the newest, each handed out once."""
    recent: float = 0.0
    """Share of windows drawn with newer ones likelier."""
    prioritised: float = 0.0
    """Share of windows drawn by how badly the world model predicts latents and rewards."""
    alpha: float = 0.6
    """How sharply priorities are followed; 0 draws evenly."""
    recency: float = 1000.0
    """Age in rows at which the share of recent windows begins to fall."""
    ends: float = 0.0
    """Share of the evenly drawn windows that are moved so that they end with an episode."""
    save: bool = True
    """Keep the replay beside the checkpoints, so that a resumed run has it."""
