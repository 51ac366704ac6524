// device/reference/attention_row.h -- converts one row of attention scores to
// probabilities.
//
// Included by attention.c once per type, with T (the type), S (its unaligned
// element type), NAME(x), TANH and EXP defined.

// Computes what is added to the scores of query i: the mask, and minus infinity
// where causality, the window or the length forbid a key. Where the boolean
// mask forbids a key, bias[j] replaces the score instead. Returns false if no
// key is allowed.
static bool NAME(bias)(const ref_attention *v, int64_t b, int64_t h, int64_t i,
                       T *bias) {
  const S *mask = v->mask;
  const lb_u8 *flags = v->flags;
  const int64_t *m = v->mask_strides;
  int64_t at = b * m[0] + h * m[1] + i * m[2], here = i + v->offset[b];
  int64_t lo = 0, hi = v->length[b];
  if (v->causal && here + 1 < hi) hi = here + 1;
  if (v->right >= 0 && here + 1 < hi - v->right) hi = here + 1 + v->right;
  if (v->left >= 0 && here > v->left) lo = here - v->left;
  bool any = false;
  for (int64_t j = 0; j < v->total; j++) {
    T x = 0;
    if (j < lo || j >= hi)
      x = -(T)INFINITY;
    else if (flags || mask) {
      if (j >= v->mask_cols)
        x = -(T)INFINITY;
      else if (flags)
        x = flags[at + j * m[3]] ? 0 : (T)v->masked_score;
      else
        x = mask[at + j * m[3]];
    }
    bias[j] = x;
    any |= !(x == -(T)INFINITY);
  }
  return any;
}

static void NAME(softmax)(T *row, int64_t n) {
  T max = -(T)INFINITY, sum = 0;
  for (int64_t j = 0; j < n; j++)
    if (row[j] > max || row[j] != row[j]) max = row[j];
  if (max == -(T)INFINITY) max = 0;
  for (int64_t j = 0; j < n; j++) {
    row[j] = EXP(row[j] - max);
    sum = j == 0 ? row[j] : sum + row[j];
  }
  if (sum == 0) sum = 1;
  for (int64_t j = 0; j < n; j++) row[j] /= sum;
}

static void NAME(store_scores)(const ref_attention *v, int mode, int64_t b,
                               int64_t h, int64_t i, const T *row) {
  if (!v->scores || v->scores_mode != mode) return;
  S *to = (S *)v->scores + ((b * v->q_heads + h) * v->q_len + i) * v->total;
  memcpy(to, row, (size_t)v->total * sizeof(T));
}

// Converts the scores of query i to probabilities, in place; `bias` is scratch
// for one row.
static void NAME(row)(const ref_attention *v, int64_t b, int64_t h, int64_t i,
                      T *row, T *bias) {
  const T scale = (T)v->scale, cap = (T)v->softcap;
  for (int64_t j = 0; j < v->total; j++) row[j] *= scale;
  NAME(store_scores)(v, 0, b, h, i, row);
  if (cap > 0)
    for (int64_t j = 0; j < v->total; j++) row[j] = cap * TANH(row[j] / cap);
  NAME(store_scores)(v, 1, b, h, i, row);
  bool any = NAME(bias)(v, b, h, i, bias);
  for (int64_t j = 0; j < v->total; j++)
    row[j] = v->flags && bias[j] != 0 ? bias[j] : row[j] + bias[j];
  NAME(store_scores)(v, 2, b, h, i, row);
  if (any)
    NAME(softmax)(row, v->total);
  else
    memset(row, 0, (size_t)v->total * sizeof(T));
  NAME(store_scores)(v, 3, b, h, i, row);
}

#undef T
#undef S
#undef NAME
#undef TANH
#undef EXP
