/* An epoch of PPO: steps down the gradients of one share of the rows after the other. */

#define TOLD 5     /* numbers that a row tells of its losses */
#define MEASURED 7 /* their means, the gradient's length, and whether a step was made */

typedef struct {
    const float *rows; /* of a whole rollout, one behind the other */
    const long *order;
    long count, width, parts;
    float *batch, *told; /* room for the rows of a step, and for what they tell */
    float *sums;         /* room for gradients */
    long room, normalize;
    Facts *facts;
    Descent *step;
    float *taken;                /* how many steps there were */
    float most;                  /* the longest gradient, 0 for any */
    double mean_kept, size_kept; /* how much of the averages of gradients a step leaves */
    float *measured;
} Epoch;

/* What the losses need to know of all rows of a step together. */
static void weigh_rows(const Epoch *how, long rows) {
    Facts *facts = how->facts;
    double total = 0, sum = 0, squares = 0;
    for (long r = 0; r < rows; r++) {
        const Past *past = (const Past *)(how->batch + (r + 1) * how->width) - 1;
        total += past->weight, sum += (double)past->weight * past->advantage;
    }
    const double most = total > 1 ? total : 1, mean = sum / most;
    facts->share = 1 / most;
    if (!how->normalize) return;
    for (long r = 0; r < rows; r++) {
        const Past *past = (const Past *)(how->batch + (r + 1) * how->width) - 1;
        squares += past->weight * (past->advantage - mean) * (past->advantage - mean);
    }
    facts->mean = mean;
    facts->scale = 1 / (sqrt(squares / (total > 2 ? total - 1 : 1)) + 1e-8);
}

/* The length of a gradient, which is not finite if the loss is not. */
static float steepness(const Epoch *how, const float *means) {
    const float *gradient = how->step->gradient;
    float squares = 0;
    SUM(squares) for (long i = 0; i < how->step->sizes[0]; i++) squares += gradient[i] * gradient[i];
    const float loss = means[0] + how->facts->value_scale * means[1] - how->facts->bonus * means[2];
    return sqrtf(squares) + 0 * loss;
}

/* A step of Adam down a gradient of that length. */
static void adam(const Epoch *how, float length) {
    Descent *step = how->step;
    const double taken = *how->taken += 1;
    step->share = how->most > 0 && how->most < length + 1e-6f ? how->most / (length + 1e-6f) : 1;
    step->mean_seen = 1 - pow(how->mean_kept, taken);
    step->size_seen = 1 - pow(how->size_kept, taken);
    descend(step);
}

/* All steps of an epoch, by a program for the rows of one; 1 where there is no memory for it. */
int epoch(const Op *ops, long count, Manner manner, const Epoch *how) {
    const long *order = how->order;
    for (long p = 0; p < how->parts; p++) {
        const long rows = how->count / how->parts + (p < how->count % how->parts);
        float *measured = how->measured + p * MEASURED;
        for (long r = 0; r < rows; r++)
            memcpy(how->batch + r * how->width, how->rows + *order++ * how->width, how->width * sizeof(float));
        weigh_rows(how, rows);
        memset(how->sums, 0, how->room * sizeof(float));
        prepare(ops, count);
        if (run(ops, count, manner, 0, rows, 0)) return 1;
        collect(ops, count, 1);
        memset(measured, 0, MEASURED * sizeof(float));
        for (long r = 0; r < rows; r++)
            for (long i = 0; i < TOLD; i++) measured[i] += how->told[r * TOLD + i];
        measured[TOLD] = steepness(how, measured);
        measured[TOLD + 1] = isfinite(measured[TOLD]) != 0;
        if (measured[TOLD + 1]) adam(how, measured[TOLD]);
    }
    return 0;
}
