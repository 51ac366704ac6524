// session/microbatch_test.c -- micro-batches give the results of the whole
// batch.
#include "session/microbatch.h"

#include "base/clock.h"
#include "graph/text_test.h"

#define ITEM 12  // elements of x per item

// Normalised rows, a matmul, a token in front of each item, and items that are
// returned as three rows each.
static const char model[] =
    "in x float32[n,3,4]\n"
    "in z float32[3,4]\n"
    "const w float32[4,4] 1 2 3 -4 5 6 -7 8 9\n"
    "const t float32[1,1,4] 0.5\n"
    "a = Add(x, z)\n"
    "p = MatMul(a, w)\n"
    "y = Softmax(p) {axis=-1}\n"
    "s = Shape(x)\n"
    "b = Slice(s, [0], [1])\n"
    "k = Concat(b, [1], [4]) {axis=0}\n"
    "e = Expand(t, k)\n"
    "c = Concat(e, a) {axis=1}\n"
    "d = ReduceSum(c, [1]) {keepdims=0}\n"
    "r = Reshape(p, [-1,4])\n"
    "out y d r\n";

typedef struct bed {
  lb_graph *g;
  lb_pool *pool;
  lb_session *s;
} bed;

static bed make(int threads, size_t l2_bytes, size_t limit) {
  bed b = {.g = graph_of(model)};
  must(lb_pool_new(threads, &b.pool));
  must(lb_session_new(
      b.g,
      &(lb_session_options){
          .pool = b.pool, .l2_bytes = l2_bytes, .memory_limit = limit},
      &b.s));
  return b;
}

static void drop(bed *b) {
  lb_session_free(b->s);
  lb_pool_free(b->pool);
  lb_graph_free(b->g);
}

// Elements also depend on the number of items, so that memory with the results
// of another batch does not look right.
static void inputs(int64_t items, float *x, float *z, lb_tensor *in) {
  for (int64_t i = 0; i < items * ITEM; i++)
    x[i] = (float)((i * 7 + items) % 11) - 5;
  for (int i = 0; i < ITEM; i++) z[i] = (float)i / 4;
  in[0] =
      (lb_tensor){.dtype = LB_F32, .rank = 3, .dims = {items, 3, 4}, .data = x};
  in[1] = (lb_tensor){.dtype = LB_F32, .rank = 2, .dims = {3, 4}, .data = z};
  for (int i = 0; i < 2; i++) lb_tensor_dense(&in[i]);
}

static void run(const bed *b, int64_t items, lb_output *out) {
  static float x[64 * ITEM], z[ITEM];
  lb_tensor in[2];
  inputs(items, x, z, in);
  for (int i = 0; i < 3; i++) out[i] = (lb_output){.wanted = true};
  must(lb_session_run(b->s, in, out));
}

static void free_all(const bed *b, lb_output *out) {
  for (int i = 0; i < 3; i++) lb_output_free(b->s, &out[i]);
}

static void expect_same(const lb_tensor *got, const lb_tensor *want) {
  assert_int_equal(got->rank, want->rank);
  assert_memory_equal(got->dims, want->dims,
                      (size_t)got->rank * sizeof *got->dims);
  assert_true(lb_tensor_is_dense(got));
  if (lb_tensor_bytes(got))
    assert_memory_equal(got->data, want->data, lb_tensor_bytes(got));
}

static void compare_batches(const bed *whole, const bed *split, int64_t most) {
  for (int64_t items = 0; items <= most; items++) {
    lb_output want[3], got[3];
    run(whole, items, want);
    run(split, items, got);
    for (int i = 0; i < 3; i++) expect_same(&got[i].tensor, &want[i].tensor);
    free_all(whole, want);
    free_all(split, got);
  }
}

static void microbatches_give_the_results_of_the_whole(void **state) {
  (void)state;
  static const int threads[] = {1, 2, 3, 4, 5, 7};
  bed whole = make(1, 0, 0);
  for (size_t i = 0; i < sizeof threads / sizeof *threads; i++)
    for (size_t bytes = 1; bytes < 5000; bytes = bytes * 5 + 300) {
      bed split = make(threads[i], bytes, 0);
      compare_batches(&whole, &split, 40);
      drop(&split);
    }
  drop(&whole);
}

// The items of micro-batch i; each row of x is an item.
static void microbatch_bounds(const bed *b, const lb_tensor *in,
                              const lb_microbatches *split, int64_t i,
                              int64_t *begin, int64_t *end) {
  lb_tensor part[2];
  lb_microbatch_inputs(b->s, in, split, i, part);
  assert_ptr_equal(part[1].data, in[1].data);
  int64_t bytes = (char *)part[0].data - (char *)in[0].data;
  assert_int_equal(bytes % (int64_t)(ITEM * sizeof(float)), 0);
  *begin = bytes / (int64_t)(ITEM * sizeof(float));
  *end = *begin + part[0].dims[0];
}

