// device/reference/gemm.c -- blocked GEMM, and packing of B.
#include "device/reference/gemm.h"

#include <assert.h>
#include <string.h>

#include "device/reference/iter.h"

// -- blocks ------------------------------------------------------------------

#define T float
#define S lb_f32
#define NAME(x) f32_##x
#include "device/reference/gemm_tile.h"

#define T double
#define S lb_f64
#define NAME(x) f64_##x
#include "device/reference/gemm_tile.h"

#define T uint32_t
#define S lb_u32
#define NAME(x) u32_##x
#include "device/reference/gemm_tile.h"

#define T uint64_t
#define S lb_u64
#define NAME(x) u64_##x
#include "device/reference/gemm_tile.h"

static void run_block(const lb_gemm *g, int64_t i0, int64_t i1, int64_t j0,
                      int64_t j1) {
  switch (g->dtype) {
    case LB_F32: f32_block(g, i0, i1, j0, j1); break;
    case LB_F64: f64_block(g, i0, i1, j0, j1); break;
    case LB_I32: u32_block(g, i0, i1, j0, j1); break;
    case LB_I64: u64_block(g, i0, i1, j0, j1); break;
    default:
      assert(g->dtype == LB_F32);  // there are no other accumulator types
  }
}

void lb_gemm_run(const lb_gemm *g) {
  if (g->m > 0 && g->n > 0) run_block(g, 0, g->m, 0, g->n);
}

// -- batches -----------------------------------------------------------------

// The block of C that one task computes: enough rows to amortise packing.
enum { BLOCK_ROWS = 128, BLOCK_COLS = 4 * LB_GEMM_COLS };

// Minimum number of multiply-adds per task.
enum { TASK_WORK = 1 << 16 };

typedef struct batch_job {
  const lb_gemm *like;
  lb_gemm_get *get;
  const void *user;
  int64_t down, across;  // blocks of one GEMM
} batch_job;

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }

static void batch_task(void *user, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const batch_job *job = user;
  for (int64_t t = begin; t < end; t++) {
    lb_gemm g = *job->like;
    int64_t block = t % (job->down * job->across);
    job->get(job->user, t / (job->down * job->across), &g);
    int64_t i = block % job->down * BLOCK_ROWS;
    int64_t j = block / job->down * BLOCK_COLS;
    run_block(&g, i, min64(i + BLOCK_ROWS, g.m), j, min64(j + BLOCK_COLS, g.n));
  }
}

void lb_gemm_batch(lb_pool *pool, const lb_gemm *like, int64_t count,
                   lb_gemm_get *get, const void *user) {
  if (count == 0 || like->m == 0 || like->n == 0) return;
  batch_job job = {like, get, user, (like->m + BLOCK_ROWS - 1) / BLOCK_ROWS,
                   (like->n + BLOCK_COLS - 1) / BLOCK_COLS};
  int64_t work = min64(like->m, BLOCK_ROWS) * min64(like->n, BLOCK_COLS) *
                 min64(like->k + 1, TASK_WORK);
  int64_t grain = work >= TASK_WORK ? 1 : TASK_WORK / work;
  lb_pool_for(pool, count * job.down * job.across, grain, batch_task, &job);
}

// -- packing -----------------------------------------------------------------

// The loop order follows the memory layout of B.
#define PACK(id, From, To, expr)                                         \
  static void pack_##id(const lb_gemm_matrix *m, int64_t k0, int64_t kn, \
                        int64_t j0, int64_t jn, To *panel) {             \
    const From *b = (const From *)m->data + k0 * m->row + j0 * m->col;   \
    if (m->row == 1) {                                                   \
      for (int64_t j = 0; j < jn; j++)                                   \
        for (int64_t k = 0; k < kn; k++) {                               \
          From x = b[j * m->col + k];                                    \
          panel[k * LB_GEMM_COLS + j] = (To)(expr);                      \
        }                                                                \
      return;                                                            \
    }                                                                    \
    for (int64_t k = 0; k < kn; k++)                                     \
      for (int64_t j = 0; j < jn; j++) {                                 \
        From x = b[k * m->row + j * m->col];                             \
        panel[k * LB_GEMM_COLS + j] = (To)(expr);                        \
      }                                                                  \
  }
