// device/reference/gemm_tile.h -- a block of a GEMM, for one accumulator type.
//
// Included by gemm.c once per type, with T (the type), S (its unaligned element
// type) and NAME(x) defined. Four rows by two vectors are kept in registers.
typedef T NAME(vec) __attribute__((vector_size(16)));
#define V NAME(vec)
enum { NAME(lanes) = 16 / sizeof(T), NAME(width) = 2 * NAME(lanes) };

// Loads two vectors of a row of C, of which w elements exist.
static inline void NAME(load)(const S *c, int64_t w, V *lo, V *hi) {
  T t[NAME(width)] = {0};
  if (w >= NAME(width))
    memcpy(t, c, sizeof t);
  else
    memcpy(t, c, (size_t)w * sizeof(T));
  memcpy(lo, t, 16);
  memcpy(hi, t + NAME(lanes), 16);
}

static inline void NAME(save)(S *c, int64_t w, V lo, V hi) {
  T t[NAME(width)];
  memcpy(t, &lo, 16);
  memcpy(t + NAME(lanes), &hi, 16);
  if (w >= NAME(width))
    memcpy(c, t, sizeof t);
  else
    memcpy(c, t, (size_t)w * sizeof(T));
}

// Subtracts zero instead of adding it, so that -0 stays -0.
#define SPLAT(x) ((x) - (V){0})
#define STEP(r)                            \
  do {                                     \
    V x_ = SPLAT((T)a[(r)*row + k * col]); \
    lo##r += x_ * blo;                     \
    hi##r += x_ * bhi;                     \
  } while (0)
#define START(r)                 \
  do {                           \
    V x_ = SPLAT((T)a[(r)*row]); \
    lo##r = x_ * blo;            \
    hi##r = x_ * bhi;            \
  } while (0)

static void NAME(rows4)(const S *a, int64_t row, int64_t col, int64_t kn,
                        const T *panel, bool first, S *c, int64_t c_row,
                        int64_t w) {
  V lo0, lo1, lo2, lo3, hi0, hi1, hi2, hi3, blo, bhi;
  const V *b = (const V *)panel;
  enum { pitch = LB_GEMM_COLS / NAME(lanes) };
  int64_t k = 0;
  if (first) {
    blo = b[0], bhi = b[1];
    START(0);
    START(1);
    START(2);
    START(3);
    k = 1;
  } else {
    NAME(load)(c, w, &lo0, &hi0);
    NAME(load)(c + c_row, w, &lo1, &hi1);
    NAME(load)(c + 2 * c_row, w, &lo2, &hi2);
    NAME(load)(c + 3 * c_row, w, &lo3, &hi3);
  }
  for (; k < kn; k++) {
    blo = b[k * pitch], bhi = b[k * pitch + 1];
    STEP(0);
    STEP(1);
    STEP(2);
    STEP(3);
  }
  NAME(save)(c, w, lo0, hi0);
  NAME(save)(c + c_row, w, lo1, hi1);
  NAME(save)(c + 2 * c_row, w, lo2, hi2);
  NAME(save)(c + 3 * c_row, w, lo3, hi3);
}

static void NAME(rows1)(const S *a, int64_t col, int64_t kn, const T *panel,
                        bool first, S *c, int64_t w) {
  const int64_t row = 0;
  V lo0, hi0, blo, bhi;
  const V *b = (const V *)panel;
  enum { pitch = LB_GEMM_COLS / NAME(lanes) };
  int64_t k = 0;
  if (first) {
    blo = b[0], bhi = b[1];
    START(0);
    k = 1;
  } else {
    NAME(load)(c, w, &lo0, &hi0);
  }
  for (; k < kn; k++) {
    blo = b[k * pitch], bhi = b[k * pitch + 1];
    STEP(0);
  }
  NAME(save)(c, w, lo0, hi0);
}

// Multiplies rows [i0, i1) of A by one panel of B.
static void NAME(panel)(const lb_gemm *g, int64_t i0, int64_t i1, int64_t k0,
                        int64_t kn, int64_t j0, int64_t jn, const T *panel) {
  for (int64_t j = 0; j < jn; j += NAME(width)) {
    int64_t i = i0, w = jn - j;
    const S *a = (const S *)g->a + i * g->a_row + k0 * g->a_col;
    S *c = (S *)g->c + i * g->c_row + j0 + j;
    for (; i + 4 <= i1; i += 4, a += 4 * g->a_row, c += 4 * g->c_row)
      NAME(rows4)
    (a, g->a_row, g->a_col, kn, panel + j, k0 == 0, c, g->c_row, w);
    for (; i < i1; i++, a += g->a_row, c += g->c_row)
      NAME(rows1)(a, g->a_col, kn, panel + j, k0 == 0, c, w);
  }
}

static void NAME(block)(const lb_gemm *g, int64_t i0, int64_t i1, int64_t j0,
                        int64_t j1) {
  _Alignas(64) T panel[LB_GEMM_DEPTH * LB_GEMM_COLS];
  memset(panel, 0, sizeof panel);
  if (g->k == 0)
    for (int64_t i = i0; i < i1; i++)
      memset((S *)g->c + i * g->c_row + j0, 0, (size_t)(j1 - j0) * sizeof(T));
  for (int64_t j = j0; j < j1; j += LB_GEMM_COLS) {
    int64_t jn = j1 - j < LB_GEMM_COLS ? j1 - j : LB_GEMM_COLS;
    for (int64_t k = 0; k < g->k; k += LB_GEMM_DEPTH) {
      int64_t kn = g->k - k < LB_GEMM_DEPTH ? g->k - k : LB_GEMM_DEPTH;
      g->pack(g->b, k, kn, j, jn, panel);
      NAME(panel)(g, i0, i1, k, kn, j, jn, panel);
    }
  }
}

#undef V
#undef SPLAT
#undef STEP
#undef START
#undef T
#undef S
#undef NAME
