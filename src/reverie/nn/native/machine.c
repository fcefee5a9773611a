/* A machine that runs programs of layers over rows of numbers.

   Every row has a strip of columns; an operation reads some and writes others. A few dozen rows go through all steps of
   a program before the next ones do, so that everything but the weights stays in the cache. */
#include "machine.h"

enum {
    LINEAR, WEIGH, NORM, NORM_BACK, GATED, GATED_BACK, CLASSES, CLASSES_BACK, DRAW, RESET, LIMIT, NORMAL, EXPECT,
    SIGMOID, ENTROPY, ENTROPY_BACK, LOAD, STORE, ADD, COPY, CHOOSE, SURROGATE
};

enum { SILU = 1, TANH, RELU }; /* activations behind norms */

typedef struct {
    long kind, from, until; /* the steps at which it runs; below 0 `until` counts from their end */
    long a, b, c, d, e, f;  /* columns */
    long k, n, groups;      /* inputs, outputs, blocks of them */
    long in_step, out_step, add;
    long source_step, k_stride, n_stride; /* where weights lie */
    long row_stride, step_stride;         /* where data lie */
    float eps, low, high;
    long center, active; /* kinds of norms, and of what comes behind them */
    long half;           /* whether products are taken in bfloat16 */
    const float *weight, *bias;
    float *packed, *data;
    float *by_weight, *by_bias; /* gradients of all rows, first added up for each share of the rows in `packed` */
    long share;                 /* how far apart the sums of shares lie */
    const long *sizes;          /* how many classes each of several choices has */
} Op;

typedef struct {
    float *at; /* the first column of the first row */
    long width, rows, first, step, share;
    unsigned *half; /* room for numbers in bfloat16 */
    int tiles;      /* whether the processor multiplies by tiles */
} Tile;

#include "products.h"
#include "halves.h"

typedef struct {
    float mean, scale;
} Moments;

INLINE Moments moments(const Op *op, const float *x) {
    const long k = op->k;
    float total = 0, squares = 0;
    if (op->center == 2) return (Moments){0, 1};
    if (op->center) {
        SUM(total) for (long i = 0; i < k; i++) total += x[i];
    }
    const float mean = total / k;
    SUM(squares) for (long i = 0; i < k; i++) squares += (x[i] - mean) * (x[i] - mean);
    return (Moments){mean, 1.0f / sqrtf(squares / k + op->eps)};
}

/* a: inputs, b: outputs. Moments come first, as the processor then works at those of several rows at once. */
static void norm(const Op *op, Tile t) {
    const float *weight = op->weight, *bias = op->bias;
    const long k = op->k;
    Moments found[t.rows];
    for (long r = 0; r < t.rows; r++) found[r] = moments(op, t.at + r * t.width + op->a);
    for (long r = 0; r < t.rows; r++) {
        const float *x = t.at + r * t.width + op->a;
        float *y = t.at + r * t.width + op->b;
        const Moments m = found[r];
        if (op->active == SILU) {
            APART for (long i = 0; i < k; i++) {
                float each = (x[i] - m.mean) * m.scale * weight[i] + bias[i];
                y[i] = each * sigmoid(each);
            }
            continue;
        }
        APART for (long i = 0; i < k; i++) y[i] = (x[i] - m.mean) * m.scale * weight[i] + bias[i];
        if (op->active == TANH) for (long i = 0; i < k; i++) y[i] = tangent(y[i]);
        if (op->active == RELU) for (long i = 0; i < k; i++) y[i] = y[i] < 0 ? 0 : y[i];
    }
}

