// device/reference/gemm.h -- the GEMM that all contractions use.
//
// c[i][j] = sum over k of a[i][k] * b[k][j]: products are added in order of k,
// and the first one starts the sum; k == 0 gives zeros. A is read in place with
// any strides. B is never copied as a whole: a function packs one panel of it
// at a time and may convert elements or gather windows while doing so.
#ifndef LB_DEVICE_REFERENCE_GEMM_H
#define LB_DEVICE_REFERENCE_GEMM_H

#include "base/pool.h"
#include "device/reference/reference.h"

#define LB_GEMM_COLS 32    // columns of a panel
#define LB_GEMM_DEPTH 128  // maximum rows of a panel

// Writes b[k0..k0+kn)[j0..j0+jn) to panel[kn][LB_GEMM_COLS], in the accumulator
// dtype. Columns from jn on may hold any finite value.
typedef void lb_gemm_pack(const void *b, int64_t k0, int64_t kn, int64_t j0,
                          int64_t jn, void *panel);

typedef struct lb_gemm {
  // The dtype of A, C and the accumulators: F32, F64, I32 or I64 (wrapping).
  lb_dtype dtype;
  int64_t m, n, k;
  const void *a;  // borrowed
  int64_t a_row, a_col;
  lb_gemm_pack *pack;
  const void *b;  // borrowed; passed to pack
  void *c;        // borrowed; column stride 1
  int64_t c_row;
} lb_gemm;

void lb_gemm_run(const lb_gemm *g);  // on the calling thread only

// Runs `count` GEMMs of equal dims on the pool. get(user, i, g) completes *g, a
// copy of `like`, for GEMM i; any thread may call it.
typedef void lb_gemm_get(const void *user, int64_t i, lb_gemm *g);
void lb_gemm_batch(lb_pool *pool, const lb_gemm *like, int64_t count,
                   lb_gemm_get *get, const void *user);

bool lb_reference_given(const lb_reference_call *c,
                        int i);  // input i is present
bool lb_reference_wanted(const lb_reference_call *c,
                         int i);  // output i is wanted

// A strided B. dtype is any float for float accumulators, any integer for
// integer accumulators; the zero point (NULL: none) is subtracted per column.
typedef struct lb_gemm_matrix {
  lb_dtype dtype, acc;
  const void *data;  // borrowed
  int64_t row, col;
  const int32_t *zero_point;
  int64_t zero_point_col;
} lb_gemm_matrix;
lb_gemm_pack lb_gemm_pack_matrix;

// -- the accumulator dtype ---------------------------------------------------

// Returns F32 for float16, bfloat16 and float32, F64 for float64, I64 for
// 64-bit integers, I32 for other integers and bool.
lb_dtype lb_work_dtype(lb_dtype t);

// Returns where to compute output i: the output itself if its dtype is `work`,
// else a temporary of its dims that lb_work_done converts.
lb_status lb_work_out(lb_reference_call *c, int i, lb_dtype work,
                      lb_tensor *out);
// The same, but an unwanted output becomes a temporary of these dims.
lb_status lb_work_out_or_temp(lb_reference_call *c, int i, lb_dtype work,
                              int rank, const int64_t *dims, lb_tensor *out);
lb_status lb_work_done(lb_reference_call *c, int i, const lb_tensor *work);

#endif
