/* Matrix products of rows with weights, and of inputs with gradients. */

/* Weights as products read them: for 16 columns at a time their biases, then all inputs' weights. */
static void pack(const Op *op) {
    float *to = op->packed;
    for (long g = 0; g < op->groups; g++)
        for (long begin = 0; begin < op->n; begin += LANES)
            for (long k = -1; k < op->k; k++)
                for (long n = begin; n < begin + LANES; n++, to++) {
                    if (n >= op->n) *to = 0;
                    else if (k < 0) *to = op->bias ? op->bias[g * op->n + n] : 0;
                    else *to = op->weight[g * op->source_step + k * op->k_stride + n * op->n_stride];
                }
}

/* The way back: what every share of the rows has added up in that layout, as the gradients of weights and biases lie. */
static void unpack(const Op *op, long shares) {
    const float *from = op->packed;
    for (long g = 0; g < op->groups; g++)
        for (long begin = 0; begin < op->n; begin += LANES)
            for (long k = -1; k < op->k; k++, from += LANES)
                for (long n = begin; n < op->n && n < begin + LANES; n++) {
                    float total = 0;
                    for (long s = 0; s < shares; s++) total += from[s * op->share + n - begin];
                    if (k < 0 && op->by_bias) op->by_bias[g * op->n + n] = total;
                    if (k >= 0 && op->by_weight)
                        op->by_weight[g * op->source_step + k * op->k_stride + n * op->n_stride] = total;
                }
}

/* Sums of some rows over all inputs, for 16 columns. */
INLINE void product(const int rows, const float *x, float *y, const float *w, long k, long width, long add) {
    Lane sum[ROWS][PARTS];
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int p = 0; p < PARTS; p++)
            sum[r][p] = ((const Lane *)w)[p] + (add ? ((const Lane *)(y + r * width))[p] : (Lane){0});
    for (long i = 0; i < k; i++) {
        w += LANES;
        Lane each[PARTS];
        UNROLL for (int p = 0; p < PARTS; p++) each[p] = ((const Lane *)w)[p];
        UNROLL for (int r = 0; r < rows; r++)
            UNROLL for (int p = 0; p < PARTS; p++) sum[r][p] += x[r * width + i] * each[p];
    }
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int p = 0; p < PARTS; p++) ((Lane *)(y + r * width))[p] = sum[r][p];
}

static void products(long rows, const float *x, float *y, const float *w, long k, long width, long add) {
    WITH_ROWS(rows, product, x, y, w, k, width, add)
}

/* a: inputs, b: outputs; blocks that share their outputs add up. */
static void linear(const Op *op, Tile t) {
    const float *w = op->packed;
    const long some = evenly(t.rows);
    for (long g = 0; g < op->groups; g++)
        for (long n = 0; n < op->n; n += LANES, w += (op->k + 1) * LANES)
            for (long r = 0; r < t.rows; r += some) {
                float *row = t.at + r * t.width;
                products(t.rows - r < some ? t.rows - r : some, row + op->a + g * op->in_step,
                         row + op->b + g * op->out_step + n, w, op->k, t.width, op->add || (g && !op->out_step));
            }
}

/* Some inputs of all rows times the gradients of 16 outputs, added up over the rows. */
INLINE void outer(const int inputs, const float *x, const float *by, float *sums, long rows, long width) {
    Lane sum[ROWS][PARTS];
    UNROLL for (int i = 0; i < inputs; i++)
        UNROLL for (int p = 0; p < PARTS; p++) sum[i][p] = ((const Lane *)(sums + i * LANES))[p];
    for (long r = 0; r < rows; r++, x += width, by += width) {
        Lane each[PARTS];
        UNROLL for (int p = 0; p < PARTS; p++) each[p] = ((const Lane *)by)[p];
        UNROLL for (int i = 0; i < inputs; i++)
            UNROLL for (int p = 0; p < PARTS; p++) sum[i][p] += x[i] * each[p];
    }
    UNROLL for (int i = 0; i < inputs; i++)
        UNROLL for (int p = 0; p < PARTS; p++) ((Lane *)(sums + i * LANES))[p] = sum[i][p];
}

static void outers(long inputs, const float *x, const float *by, float *sums, long rows, long width) {
    WITH_ROWS(inputs, outer, x, by, sums, rows, width)
}

/* The gradients of 16 outputs, added up over the rows. */
static void total(const float *by, float *sums, long rows, long width) {
    Lane sum[PARTS];
    UNROLL for (int p = 0; p < PARTS; p++) sum[p] = ((const Lane *)sums)[p];
    for (long r = 0; r < rows; r++, by += width)
        UNROLL for (int p = 0; p < PARTS; p++) sum[p] += ((const Lane *)by)[p];
    UNROLL for (int p = 0; p < PARTS; p++) ((Lane *)sums)[p] = sum[p];
}

/* a: inputs, b: gradients of outputs; those of weights and biases are added to what this share of the rows has. */
static void weigh(const Op *op, Tile t) {
    float *sums = op->packed + t.share * op->share;
    const long some = evenly(op->k);
    for (long g = 0; g < op->groups; g++)
        for (long n = 0; n < op->n; n += LANES, sums += (op->k + 1) * LANES) {
            const float *x = t.at + op->a + g * op->in_step, *by = t.at + op->b + g * op->out_step + n;
            total(by, sums, t.rows, t.width);
            for (long k = 0; k < op->k; k += some)
                outers(op->k - k < some ? op->k - k : some, x + k, by, sums + (k + 1) * LANES, t.rows, t.width);
        }
}