// Micro-batches follow each other without gap or overlap, none is empty, and
// those of a worker, or of the shared ones, differ by at most one item.
static void expect_partition(const bed *b, const lb_tensor *in,
                             const lb_microbatches *split) {
  int64_t at = 0, own = split->workers * split->per_worker;
  int64_t lane = split->workers ? split->items / split->workers : 0;
  for (int64_t i = 0; i < lb_microbatches_count(split); i++) {
    int64_t begin, end;
    bool on_worker = i < own;
    int64_t items = on_worker ? lane : split->items - split->workers * lane;
    int64_t parts = on_worker ? split->per_worker : split->shared;
    microbatch_bounds(b, in, split, i, &begin, &end);
    assert_int_equal(begin, at);
    assert_in_range(end - begin, 1, (items + parts - 1) / parts);
    assert_true(end - begin >= items / parts);
    if (on_worker) assert_true(begin / lane == (end - 1) / lane);
    at = end;
  }
  assert_int_equal(at, split->items);
}

static void every_item_is_in_one_microbatch(void **state) {
  (void)state;
  static const int threads[] = {1, 2, 3, 5, 7};
  static const lb_output wanted[3] = {
      {.wanted = true}, {.wanted = true}, {.wanted = true}};
  static float x[64 * ITEM], z[ITEM];
  bool some_shared = false;
  for (size_t k = 0; k < sizeof threads / sizeof *threads; k++)
    for (size_t bytes = 1; bytes < 5000; bytes = bytes * 5 + 300) {
      bed b = make(threads[k], bytes, 0);
      lb_context *c;
      must(lb_session_take_context(b.s, NULL, &c));
      for (int64_t items = 1; items <= 40; items++) {
        lb_tensor in[2];
        lb_microbatches split;
        inputs(items, x, z, in);
        must(lb_microbatch_split(b.s, c, in, wanted, &split));
        assert_int_equal(split.items, items);
        if (split.workers) assert_int_equal(split.workers, threads[k]);
        some_shared |= split.workers > 2 && split.shared > 1;
        expect_partition(&b, in, &split);
      }
      lb_session_give_context(b.s, c);
      drop(&b);
    }
  assert_true(some_shared);  // with three threads and more
}

// Strided inputs and results, with gaps between items and between rows.
static void strided_tensors_are_split_in_place(void **state) {
  (void)state;
  enum { ITEMS = 7, FAR = 40, ROW = 6 };
  static float x[64 * ITEM], z[ITEM], apart[ITEMS * FAR], y[ITEMS * FAR],
      r[ITEMS * 3 * ROW];
  const int64_t y_strides[] = {FAR, ROW, 1}, r_strides[] = {ROW, 1};
  lb_tensor in[2];
  lb_output want[3];
  bed whole = make(1, 0, 0);
  run(&whole, ITEMS, want);
  inputs(ITEMS, x, z, in);
  for (int i = 0; i < ITEMS * ITEM; i++)
    apart[i / ITEM * FAR + i % ITEM / 4 * ROW + i % 4] = x[i];
  in[0].data = apart;
  memcpy(in[0].strides, y_strides, sizeof y_strides);
  for (int threads = 1; threads < 4; threads++) {
    bed split = make(threads, 1, 0);
    lb_output got[3] = {{.wanted = true,
                         .data = y,
                         .cap = sizeof y,
                         .rank = 3,
                         .strides = y_strides},
                        {.wanted = true},
                        {.wanted = true,
                         .data = r,
                         .cap = sizeof r,
                         .rank = 2,
                         .strides = r_strides}};
    must(lb_session_run(split.s, in, got));
    const float *wy = want[0].data, *wr = want[2].data;
    for (int i = 0; i < ITEMS * ITEM; i++) {
      assert_true(y[i / ITEM * FAR + i % ITEM / 4 * ROW + i % 4] == wy[i]);
      assert_true(r[i / 4 * ROW + i % 4] == wr[i]);
    }
    assert_memory_equal(got[1].data, want[1].data, ITEMS * 4 * sizeof *x);
    lb_output_free(split.s, &got[1]);
    drop(&split);
  }
  free_all(&whole, want);
  drop(&whole);
}

static lb_session_stats stats_of(const bed *b) {
  lb_session_stats stats;
  lb_session_stats_get(b->s, &stats);
  return stats;
}