PACK(f32, lb_f32, float, x)
PACK(f16, lb_bits16, float, lb_f16_to_f32(x))
PACK(bf16, lb_bits16, float, lb_bf16_to_f32(x))
PACK(f64, lb_f64, double, x)
PACK(i8, lb_i8, uint32_t, x)
PACK(u8, lb_u8, uint32_t, x)
PACK(i16, lb_i16, uint32_t, x)
PACK(u16, lb_u16, uint32_t, x)
PACK(u32, lb_u32, uint32_t, x)
PACK(u64, lb_u64, uint64_t, x)

// Copies whole rows of a panel, the common case.
static void pack_rows(const lb_gemm_matrix *m, int64_t k0, int64_t kn,
                      int64_t j0, int64_t jn, char *panel) {
  size_t size = lb_dtype_size(m->dtype);
  const char *b = (const char *)m->data + (k0 * m->row + j0) * (int64_t)size;
  for (int64_t k = 0; k < kn; k++, panel += LB_GEMM_COLS * size)
    memcpy(panel, b + k * m->row * (int64_t)size, (size_t)jn * size);
}

static void subtract_zero_point(const lb_gemm_matrix *m, int64_t kn, int64_t j0,
                                int64_t jn, uint32_t *panel) {
  for (int64_t k = 0; k < kn; k++, panel += LB_GEMM_COLS)
    for (int64_t j = 0; j < jn; j++)
      panel[j] -= (uint32_t)m->zero_point[(j0 + j) * m->zero_point_col];
}

void lb_gemm_pack_matrix(const void *b, int64_t k0, int64_t kn, int64_t j0,
                         int64_t jn, void *panel) {
  const lb_gemm_matrix *m = b;
  if (m->col == 1 && m->dtype == m->acc) {
    pack_rows(m, k0, kn, j0, jn, panel);
  } else {
    switch (m->dtype) {
      case LB_F32: pack_f32(m, k0, kn, j0, jn, panel); break;
      case LB_F16: pack_f16(m, k0, kn, j0, jn, panel); break;
      case LB_BF16: pack_bf16(m, k0, kn, j0, jn, panel); break;
      case LB_F64: pack_f64(m, k0, kn, j0, jn, panel); break;
      case LB_I8: pack_i8(m, k0, kn, j0, jn, panel); break;
      case LB_I16: pack_i16(m, k0, kn, j0, jn, panel); break;
      case LB_U16: pack_u16(m, k0, kn, j0, jn, panel); break;
      case LB_I32:
      case LB_U32: pack_u32(m, k0, kn, j0, jn, panel); break;
      case LB_I64:
      case LB_U64: pack_u64(m, k0, kn, j0, jn, panel); break;
      default: pack_u8(m, k0, kn, j0, jn, panel); break;
    }
  }
  if (m->zero_point) subtract_zero_point(m, kn, j0, jn, panel);
}

// -- the accumulator dtype ---------------------------------------------------

lb_dtype lb_work_dtype(lb_dtype t) {
  switch (t) {
    case LB_F32:
    case LB_F16:
    case LB_BF16: return LB_F32;
    case LB_F64: return LB_F64;
    case LB_I64:
    case LB_U64: return LB_I64;
    default: return LB_I32;
  }
}

lb_status lb_work_out(lb_reference_call *c, int i, lb_dtype work,
                      lb_tensor *out) {
  const lb_tensor *t = &c->out[i];
  if (t->dtype != work)
    return lb_reference_temp(c, work, t->rank, t->dims, out);
  *out = *t;
  return LB_OK;
}

lb_status lb_work_out_or_temp(lb_reference_call *c, int i, lb_dtype work,
                              int rank, const int64_t *dims, lb_tensor *out) {
  if (lb_reference_wanted(c, i)) return lb_work_out(c, i, work, out);
  return lb_reference_temp(c, work, rank, dims, out);
}

lb_status lb_work_done(lb_reference_call *c, int i, const lb_tensor *work) {
  if (!lb_reference_wanted(c, i)) return LB_OK;
  if (work->data != c->out[i].data) lb_convert(c->pool, work, &c->out[i]);
  return LB_OK;
}

bool lb_reference_given(const lb_reference_call *c, int i) {
  return i < (int)c->node->n_in && c->in[i].dtype != LB_NONE;
}

bool lb_reference_wanted(const lb_reference_call *c, int i) {
  return i < (int)c->node->n_out && c->out[i].dtype != LB_NONE;
}
