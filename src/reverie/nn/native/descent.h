/* A step of an optimiser, as `Stepper.step` and `FlatAdam.step` do it, in two passes over the numbers. */

#define LEAST_LENGTH 1e-3f /* as in nn/optim.py */

typedef struct {
    float *flat, *gradient, *mean, *square;
    const long *sizes;  /* of the parameters and parts of them, which lie one after the other */
    const long *groups; /* with which of them each is cut */
    long count;
    float share, agc;           /* what is left of all gradients, and the most of one as a share of its parameter */
    float by_mean, by_square;   /* how fast the averages move */
    float mean_seen, size_seen; /* how much of them has been seen */
    float rate, decay, eps;
    long laprop;
} Descent;

/* The squares of the lengths of parameters and gradients, of those that are cut together added up. */
static void measure(const Descent *how, float *lengths, float *steeps) {
    const float *flat = how->flat, *gradient = how->gradient;
    for (long p = 0; p < how->count; flat += how->sizes[p], gradient += how->sizes[p], p++) {
        float length = 0, steep = 0;
        SUM(length, steep) for (long i = 0; i < how->sizes[p]; i++) {
            length += flat[i] * flat[i];
            steep += gradient[i] * gradient[i];
        }
        lengths[how->groups[p]] += length, steeps[how->groups[p]] += steep;
    }
}

/* What is left of gradients of such a length. */
static float left(const Descent *how, float length, float steep) {
    length = sqrtf(length), steep = how->share * sqrtf(steep);
    const float most = how->agc * (length > LEAST_LENGTH ? length : LEAST_LENGTH);
    return how->share * (steep > most ? most / steep : 1);
}

void descend(const Descent *how) {
    float *flat = how->flat, *gradient = how->gradient, *mean = how->mean, *square = how->square;
    float lengths[how->count], steeps[how->count];
    memset(lengths, 0, sizeof lengths), memset(steeps, 0, sizeof steeps);
    if (how->agc > 0) measure(how, lengths, steeps);
    for (long p = 0; p < how->count; p++) {
        const long size = how->sizes[p], group = how->agc > 0 ? how->groups[p] : 0;
        const float share = how->agc > 0 ? left(how, lengths[group], steeps[group]) : how->share;
        APART for (long i = 0; i < size; i++) {
            const float each = share * gradient[i];
            square[i] += how->by_square * (each * each - square[i]);
            const float width = sqrtf(square[i] / how->size_seen) + how->eps;
            mean[i] += how->by_mean * ((how->laprop ? each / width : each) - mean[i]);
            const float change = mean[i] / (how->laprop ? how->mean_seen : how->mean_seen * width);
            flat[i] = flat[i] * (1 - how->decay) - how->rate * change;
        }
        flat += size, gradient += size, mean += size, square += size;
    }
}