static void batches_of_all_sizes_share_plans_and_memory(void **state) {
  (void)state;
  bed b = make(1, 1, 0);
  lb_output out[3];
  run(&b, 2, out);
  free_all(&b, out);
  lb_session_stats first = stats_of(&b);
  for (int64_t items = 3; items < 60; items++) {
    run(&b, items, out);
    free_all(&b, out);
  }
  assert_int_equal(first.plans_built, 1);
  assert_int_equal(stats_of(&b).plans_built, 1);
  assert_int_equal(stats_of(&b).arena_bytes, first.arena_bytes);
  drop(&b);
}

static void plans_made_ahead_are_those_of_runs(void **state) {
  (void)state;
  for (int threads = 1; threads < 4; threads++) {
    bed b = make(threads, 600, 0);
    static float x[64 * ITEM], z[ITEM];
    lb_tensor in[2];
    lb_plan_counts counts;
    lb_output out[3];
    inputs(11, x, z, in);
    in[0].data = in[1].data = NULL;
    must(lb_session_plan(b.s, in, NULL, &counts));
    uint64_t built = stats_of(&b).plans_built;
    run(&b, 11, out);
    free_all(&b, out);
    assert_int_equal(stats_of(&b).plans_built, built);
    drop(&b);
  }
}

static void results_are_written_to_given_memory(void **state) {
  (void)state;
  bed b = make(2, 1, 0);
  static float x[64 * ITEM], z[ITEM], y[5 * ITEM], d[5 * 4];
  lb_tensor in[2];
  inputs(5, x, z, in);
  lb_output out[3] = {{.wanted = true, .data = y, .cap = sizeof y},
                      {.wanted = true, .data = d, .cap = sizeof d}};
  must(lb_session_run(b.s, in, out));
  assert_ptr_equal(out[0].tensor.data, y);
  assert_false(out[0].owned);
  float sum = 0;
  for (int i = 0; i < 4; i++) sum += y[4 * ITEM + 8 + i];
  assert_float_equal(sum, 1, 1e-5);
  out[0].cap--;
  lb_status st = lb_session_run(b.s, in, out);
  assert_int_equal(lb_status_code(st), LB_INVALID);
  lb_status_drop(st);
  drop(&b);
}

static void the_memory_limit_applies_to_microbatches(void **state) {
  (void)state;
  // All results of 32 items, and one micro-batch; not the values between all
  // steps.
  size_t results = 32 * (2 * ITEM + 4) * sizeof(float);
  bed whole = make(3, 0, results + 1500), split = make(3, 1, results + 1500);
  static float x[64 * ITEM], z[ITEM];
  lb_tensor in[2];
  inputs(32, x, z, in);
  for (int i = 0; i < 2; i++) {
    bed *b = i ? &split : &whole;
    lb_output out[3] = {{.wanted = true}, {.wanted = true}, {.wanted = true}};
    lb_status st = lb_session_run(b->s, in, out);
    assert_int_equal(lb_status_code(st), i ? LB_CODE_OK : LB_OOM);
    lb_status_drop(st);
    free_all(b, out);
    drop(b);
  }
}

static void a_cancelled_run_leaves_nothing_allocated(void **state) {
  (void)state;
  bed b = make(3, 1, 0);
  static float x[64 * ITEM], z[ITEM];
  lb_tensor in[2];
  atomic_int cancelled = 1;
  inputs(10, x, z, in);
  lb_run_limits limits = {.start_ns = lb_clock_ns(), .cancelled = &cancelled};
  lb_output out[3] = {{.wanted = true}, {.wanted = true}, {.wanted = true}};
  lb_status st =
      lb_session_run_with(b.s, in, out, &(lb_run_how){.limits = &limits});
  assert_int_equal(lb_status_code(st), LB_CANCELLED);
  assert_int_equal(limits.found, LB_LIMITS_CANCELLED);
  lb_status_drop(st);
  for (int i = 0; i < 3; i++) assert_null(out[i].data);
  run(&b, 10, out);
  free_all(&b, out);
  drop(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(microbatches_give_the_results_of_the_whole),
      cmocka_unit_test(every_item_is_in_one_microbatch),
      cmocka_unit_test(strided_tensors_are_split_in_place),
      cmocka_unit_test(batches_of_all_sizes_share_plans_and_memory),
      cmocka_unit_test(plans_made_ahead_are_those_of_runs),
      cmocka_unit_test(results_are_written_to_given_memory),
      cmocka_unit_test(the_memory_limit_applies_to_microbatches),
      cmocka_unit_test(a_cancelled_run_leaves_nothing_allocated),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
