/* Choices among classes: probabilities, draws, expectations, losses. */

/* How many classes there are, known to the compiler where they are few: loops over them are then written out. */
#define WITH_CLASSES(function, op, row)            \
    switch ((op)->k) {                             \
        case 2: function(op, row, 2); break;       \
        case 4: function(op, row, 4); break;       \
        case 8: function(op, row, 8); break;       \
        default: function(op, row, (op)->k); break; \
    }

/* a: logits, b: log-probabilities, c: probabilities; `low` is the share of an even distribution. */
INLINE void probable(const Op *op, float *row, const long k) {
    const float even = op->low / k, *x = row + op->a;
    float *p = row + op->c, *logp = row + op->b;
    for (long g = 0; g < op->groups * k; g += k) {
        float most = x[g];
        for (long i = 1; i < k; i++) most = x[g + i] > most ? x[g + i] : most;
        for (long i = 0; i < k; i++) p[g + i] = x[g + i] - most;
    }
    for (long i = 0; i < op->groups * k; i++) p[i] = power(p[i]);
    for (long g = 0; g < op->groups * k; g += k) {
        float total = 0;
        for (long i = 0; i < k; i++) total += p[g + i];
        const float share = (1 - op->low) / total;
        for (long i = 0; i < k; i++) p[g + i] = share * p[g + i] + even;
    }
    for (long i = 0; i < op->groups * k; i++) logp[i] = logarithm(p[i]);
}

static void classes(const Op *op, float *row) { WITH_CLASSES(probable, op, row) }

/* a: probabilities, b: gradients of a draw (straight-through), c: of log-probabilities, d: of logits. */
static void classes_back(const Op *op, float *row) {
    float even = op->low / op->k;
    for (long g = 0; g < op->groups; g++) {
        const float *p = row + op->a + g * op->k, *by_draw = row + op->b + g * op->k;
        const float *by_log = row + op->c + g * op->k;
        float *by_logit = row + op->d + g * op->k, total = 0;
        for (long i = 0; i < op->k; i++) {
            float share = even > 0 ? 1 - even / p[i] : 1;
            by_logit[i] = (by_draw[i] * p[i] + by_log[i]) * share;
        }
        SUM(total) for (long i = 0; i < op->k; i++) total += by_logit[i];
        for (long i = 0; i < op->k; i++) by_logit[i] -= (p[i] - even) / (1 - op->low) * total;
    }
}

/* a: probabilities, b: a uniform number for each choice, c: one-hot draws. */
INLINE void chosen(const Op *op, float *row, const long k) {
    for (long g = 0; g < op->groups; g++) {
        const float *p = row + op->a + g * k;
        float *y = row + op->c + g * k, total = 0, passed = 0;
        for (long i = 0; i < k; i++) total += p[i];
        const float reached = row[op->b + g] * total;
        int found = 0;
        for (long i = 0; i < k; i++) {
            passed += p[i];
            found += passed < reached;
        }
        for (int i = 0; i < k; i++) y[i] = i == found;
    }
}

static void draw(const Op *op, float *row) { WITH_CLASSES(chosen, op, row) }

/* a: logits of bins, b: their mean, c: room; mirrored bins are subtracted first, as they cancel exactly */
static void expect(const Op *op, float *row) {
    const float *x = row + op->a, *edges = op->weight;
    const long last = op->k - 1;
    float *p = row + op->c, most = x[0], total = 0, mean = 0;
    MAX(most) for (long i = 1; i <= last; i++) most = x[i] > most ? x[i] : most;
    APART for (long i = 0; i <= last; i++) p[i] = power(x[i] - most);
    SUM(total) for (long i = 0; i <= last; i++) total += p[i];
    SUM(mean) for (long i = 0; i < op->k / 2; i++) mean += (p[last - i] - p[i]) / total * edges[last - i];
    row[op->b] = mean;
}

/* a: logits, b: some classes, c: their shares, d: the cross-entropy, or its gradient if `back`. */
INLINE void entropy(const Op *op, float *row, const int back) {
    const float *x = row + op->a, *class = row + op->b, *share = row + op->c;
    float *y = row + op->d, most = x[0], total = 0, weight = 0, loss = 0;
    MAX(most) for (long i = 1; i < op->k; i++) most = x[i] > most ? x[i] : most;
    APART for (long i = 0; i < op->k; i++) y[i] = power(x[i] - most);
    SUM(total) for (long i = 0; i < op->k; i++) total += y[i];
    for (long i = 0; i < op->n; i++) {
        weight += share[i];
        loss -= share[i] * (x[(long)class[i]] - most);
    }
    if (!back) {
        y[0] = loss + weight * logarithm(total);
        return;
    }
    for (long i = 0; i < op->k; i++) y[i] *= weight / total;
    for (long i = 0; i < op->n; i++) y[(long)class[i]] -= share[i];
}
