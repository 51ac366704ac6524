// toolchain/memory_test.c -- Memory accesses touch only lanes that are on, at
// the edge of mapped memory.
#include "toolchain/machine.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { PAGE = 4096 };

// A page between two guard pages.
typedef struct guarded {
  char *all;
  char *page;
} guarded;

static guarded guarded_new(void) {
  guarded g;
  g.all = mmap(NULL, 3 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(g.all != MAP_FAILED);
  g.page = g.all + PAGE;
  assert_int_equal(mprotect(g.page, PAGE, PROT_READ | PROT_WRITE), 0);
  return g;
}

static void guarded_free(guarded *g) { munmap(g->all, 3 * PAGE); }

// out[0 .. n) = in[0 .. n), with the remaining lanes off
static lb_kernel masked_copy(lb_dtype t, uint32_t lanes) {
  lb_kbuilder b;
  lb_kernel k;
  lb_kbuild_init(&b, "copy");
  lb_kval in = lb_k_param(&b, lb_kt_ptr(t, LB_K_READONLY));
  lb_kval out = lb_k_param(&b, lb_kt_ptr(t, 0));
  lb_kval mask = lb_k_tail(&b, lb_k_param(&b, lb_kt(LB_I64, 1)), lanes);
  lb_k_store_masked(
      &b, out, lb_k_load_masked(&b, in, lanes, 0, mask, LB_K_NONE), 0, mask);
  assert_ok(lb_kernel_finish(&b, &k));
  return k;
}

static void copy_at_the_edge(machine *m, lb_dtype t, uint32_t lanes) {
  lb_kernel k = masked_copy(t, lanes);
  machine_fn *fn = machine_load(m, &k);
  guarded in = guarded_new(), out = guarded_new();
  for (uint32_t n = 0; n <= lanes; n++) {
    size_t bytes = n * lb_dtype_size(t);
    char *from = in.page + PAGE - bytes, *to = out.page + PAGE - bytes;
    memset(out.page, 0x55, PAGE);
    for (size_t i = 0; i < bytes; i++)
      from[i] = t == LB_BOOL ? (char)(i % 3 == 0) : (char)(i * 37 + 1);
    lb_karg args[] = {lb_karg_mem(from, bytes), lb_karg_mem(to, bytes),
                      lb_karg_i64(n)};
    machine_call(fn, args, 3);
    assert_memory_equal(from, to, bytes);
    if (bytes < PAGE) assert_int_equal(to[-1], 0x55);
  }
  lb_karg none[] = {lb_karg_mem(in.all, 1), lb_karg_mem(in.all, 1),
                    lb_karg_i64(-5)};
  machine_call(fn, none, 3);
  guarded_free(&in), guarded_free(&out);
  lb_kernel_fini(&k);
}

static void check_masks(machine *m) {
  static const lb_dtype dtypes[] = {LB_F32, LB_F64, LB_F16, LB_U8, LB_BOOL};
  static const uint32_t lanes[] = {1, 5, 8, 16, 32};
  for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
    for (size_t j = 0; j < sizeof lanes / sizeof *lanes; j++)
      copy_at_the_edge(m, dtypes[i], lanes[j]);
}

static void masked_off_lanes_are_not_accessed(void **state) {
  (void)state;
  each_machine(check_masks);
}

// -- gathers and scatters ----------------------------------------------------

// to[index[i] + 1] = from[index[i]] where mask; negative indices too
static void check_gather(machine *m, lb_dtype t, lb_dtype index) {
  lb_kbuilder b;
  lb_kernel k;
  lb_kbuild_init(&b, "gather");
  lb_kval from = lb_k_param(&b, lb_kt_ptr(t, LB_K_READONLY));
  lb_kval to = lb_k_param(&b, lb_kt_ptr(t, 0));
  lb_kval indices = lb_k_param(&b, lb_kt_ptr(index, 0));
  lb_kval bools = lb_k_param(&b, lb_kt_ptr(LB_BOOL, 0));
  lb_kval at = lb_k_load(&b, indices, 16, 0);
  lb_kval mask = lb_k_load(&b, bools, 16, 0);
  lb_kval mid = lb_k_i64(&b, 20);
  lb_kval other = lb_k_num(&b, lb_kt(t, 16), 1);
  lb_kval v = lb_k_gather(&b, lb_k_ptr(&b, from, mid, 0), at, mask, other);
  lb_kval behind = lb_k_add(&b, at, lb_k_like(&b, at, 1));
  lb_k_scatter(&b, lb_k_ptr(&b, to, mid, 0), behind, v, mask);
  v = lb_k_gather(&b, lb_k_ptr(&b, from, mid, 0), at, LB_K_NONE, LB_K_NONE);
  lb_k_store(&b, lb_k_ptr(&b, to, lb_k_i64(&b, 40), 0), v, 0);
  assert_ok(lb_kernel_finish(&b, &k));
  uint8_t source[64 * 8], want[64 * 8] = {0}, got[64 * 8] = {0}, on[16];
  int32_t narrow[16];
  int64_t wide[16];
  for (int i = 0; i < 64 * 8; i++) source[i] = (uint8_t)(i * 41 % 63);
  for (int i = 0; i < 16; i++) {
    narrow[i] = i * 7 % 13 - 6;  // some of them equal
    wide[i] = narrow[i];
    on[i] = (uint8_t)(i % 4 * 64);  // true unless 0
  }
  lb_karg args[] = {lb_karg_mem(source, sizeof source),
                    lb_karg_mem(want, sizeof want),
                    index == LB_I32 ? lb_karg_mem(narrow, sizeof narrow)
                                    : lb_karg_mem(wide, sizeof wide),
                    lb_karg_mem(on, sizeof on)};
  assert_ok(run_kernel(&k, args, 4, 1));
  args[1] = lb_karg_mem(got, sizeof got);
  machine_call(machine_load(m, &k), args, 4);
  assert_memory_equal(got, want, sizeof got);
  lb_kernel_fini(&k);
}

static void check_gathers(machine *m) {
  static const lb_dtype dtypes[] = {LB_F32, LB_F64, LB_BF16, LB_I8, LB_BOOL};
  for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
    check_gather(m, dtypes[i], LB_I32);
    check_gather(m, dtypes[i], LB_I64);
  }
}

