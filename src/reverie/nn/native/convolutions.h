/* Convolutions of images (h, w, c) with ReLU behind each, and their gradients.

   What an output pixel is made of, its patch, is some lines of numbers that lie together in the image: nothing has to
   be copied before it is multiplied. Gradients lie where the numbers lie that they belong to. */

#define BLOCK 96 /* pixels whose patches stay in the cache while they are multiplied with gradients */

typedef int Bits __attribute__((vector_size(BYTES), aligned(4), may_alias));

typedef struct {
    const long *from, *to;     /* of each output pixel: where its patch begins, and where it goes */
    long count;                /* output pixels of an image */
    long lines, length, apart; /* of a patch: lines, numbers in one, from the beginning of one to that of the next */
    long n;                    /* outputs of a pixel */
    long in, out;              /* numbers of an image, as this layer takes them and as the next one does */
    float *values;             /* what this layer finds in all images */
    const float *there;        /* for 16 outputs at a time biases, then weights */
    const float *back;         /* for 16 inputs at a time weights */
    float *sums;               /* gradients of weights by shares of the images, as `there` lies */
    long share;                /* how far apart those are */
} Convolution;

typedef struct {
    const unsigned char *bytes; /* images */
    long height, line;          /* lines of one, and bytes in a line */
    long begin, apart;          /* where the first layer takes them: the first line, and from one to the next */
    const Convolution *layers;
    long count;
    const float *goal; /* gradients of what the last layer has found */
} Images;

/* Some patches times weights for 16 outputs, through ReLU. */
INLINE void patch(const int pixels, const Convolution *c, const float *x, const long *from, float *y, const long *to,
                  const float *w) {
    const float *at[ROWS];
    Lane sum[ROWS][PARTS];
    UNROLL for (int r = 0; r < pixels; r++) {
        at[r] = x + from[r];
        UNROLL for (int p = 0; p < PARTS; p++) sum[r][p] = ((const Lane *)w)[p];
    }
    for (long line = 0; line < c->lines; line++) {
        for (long i = 0; i < c->length; i++) {
            w += LANES;
            Lane each[PARTS];
            UNROLL for (int p = 0; p < PARTS; p++) each[p] = ((const Lane *)w)[p];
            UNROLL for (int r = 0; r < pixels; r++)
                UNROLL for (int p = 0; p < PARTS; p++) sum[r][p] += at[r][i] * each[p];
        }
        UNROLL for (int r = 0; r < pixels; r++) at[r] += c->apart;
    }
    UNROLL for (int r = 0; r < pixels; r++)
        UNROLL for (int p = 0; p < PARTS; p++)
            ((Bits *)(y + to[r]))[p] = (Bits)sum[r][p] & ~(Bits)(sum[r][p] < 0);
}

/* What a layer finds in an image. */
static void patches(const Convolution *c, const float *x, float *y) {
    const float *w = c->there;
    for (long n = 0; n < c->n; n += LANES, w += (c->lines * c->length + 1) * LANES)
        for (long p = 0; p < c->count; p += ROWS) {
            const long *from = c->from + p, *to = c->to + p;
            WITH_ROWS(c->count - p, patch, c, x, from, y + n, to, w)
        }
}

/* Gradients of some pixels' outputs times weights of 16 inputs, added to those that the inputs have. */
INLINE void spread(const int pixels, long n, const float *g, const long *to, float *by, const long *from,
                   const float *w) {
    const float *at[ROWS];
    Lane sum[ROWS][PARTS];
    UNROLL for (int r = 0; r < pixels; r++) {
        at[r] = g + to[r];
        UNROLL for (int p = 0; p < PARTS; p++) sum[r][p] = (Lane){0};
    }
    for (long i = 0; i < n; i++, w += LANES) {
        Lane each[PARTS];
        UNROLL for (int p = 0; p < PARTS; p++) each[p] = ((const Lane *)w)[p];
        UNROLL for (int r = 0; r < pixels; r++)
            UNROLL for (int p = 0; p < PARTS; p++) sum[r][p] += at[r][i] * each[p];
    }
    UNROLL for (int r = 0; r < pixels; r++) /* one after the other, as patches overlap */
        UNROLL for (int p = 0; p < PARTS; p++) ((Lane *)(by + from[r]))[p] += sum[r][p];
}

/* Gradients of a layer's inputs, which are 0 where the ReLU before it is. */
static void spreads(const Convolution *c, const float *x, const float *g, float *by) {
    const float *w = c->back;
    memset(by, 0, c->in * sizeof *by);
    for (long i = 0; i < c->lines * c->length; i += LANES, w += c->n * LANES)
        for (long p = 0; p < c->count; p += ROWS) {
            const long *from = c->from + p, *to = c->to + p;
            float *at = by + i / c->length * c->apart + i % c->length;
            WITH_ROWS(c->count - p, spread, c->n, g, to, at, from, w)
        }
    APART for (long i = 0; i < c->in; i++) by[i] = x[i] <= 0 ? 0 : by[i];
}