/* a: inputs, b: gradients of outputs, which are lost, c: gradients of inputs. */
static void norm_back(const Op *op, Tile t) {
    const float *weight = op->weight, *bias = op->bias;
    const long k = op->k;
    float *by_weight = op->packed + t.share * op->share, *by_bias = by_weight + k;
    Moments found[t.rows];
    for (long r = 0; r < t.rows; r++) found[r] = moments(op, t.at + r * t.width + op->a);
    for (long r = 0; r < t.rows; r++) {
        const float *x = t.at + r * t.width + op->a;
        float *by = t.at + r * t.width + op->b, *bx = t.at + r * t.width + op->c, total = 0, along = 0;
        const Moments m = found[r];
        if (op->active == SILU)
            APART for (long i = 0; i < k; i++) {
                float y = (x[i] - m.mean) * m.scale * weight[i] + bias[i], s = sigmoid(y);
                by[i] *= s * (1 + y * (1 - s));
            }
        if (op->active == TANH)
            APART for (long i = 0; i < k; i++) {
                float y = tangent((x[i] - m.mean) * m.scale * weight[i] + bias[i]);
                by[i] *= 1 - y * y;
            }
        if (op->active == RELU)
            APART for (long i = 0; i < k; i++) by[i] = (x[i] - m.mean) * m.scale * weight[i] + bias[i] > 0 ? by[i] : 0;
        if (op->by_weight)
            APART for (long i = 0; i < k; i++) {
                by_weight[i] += by[i] * (x[i] - m.mean) * m.scale;
                by_bias[i] += by[i];
            }
        SUM(total, along) for (long i = 0; i < k; i++) {
            by[i] *= weight[i];
            total += by[i];
            along += by[i] * (x[i] - m.mean);
        }
        total = op->center == 1 ? total / k : 0;
        along = op->center == 2 ? 0 : along * m.scale * m.scale / k;
        APART for (long i = 0; i < k; i++)
            bx[i] = (op->add ? bx[i] : 0) + m.scale * (by[i] - total - (x[i] - m.mean) * along);
    }
}

/* What every share of the rows has added up for the scales and biases of a norm. */
static void unpack_norm(const Op *op, long shares) {
    for (long i = 0; i < op->k; i++) {
        float scale = 0, bias = 0;
        for (long s = 0; s < shares; s++) {
            scale += op->packed[s * op->share + i];
            bias += op->packed[s * op->share + op->k + i];
        }
        op->by_weight[i] = scale;
        if (op->by_bias) op->by_bias[i] = bias;
    }
}

#include "choices.h"
#include "policies.h"

/* a: gates, b: state before, c: state after. */
static void gated(const Op *op, float *row) {
    for (long g = 0; g < op->groups; g++) {
        const float *reset = row + op->a + 3 * g * op->k, *candidate = reset + op->k, *update = candidate + op->k;
        const float *before = row + op->b + g * op->k;
        float *after = row + op->c + g * op->k;
        APART for (long i = 0; i < op->k; i++) {
            float found = tangent(sigmoid(reset[i]) * candidate[i]);
            after[i] = before[i] + sigmoid(update[i] - 1) * (found - before[i]);
        }
    }
}

/* a: gates, b: state before, c: gradient of the state after; d, e: new gradients of gates and state before. */
static void gated_back(const Op *op, float *row) {
    for (long g = 0; g < op->groups; g++) {
        const float *reset = row + op->a + 3 * g * op->k, *candidate = reset + op->k, *update = candidate + op->k;
        const float *before = row + op->b + g * op->k, *goal = row + op->c + g * op->k;
        float *by_reset = row + op->d + 3 * g * op->k, *by_candidate = by_reset + op->k;
        float *by_update = by_candidate + op->k, *by_before = row + op->e + g * op->k;
        APART for (long i = 0; i < op->k; i++) {
            float r = sigmoid(reset[i]), u = sigmoid(update[i] - 1), found = tangent(r * candidate[i]);
            float inner = goal[i] * u * (1 - found * found);
            by_update[i] = goal[i] * (found - before[i]) * u * (1 - u);
            by_candidate[i] = inner * r;
            by_reset[i] = inner * candidate[i] * r * (1 - r);
            by_before[i] = goal[i] * (1 - u);
        }
    }
}

/* a: outputs for mean and deviation, b: normal numbers, c: draws from a normal with its mean within bounds. */
static void normal(const Op *op, float *row) {
    const float *mean = row + op->a, *spread = mean + op->k, *noise = row + op->b;
    for (long i = 0; i < op->k; i++)
        row[op->c + i] = tangent(mean[i]) + ((op->high - op->low) * sigmoid(spread[i] + 2) + op->low) * noise[i];
}