static void gathers_and_scatters_equal_the_interpreter(void **state) {
  (void)state;
  each_machine(check_gathers);
}

// -- local memory, streams, parameters ---------------------------------------

// Reverses 16 numbers through local memory, with non-temporal stores of the
// result; scales by parameters of small dtypes.
static void check_reverse(machine *m) {
  lb_kbuilder b;
  lb_kernel k;
  lb_kbuild_init(&b, "reverse");
  lb_kval p = lb_k_param(&b, lb_kt_ptr(LB_F32, 0));
  lb_kval scale = lb_k_param(&b, lb_kt(LB_F16, 1));
  lb_kval add = lb_k_param(&b, lb_kt(LB_I8, 1));
  lb_kval really = lb_k_param(&b, lb_kt(LB_BOOL, 1));
  lb_kval local = lb_k_local(&b, LB_F32, 16);
  lb_kval i = lb_k_loop(&b, lb_k_i64(&b, 0), lb_k_i64(&b, 16), lb_k_i64(&b, 1));
  lb_kval x = lb_k_load(&b, lb_k_ptr(&b, p, i, 0), 1, 0);
  x = lb_k_fma(&b, x, lb_k_cast(&b, scale, LB_F32), lb_k_cast(&b, add, LB_F32));
  lb_k_store(&b, lb_k_ptr(&b, local, lb_k_sub(&b, lb_k_i64(&b, 15), i), 0), x,
             0);
  lb_k_end(&b);
  lb_k_barrier(&b);
  lb_k_if(&b, really);
  lb_k_store(&b, p, lb_k_load(&b, local, 16, 0), 64);
  lb_k_stream(&b);
  lb_k_end(&b);
  assert_ok(lb_kernel_finish(&b, &k));
  machine_fn *fn = machine_load(m, &k);
  float *v = aligned_alloc(64, 64);
  for (int n = 0; n < 16; n++) v[n] = (float)n;
  lb_karg args[] = {lb_karg_mem(v, 64), lb_karg_num(LB_F16, 0.5),
                    lb_karg_num(LB_I8, -3), lb_karg_num(LB_BOOL, 0)};
  args[1].bits |= UINT64_C(0xabcd) << 32;  // the upper bytes are ignored
  machine_call(fn, args, 4);
  assert_true(v[1] == 1);
  args[3].bits = 0x80;
  machine_call(fn, args, 4);
  for (int n = 0; n < 16; n++) assert_true(v[n] == (float)(15 - n) * 0.5f - 3);
  free(v);
  lb_kernel_fini(&k);
}

static void local_memory_streaming_and_small_parameters_work(void **state) {
  (void)state;
  each_machine(check_reverse);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(masked_off_lanes_are_not_accessed),
      cmocka_unit_test(gathers_and_scatters_equal_the_interpreter),
      cmocka_unit_test(local_memory_streaming_and_small_parameters_work),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
