/* Policies, several choices among classes or numbers of a normal distribution each, and what PPO makes of them. */

#define HALF_LOG_TAU 0.9189385332f /* what a deviation of 1 takes off a logarithm of density */

/* Logits of a choice to log-probabilities, in their place. */
static void log_softmax(float *logits, long size) {
    float most = logits[0], total = 0;
    for (long i = 1; i < size; i++) most = logits[i] > most ? logits[i] : most;
    for (long i = 0; i < size; i++) total += expf(logits[i] - most);
    const float level = most + logf(total);
    for (long i = 0; i < size; i++) logits[i] -= level;
}

/* Which class a number between 0 and 1 stands for. */
static long drawn(const float *logs, long size, float noise) {
    float total = 0, below = 0;
    long chosen = 0;
    for (long i = 0; i < size; i++) total += expf(logs[i]);
    for (long i = 0; i < size - 1; i++) chosen += (below += expf(logs[i])) < noise * total;
    return chosen;
}

/* a: outputs, b: noise, c: actions, d: logarithms of deviations, e: the log-probability of all actions together. */
static void choose(const Op *op, float *row) {
    float *outputs = row + op->a, *actions = row + op->c, logp = 0;
    for (long g = 0; g < op->groups; g++) {
        const float noise = row[op->b + g];
        if (op->sizes) {
            log_softmax(outputs, op->sizes[g]);
            const long chosen = drawn(outputs, op->sizes[g], noise);
            actions[g] = chosen, logp += outputs[chosen], outputs += op->sizes[g];
        } else {
            actions[g] = outputs[g] + expf(row[op->d + g]) * noise;
            logp -= 0.5f * noise * noise + row[op->d + g] + HALF_LOG_TAU;
        }
    }
    row[op->e] = logp;
}

/* The facts that a step of PPO goes by: settings, and what is known of all its rows. */
typedef struct {
    float clip, value_clip, value_scale, bonus;
    float mean, scale, share; /* of advantages; of a row in means */
} Facts;

/* What a row was collected with, behind its actions. */
typedef struct {
    float logp, value, advantage, target, weight;
} Past;

/* The log-probability of all actions of a row together, and the entropy; logits become log-probabilities. */
static void judge(const Op *op, float *row, float *logp, float *entropy) {
    const float *actions = row + op->c, *spreads = row + op->d;
    float *outputs = row + op->a;
    *logp = *entropy = 0;
    for (long g = 0; g < op->groups; g++) {
        if (op->sizes) {
            log_softmax(outputs, op->sizes[g]);
            *logp += outputs[(long)actions[g]];
            for (long i = 0; i < op->sizes[g]; i++) *entropy -= expf(outputs[i]) * outputs[i];
            outputs += op->sizes[g];
        } else {
            const float away = (actions[g] - outputs[g]) * expf(-spreads[g]);
            *logp -= 0.5f * away * away + spreads[g] + HALF_LOG_TAU;
            *entropy += spreads[g] + HALF_LOG_TAU + 0.5f;
        }
    }
}

/* The gradients of outputs and deviations, `shift` columns behind them, from those of log-probability and entropy. */
static void judge_back(const Op *op, float *row, float by_logp, float by_entropy) {
    const float *actions = row + op->c, *spreads = row + op->d, *outputs = row + op->a;
    float *by = row + op->f + op->a, *by_spread = row + op->f + op->d;
    for (long g = 0; g < op->groups; g++) {
        if (op->sizes) {
            const long size = op->sizes[g];
            float entropy = 0;
            for (long i = 0; i < size; i++) entropy -= expf(outputs[i]) * outputs[i];
            for (long i = 0; i < size; i++)
                by[i] = -expf(outputs[i]) * (by_logp + by_entropy * (outputs[i] + entropy));
            by[(long)actions[g]] += by_logp;
            outputs += size, by += size;
        } else {
            const float narrow = expf(-spreads[g]), away = (actions[g] - outputs[g]) * narrow;
            by[g] = by_logp * away * narrow;
            by_spread[g] = by_logp * (away * away - 1) + by_entropy;
        }
    }
}

/* a: outputs, b: the value, c: actions and what a row was collected with, d: logarithms of deviations, e: where losses
   and what is told of them go; gradients lie `f` columns behind outputs, value and deviations. */
static void surrogate(const Op *op, float *row) {
    const Facts *facts = (const Facts *)op->weight;
    const Past *past = (const Past *)(row + op->c + op->groups);
    const float share = past->weight * facts->share, advantage = (past->advantage - facts->mean) * facts->scale;
    const float value = row[op->b], error = value - past->target, moved = value - past->value;
    float *told = row + op->e, logp, entropy, wrong = error * error, steep = 2 * error;
    judge(op, row, &logp, &entropy);
    const float log_ratio = logp - past->logp, ratio = expf(log_ratio), low = 1 - facts->clip, high = 1 + facts->clip;
    const float near = (ratio < low ? low : ratio > high ? high : ratio) * advantage, free = ratio * advantage;
    if (facts->value_clip > 0) {
        const float limit = facts->value_clip, kept = moved < -limit ? -limit : moved > limit ? limit : moved;
        const float other = past->value + kept - past->target, worse = other * other;
        if (fabsf(moved) > limit && worse > wrong) steep = 0;
        wrong = worse <= wrong ? wrong : worse;
    }
    judge_back(op, row, free <= near ? -free * share : 0, -facts->bonus * share);
    row[op->f + op->b] = facts->value_scale * steep * share;
    told[0] = -(free > near ? near : free) * share; /* no number if `free` is none */
    told[1] = wrong * share;
    told[2] = entropy * share;
    told[3] = (expm1f(log_ratio) - log_ratio) * share;
    told[4] = (fabsf(ratio - 1) > facts->clip ? 1 : 0) * share;
}