static void on_row(const Op *op, float *row, float *data) {
    float *a = row + op->a, *b = row + op->b;
    switch (op->kind) {
        case GATED: gated(op, row); break;
        case GATED_BACK: gated_back(op, row); break;
        case CLASSES: classes(op, row); break;
        case CLASSES_BACK: classes_back(op, row); break;
        case DRAW: draw(op, row); break;
        case NORMAL: normal(op, row); break;
        case EXPECT: expect(op, row); break;
        case CHOOSE: choose(op, row); break;
        case SURROGATE: surrogate(op, row); break;
        case ENTROPY: entropy(op, row, 0); break;
        case ENTROPY_BACK: entropy(op, row, 1); break;
        case SIGMOID: *b = op->high * sigmoid(*a); break;
        case RESET: for (long i = 0; i < op->k; i++) b[i] = row[op->c] > 0 ? 0 : a[i]; break;
        case LIMIT: for (long i = 0; i < op->k; i++) b[i] = fabsf(a[i]) > op->high ? copysignf(op->high, a[i]) : a[i]; break;
        case ADD: for (long i = 0; i < op->k; i++) b[i] += a[i]; break;
        case COPY: memcpy(b, a, op->k * sizeof *a); break;
        case LOAD: memcpy(a, data, op->k * sizeof *a); break;
        case STORE: memcpy(data, a, op->k * sizeof *a); break;
    }
}

static void run_op(const Op *op, Tile t) {
    float *data = op->data + t.step * op->step_stride + t.first * op->row_stride;
    switch (op->kind) {
        case LINEAR: op->half ? linear_half(op, t) : linear(op, t); break;
        case WEIGH: op->half && t.rows > TALL ? weigh_half(op, t) : weigh(op, t); break;
        case NORM: norm(op, t); break;
        case NORM_BACK: norm_back(op, t); break;
        default: for (long r = 0; r < t.rows; r++) on_row(op, t.at + r * t.width, data + r * op->row_stride);
    }
}

void prepare(const Op *ops, long count) {
    for (long i = 0; i < count; i++)
        if (ops[i].kind == LINEAR && ops[i].until) ops[i].half ? pack_half(ops + i) : pack(ops + i);
}

/* The gradients of weights from what so many shares of the rows have added up. */
void collect(const Op *ops, long count, long shares) {
    for (long i = 0; i < count; i++) {
        if (ops[i].kind == WEIGH) unpack(ops + i, shares);
        if (ops[i].kind == NORM_BACK && ops[i].by_weight) unpack_norm(ops + i, shares);
    }
}

/* How a program runs: over how many columns, steps and rows at once, and which way. */
typedef struct {
    long width, steps, backwards, most;
} Manner;

/* Room for as many rows as go through a program together, all of its columns, and then what is rounded for a product. */
static float *room(const Op *ops, long count, Manner how, size_t *columns) {
    const long rows = (how.most + 15) / 16 * 16; /* tiles are of 16 */
    long pairs = 0;
    for (long i = 0; i < count; i++)
        if (half_room(ops + i, rows) > pairs) pairs = half_room(ops + i, rows);
    *columns = ((size_t)(rows * how.width + LANES) * sizeof(float) + 63) / 64 * 64;
    return aligned_alloc(64, *columns + ((size_t)pairs * sizeof(Pair) + 63) / 64 * 64);
}

/* Run a program over rows `begin` to `end`, each through all steps; 1 where there is no memory for it. */
int run(const Op *ops, long count, Manner how, long begin, long end, long share) {
    size_t bytes;
    float *strip = room(ops, count, how, &bytes);
    if (!strip) return 1;
    const int tiles = tiles_ready();
    for (long first = begin; first < end; first += how.most) {
        Tile tile = {strip, how.width, end - first < how.most ? end - first : how.most, first, 0, share,
                     (Pair *)((char *)strip + bytes), tiles};
        if (how.backwards || how.steps > 1 || first == begin) memset(strip, 0, bytes);
        for (long s = 0; s < how.steps; s++) {
            tile.step = how.backwards ? how.steps - 1 - s : s;
            for (long i = 0; i < count; i++) {
                long until = ops[i].until < 0 ? how.steps + ops[i].until : ops[i].until;
                if (ops[i].from <= tile.step && tile.step < until) run_op(ops + i, tile);
            }
        }
    }
    tiles_done(tiles);
    free(strip);
    return 0;
}

typedef struct {
    const Op *ops;
    long count;
    Manner how;
} Task;

/* The same as one task of a team, see teams.h. */
int run_task(const void *task, long begin, long end, long share) {
    const Task *what = task;
    return run(what->ops, what->count, what->how, begin, end, share);
}

#include "teams.h"
#include "descent.h"
#include "epochs.h"
#include "convolutions.h"