/* Some inputs of patches times the gradients of 16 outputs, added up. */
INLINE void overlap(const int inputs, const float *x, const long *from, const float *g, const long *to, long pixels,
                    float *sums) {
    Lane sum[ROWS][PARTS];
    UNROLL for (int i = 0; i < inputs; i++)
        UNROLL for (int p = 0; p < PARTS; p++) sum[i][p] = ((const Lane *)(sums + i * LANES))[p];
    for (long each = 0; each < pixels; each++) {
        const float *at = x + from[each];
        Lane gradient[PARTS];
        UNROLL for (int p = 0; p < PARTS; p++) gradient[p] = ((const Lane *)(g + to[each]))[p];
        UNROLL for (int i = 0; i < inputs; i++)
            UNROLL for (int p = 0; p < PARTS; p++) sum[i][p] += at[i] * gradient[p];
    }
    UNROLL for (int i = 0; i < inputs; i++)
        UNROLL for (int p = 0; p < PARTS; p++) ((Lane *)(sums + i * LANES))[p] = sum[i][p];
}

/* Gradients of weights and biases by some pixels of an image, added to those of a share. */
static void weigh_pixels(const Convolution *c, const float *x, const float *g, long first, float *sums) {
    const long pixels = c->count - first < BLOCK ? c->count - first : BLOCK;
    const long *from = c->from + first, *to = c->to + first;
    for (long n = 0; n < c->n; n += LANES) {
        for (long p = 0; p < pixels; p++)
            for (long h = 0; h < PARTS; h++) ((Lane *)sums)[h] += ((const Lane *)(g + to[p] + n))[h];
        sums += LANES;
        for (long line = 0; line < c->lines; line++)
            for (long i = 0, inputs; i < c->length; i += inputs, sums += inputs * LANES) {
                inputs = evenly(c->length - i);
                WITH_ROWS(inputs, overlap, x + line * c->apart + i, from, g + n, to, pixels, sums)
            }
    }
}

/* Bytes as numbers, with what surrounds an image left as it is. */
static void read_bytes(const Images *all, long image, float *x) {
    for (long h = 0; h < all->height; h++) {
        const unsigned char *from = all->bytes + (image * all->height + h) * all->line;
        float *to = x + all->begin + h * all->apart;
        APART for (long i = 0; i < all->line; i++) to[i] = from[i];
    }
}

/* Images `begin` to `end` through all layers, a task of a team. */
int convolve(const void *task, long begin, long end, long share) {
    const Images *all = task;
    float *bytes = calloc(all->layers->in, sizeof *bytes);
    if (!bytes) return 1;
    for (long image = begin; image < end; image++) {
        const float *x = bytes;
        read_bytes(all, image, bytes);
        for (const Convolution *c = all->layers; c < all->layers + all->count; c++) {
            float *y = c->values + image * c->out;
            patches(c, x, y);
            x = y;
        }
    }
    free(bytes);
    return 0;
}

/* Gradients of all weights by one image; there is room for its numbers and for gradients of two layers. */
static void convolve_one_back(const Images *all, long image, float *bytes, float **g, long share) {
    const Convolution *c = all->layers + all->count - 1;
    const float *goal = all->goal + image * c->out, *found = c->values + image * c->out;
    float *by = g[0], *next = g[1];
    read_bytes(all, image, bytes);
    APART for (long i = 0; i < c->out; i++) by[i] = found[i] <= 0 ? 0 : goal[i];
    for (; c >= all->layers; c--) {
        const float *x = c > all->layers ? c[-1].values + image * c->in : bytes;
        for (long p = 0; p < c->count; p += BLOCK) weigh_pixels(c, x, by, p, c->sums + share * c->share);
        if (c > all->layers) spreads(c, x, by, next);
        float *old = by;
        by = next, next = old;
    }
}

/* Gradients of all weights by images `begin` to `end`, a task of a team. */
int convolve_back(const void *task, long begin, long end, long share) {
    const Images *all = task;
    long most = 0;
    for (long l = 0; l < all->count; l++) most = all->layers[l].out > most ? all->layers[l].out : most;
    float *bytes = calloc(all->layers->in, sizeof *bytes), *g[2] = {calloc(most, sizeof **g), calloc(most, sizeof **g)};
    const int failed = !bytes || !g[0] || !g[1];
    for (long image = begin; image < end && !failed; image++) convolve_one_back(all, image, bytes, g, share);
    free(bytes), free(g[0]), free(g[1]);
    return failed;
}
