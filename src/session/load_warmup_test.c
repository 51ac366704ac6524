// session/load_warmup_test.c -- a load warm-up leaves no trace but wanted
// kernels, takes little time and memory, and may fail.
#include "session/load_warmup.h"

#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/undertsan.h"
#include "compile/slot_profile.h"
#include "device/cpu/device.h"
#include "graph/text_test.h"

#define MS INT64_C(1000000)

typedef struct bed {
  lb_graph *g;
  lb_cpu_device cpu;
  lb_slots slots;
  lb_pool *pool;
  lb_events *events;
  lb_hub hub;
  lb_seat *seat;
  atomic_int heard;
  lb_session *s;
} bed;

static void hear(void *user, const lb_event *e, const char *what) {
  (void)e, (void)what;
  atomic_fetch_add((atomic_int *)user, 1);
}

static void open_bed(bed *b, const char *model, size_t limit) {
  *b = (bed){.g = graph_of(model)};
  lb_cpu_device_init(&b->cpu, NULL, false, NULL);
  must(lb_slots_init(&b->slots, 8, &b->cpu.base));
  must(lb_pool_new(2, &b->pool));
  must(lb_events_new(hear, &b->heard, &b->events));
  must(lb_hub_join(&b->hub, &(lb_member){.events = b->events}, &b->seat));
  b->slots.hub = &b->hub;
  must(lb_session_new(b->g,
                      &(lb_session_options){.pool = b->pool,
                                            .slots = &b->slots,
                                            .user = lb_seat_bit(b->seat),
                                            .l2_bytes = 1000,
                                            .memory_limit = limit,
                                            .events = b->events},
                      &b->s));
}

static void close_bed(bed *b) {
  lb_session_free(b->s);
  lb_hub_leave(&b->hub, b->seat);
  lb_hub_fini(&b->hub);
  lb_events_free(b->events);
  lb_pool_free(b->pool);
  lb_slots_fini(&b->slots);
  lb_graph_free(b->g);
}

static lb_session_stats stats_of(const bed *b) {
  lb_session_stats stats;
  lb_session_stats_get(b->s, &stats);
  return stats;
}

static int heard(bed *b) {
  lb_events_flush(b->events);
  return atomic_load(&b->heard);
}

// Except that kernels that serve all requests are wanted, and that is emitted.
static void has_no_trace(bed *b) {
  lb_session_stats stats = stats_of(b);
  lb_slots_stats slots;
  lb_slots_count(&b->slots, &slots);
  assert_int_equal(stats.runs, 0);
  assert_int_equal(stats.plans + stats.plans_built + stats.plans_evicted, 0);
  assert_int_equal(stats.plan_bytes, 0);
  assert_int_equal(slots.hits + slots.misses, 0);
  assert_int_equal(heard(b), lb_slots_wanted(&b->slots, LB_HUB_ALL));
  assert_int_equal(atomic_load(&b->s->item_bytes), 0);
  assert_int_equal(atomic_load(&b->s->item_values), 0);
  assert_false(b->s->options.quiet);
  for (int i = 0; i < LB_IDLE_CONTEXTS; i++)
    assert_false(b->s->idle[i] && b->s->idle[i]->workspace.in_warmup);
  assert_ptr_equal(b->s->options.events, b->events);
  for (size_t i = 0; lb_slots_at(&b->slots, i); i++)
    assert_null(
        lb_slot_profile_of(lb_slots_at(&b->slots, i)));  // nothing was reported
}

static void open_warmed(bed *b, const char *model, size_t limit) {
  open_bed(b, model, limit);
  lb_session_load_warmup(b->s, 10000 * MS);
  has_no_trace(b);
}

static size_t count_slots(bed *b) {
  lb_slots_stats slots;
  lb_slots_count(&b->slots, &slots);
  return slots.slots;
}

// -- guesses -----------------------------------------------------------------

static void dims_of_one_name_get_one_size(void **state) {
  (void)state;
  bed b;
  open_bed(&b,
           "in x float32[n,3,h,w]\n"
           "in y int64[h,n]\n"
           "in z float32[2,?,k]\n"
           "a = Relu(x)\n"
           "out a y z\n",
           0);
  lb_tensor in[3];
  lb_open open;
  assert_true(lb_load_warmup_guess(b.s, (lb_guess){1, 32}, in, &open));
  assert_int_equal(open, LB_OPEN_OTHERS);
  assert_memory_equal(in[0].dims, ((int64_t[]){1, 3, 32, 32}), 32);
  assert_memory_equal(in[1].dims, ((int64_t[]){32, 1}), 16);
  assert_memory_equal(in[2].dims, ((int64_t[]){2, 1, 32}), 24);
  assert_int_equal(in[1].dtype, LB_I64);
  close_bed(&b);
}

static void dims_may_all_be_known(void **state) {
  (void)state;
  bed b;
  open_bed(&b, "in x float32[4,5]\nout x\n", 0);
  lb_tensor x;
  lb_open none;
  assert_true(lb_load_warmup_guess(b.s, (lb_guess){1, 32}, &x, &none));
  assert_int_equal(none, LB_OPEN_NONE);
  close_bed(&b);
}

static void only_the_first_dim_may_be_open(void **state) {
  (void)state;
  bed b;
  open_bed(&b, "in x float32[n,5]\nin y float32[2]\nout x y\n", 0);
  lb_tensor in[2];
  lb_open open;
  assert_true(lb_load_warmup_guess(b.s, (lb_guess){1, 32}, in, &open));
  assert_int_equal(open, LB_OPEN_FIRST);
  assert_memory_equal(in[0].dims, ((int64_t[]){1, 5}), 16);
  close_bed(&b);
}

// -- traces ------------------------------------------------------------------

static const char mixed[] =
    "in x float32[n,m,4]\n"
    "const w float32[4,4] 1 2 3 -4 5 6 -7 8 9\n"
    "p = MatMul(x, w)\n"
    "y = Softmax(p) {axis=-1}\n"
    "r = RandomUniformLike(x)\n"
    "z = NonZero(x)\n"
    "t = Transpose(z)\n"
    "out y r t\n";

static void run_mixed(bed *b, int64_t n, int64_t m, lb_output *out) {
  static float x[4000];
  for (int i = 0; i < 4000; i++) x[i] = (float)(i % 13) - 6;
  lb_tensor in = {.dtype = LB_F32, .rank = 3, .dims = {n, m, 4}, .data = x};
  lb_tensor_dense(&in);
  for (int i = 0; i < 3; i++) out[i] = (lb_output){.wanted = true};
  must(lb_session_run(b->s, &in, out));
}

static void runs_are_the_same(bed *a, bed *b, int64_t n, int64_t m) {
  lb_output x[3], y[3];
  run_mixed(a, n, m, x);
  run_mixed(b, n, m, y);
  for (int i = 0; i < 3; i++) {
    size_t bytes = lb_tensor_bytes(&x[i].tensor);
    assert_int_equal(bytes, lb_tensor_bytes(&y[i].tensor));
    if (bytes) assert_memory_equal(x[i].data, y[i].data, bytes);
    lb_output_free(a->s, &x[i]);
    lb_output_free(b->s, &y[i]);
  }
  assert_int_equal(heard(a), heard(b));
  assert_int_equal(lb_slots_wanted(&a->slots, LB_HUB_ALL),
                   lb_slots_wanted(&b->slots, LB_HUB_ALL));
  lb_session_stats s = stats_of(a), t = stats_of(b);
  assert_int_equal(s.plans_built, t.plans_built);
  assert_int_equal(s.runs, t.runs);
  lb_slots_stats p, q;
  lb_slots_count(&a->slots, &p);
  lb_slots_count(&b->slots, &q);
  assert_int_equal(p.hits, q.hits);
  assert_int_equal(p.misses, q.misses);
}

static void a_load_warmup_leaves_no_trace(void **state) {
  (void)state;
  bed a, b;
  open_bed(&a, mixed, 0);
  open_bed(&b, mixed, 0);
  lb_session_load_warmup(a.s, 100 * MS);
  has_no_trace(&a);
  assert_true(count_slots(&a) > 0);
  static const int64_t shapes[][2] = {{1, 32}, {2, 3},  {1, 32}, {1, 0},
                                      {0, 5},  {12, 7}, {1, 256}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    runs_are_the_same(&a, &b, shapes[i][0], shapes[i][1]);
  close_bed(&a);
  close_bed(&b);
}

// The first plan finds what it needs: it adds no slots that a warm-up at the
// same shape has added.
static void plans_find_slots_added_by_the_warmup(void **state) {
  (void)state;
  bed b;
  open_bed(&b, mixed, 0);
  lb_session_load_warmup(b.s, 100 * MS);
  size_t slots = count_slots(&b);
  lb_output out[3];
  run_mixed(&b, 1, 32, out);
  for (int i = 0; i < 3; i++) lb_output_free(b.s, &out[i]);
  for (size_t i = 0; i < slots; i++)
    if (atomic_load(&lb_slots_at(&b.slots, i)->planned)) slots = i;
  assert_true(slots < count_slots(&b));  // one of them was used for planning
  close_bed(&b);
}

// -- kernels that are wanted -------------------------------------------------

static size_t count_wanted(bed *b) {
  return lb_slots_wanted(&b->slots, LB_HUB_ALL);
}

// Counts wanted slots of a form, and how many of these have a fact of that
// kind.
static size_t count_form(bed *b, lb_form form, lb_sfact_kind kind,
                         size_t *with) {
  size_t n = *with = 0;
  const lb_slot *slot;
  for (size_t i = 0; (slot = lb_slots_at(&b->slots, i)); i++) {
    if (slot->key.spec.form != form || !atomic_load(&slot->wanted)) continue;
    n++;
    *with += lb_facts_get(&slot->key.facts, kind, LB_DIM_COLS, -1) >= 0;
  }
  return n;
}

static void run_once(bed *b, lb_tensor *in, int64_t n, int64_t m) {
  static float x[4096];
  *in = (lb_tensor){.dtype = LB_F32, .rank = 2, .dims = {n, m}, .data = x};
  lb_tensor_dense(in);
  lb_output out = {.wanted = true};
  must(lb_session_run(b->s, in, &out));
  lb_output_free(b->s, &out);
}

// The columns are those of weights, so only rows are open: no plan wants
// anything that loading did not.
static void kernels_decided_by_weights_are_wanted_at_load(void **state) {
  (void)state;
  bed b;
  lb_tensor in;
  size_t with, n;
  open_warmed(&b,
              "in x float32[n,24]\n"
              "const w float32[24,64] 0.5\n"
              "p = MatMul(x, w)\n"
              "y = Softmax(p) {axis=-1}\n"
              "z = Relu(y)\n"
              "out z\n",
              0);
  size_t wanted = count_wanted(&b);
  n = count_form(&b, LB_FORM_MATMUL, LB_ASSUME_MULTIPLE, &with);
  assert_true(n > 1);  // tiles for other rows
  assert_int_equal(with, n);
  assert_int_equal(
      count_form(&b, LB_FORM_ROW_REDUCE, LB_ASSUME_MULTIPLE, &with), 1);
  assert_int_equal(with, 1);
  for (int64_t rows = 1; rows < 20; rows++) run_once(&b, &in, rows, 24);
  assert_int_equal(count_wanted(&b), wanted);
  close_bed(&b);
}

// Columns that a request decides: wanted kernels assume nothing about them, and
// so do not depend on the guess.
static void request_decided_dims_get_kernels_for_any_size(void **state) {
  (void)state;
  bed b;
  lb_tensor in;
  size_t with;
  open_warmed(&b,
              "in x float32[3,m]\n"
              "const w float32[5,3] 0.5\n"
              "y = Softmax(x) {axis=-1}\n"
              "p = MatMul(w, y)\n"
              "out p\n",
              0);
  assert_int_equal(
      count_form(&b, LB_FORM_ROW_REDUCE, LB_ASSUME_MULTIPLE, &with), 1);
  assert_int_equal(with, 0);
  assert_true(count_form(&b, LB_FORM_MATMUL, LB_ASSUME_MULTIPLE, &with) > 1);
  assert_int_equal(with, 0);
  count_form(&b, LB_FORM_MATMUL, LB_ASSUME_AT_MOST, &with);
  assert_int_equal(with, 0);
  size_t wanted = count_wanted(&b);
  run_once(&b, &in, 3, 61);  // a prime
  assert_int_equal(count_wanted(&b), wanted);
  run_once(&b, &in, 3, 64);
  assert_true(count_wanted(&b) > wanted);
  close_bed(&b);
}

// The guess of 1 makes a transposed operand B contiguous, which no other size
// does: kernels of that spec are not wanted.
static void a_guess_of_one_column_wants_no_kernels(void **state) {
  (void)state;
  bed b;
  size_t contiguous = 0;
  open_warmed(&b,
              "in x float32[n,64]\n"
              "in w float32[m,64]\n"
              "y = Gemm(x, w) {transB=1}\n"
              "out y\n",
              0);
  for (size_t i = 0; lb_slots_at(&b.slots, i); i++) {
    const lb_slot *slot = lb_slots_at(&b.slots, i);
    contiguous += slot->wanted && slot->key.spec.in[1].layout == LB_LAYOUT_FULL;
  }
  assert_int_equal(contiguous, 0);
  close_bed(&b);
}

// No request chooses another tile.
static void a_static_model_wants_the_kernels_it_runs(void **state) {
  (void)state;
  bed b;
  lb_tensor in;
  open_warmed(&b,
              "in x float32[7,24]\n"
              "const w float32[24,32] 0.5\n"
              "p = MatMul(x, w)\n"
              "y = Softmax(p) {axis=-1}\n"
              "out y\n",
              0);
  assert_int_equal(count_wanted(&b), 2);
  for (size_t i = 0; lb_slots_at(&b.slots, i); i++) {
    const lb_slot *slot = lb_slots_at(&b.slots, i);
    assert_int_equal(atomic_load(&slot->ahead), LB_AHEAD_ALL * slot->wanted);
  }
  run_once(&b, &in, 7, 24);
  assert_int_equal(count_wanted(&b), 2);
  close_bed(&b);
}

// All of a reduced row is open, although the result is one number.
static void a_reduction_of_all_has_a_kernel_for_any_size(void **state) {
  (void)state;
  bed b;
  size_t with;
  open_warmed(&b,
              "in x float32[n,m]\n"
              "y = ReduceMax(x) {keepdims=0}\n"
              "out y\n",
              0);
  assert_int_equal(
      count_form(&b, LB_FORM_ROW_REDUCE, LB_ASSUME_MULTIPLE, &with), 1);
  assert_int_equal(with, 0);
  close_bed(&b);
}

// Where results must be deterministic and no cover of a launch is exact, there
// is no launch, and no kernel is wanted for it.
static void kernels_without_a_launch_are_not_wanted(void **state) {
  (void)state;
  bed b;
  open_bed(&b, "in x float32[n,m]\ny = Softmax(x) {axis=-1}\nout y\n", 0);
  lb_session_options o = b.s->options;
  lb_session_free(b.s);
  o.deterministic = true;
  must(lb_session_new(b.g, &o, &b.s));
  lb_session_load_warmup(b.s, 100 * MS);
  has_no_trace(&b);
  lb_tensor in;
  run_once(&b, &in, 4, 4);
  assert_int_equal(count_wanted(&b), 0);
  close_bed(&b);
}

// A model with another branch for one sampling rate: both branches are warmed
// up, the second after the first has left memory for values behind.
static void compared_contents_are_tried(void **state) {
  (void)state;
  bed b;
  open_bed(&b,
           "in x float32[n,m]\n"
           "in rate int64[]\n"
           "c = Equal(rate, 16000)\n"
           "v = If(c, x)\n"
           "then(p)\n"
           "e = Exp(p)\n"
           "h = Hardmax(e)\n"
           "q = Abs(h)\n"
           "gives q\n"
           "else(p)\n"
           "q = Relu(p)\n"
           "gives q\n"
           "out v\n",
           0);
  lb_session_load_warmup(b.s, 100 * MS);
  has_no_trace(&b);
  size_t slots = count_slots(&b);
  assert_true(slots >= 2);
  for (int64_t rate = 8000; rate <= 16000; rate += 8000) {
    float x[32] = {0};
    lb_tensor in[] = {{.dtype = LB_F32, .rank = 2, .dims = {1, 32}, .data = x},
                      {.dtype = LB_I64, .data = &rate}};
    lb_tensor_dense(&in[0]);
    lb_output out = {.wanted = true};
    must(lb_session_run(b.s, in, &out));
    assert_true(((float *)out.data)[0] == (rate == 16000));
    lb_output_free(b.s, &out);
  }
  assert_int_equal(count_slots(&b), slots);
  close_bed(&b);
}

// -- failures and bounds -----------------------------------------------------

static void a_model_that_accepts_no_guess_still_runs(void **state) {
  (void)state;
  bed b;
  open_bed(&b,
           "in x float32[n,m]\n"
           "const w float32[7,3] 1\n"
           "p = MatMul(x, w)\n"
           "out p\n",
           0);
  lb_session_load_warmup(b.s, 100 * MS);
  has_no_trace(&b);
  float x[14];
  for (int i = 0; i < 14; i++) x[i] = 1;
  lb_tensor in = {.dtype = LB_F32, .rank = 2, .dims = {2, 7}, .data = x};
  lb_tensor_dense(&in);
  lb_output out = {.wanted = true};
  must(lb_session_run(b.s, &in, &out));
  assert_true(((float *)out.data)[5] == 7);
  lb_output_free(b.s, &out);
  close_bed(&b);
}

static void without_ranks_there_is_no_guess(void **state) {
  (void)state;
  bed b;
  open_bed(&b, "in x float32[n]\na = Neg(x)\nout a\n", 0);
  b.g->main->params[0]->info.rank = -1;
  lb_session_load_warmup(b.s, 100 * MS);
  has_no_trace(&b);
  assert_int_equal(count_slots(&b), 0);
  close_bed(&b);
}

// Iterations that end only at the session's limit of ten million.
static void a_loop_without_end_is_cut_short(void **state) {
  (void)state;
  bed b;
  open_bed(&b,
           "in x float32[n]\n"
           "y = Loop(_, _, x)\n"
           "body(i, c, v)\n"
           "u = Sin(v)\n"
           "gives c u\n"
           "out y\n",
           0);
  int64_t start = lb_clock_ns();
  lb_session_load_warmup(b.s, 4 * MS);
  assert_true(lb_clock_ns() - start < 1000 * MS);
  has_no_trace(&b);
  close_bed(&b);
}

static void expensive_plans_are_not_run(void **state) {
  (void)state;
  bed b;
  open_bed(&b,
           "in x float32[1,64,64]\n"
           "in y float32[1,64,64]\n"
           "in z float32[1,1024,1024]\n"
           "p = MatMul(x, y)\n"
           "q = MatMul(z, z)\n"
           "out p q\n",
           0);
  int64_t start = lb_clock_ns();
  lb_session_load_warmup(b.s, 4 * MS);  // a second on the reference
  assert_true(lb_clock_ns() - start < 400 * MS);
  has_no_trace(&b);
  assert_true(count_slots(&b) > 0);  // but it is planned
  close_bed(&b);
}

static const char chain[] =
    "in x float32[1,n,512]\n"
    "const w float32[512,512] 0.5\n"
    "a = MatMul(x, w)\n"
    "b = MatMul(a, w)\n"
    "out b\n";

static const char wide[] =
    "in x float32[1,n,32]\n"
    "const w float32[32,16384] 0.5\n"
    "const u float32[16384,32] 0.5\n"
    "a = MatMul(x, w)\n"  // 2 MB at the first guess, 64 MB at the larger one
    "b = MatMul(a, u)\n"
    "out b\n";

static void memory_for_larger_runs_is_prefaulted(void **state) {
  (void)state;
  bed b;
  open_warmed(&b, wide, 0);
  assert_int_equal(stats_of(&b).arena_bytes, 8 << 20);
  close_bed(&b);
}

static const char one_height[] =
    "in x float32[n,h,256]\n"
    "const c float32[48,256] 1\n"
    "const w float32[256,256] 0.5\n"
    "a = Add(x, c)\n"  // 48 or 1
    "b = MatMul(a, w)\n"
    "d = MatMul(b, w)\n"
    "out d\n";

// As if the batch grew.
static void a_model_of_one_height_prefaults_for_a_larger_batch(void **state) {
  (void)state;
  bed b;
  open_warmed(&b, one_height, 0);
  assert_in_range(stats_of(&b).arena_bytes, 16 * 48 * 1024, 8 << 20);
  close_bed(&b);
}

static const char split[] =
    "in x float32[n,64,32]\n"
    "const w float32[32,32] 0.5\n"
    "a = MatMul(x, w)\n"
    "b = MatMul(a, w)\n"
    "out b\n";

// Batches of whose values the L2 cache holds 1000 bytes.
static void worker_threads_have_contexts_for_microbatches(void **state) {
  (void)state;
  bed b;
  open_warmed(&b, split, 0);
  assert_int_equal(stats_of(&b).contexts, 2);
  const lb_context *whole = atomic_load(&b.s->idle[0]);
  const lb_context *slice = atomic_load(&b.s->idle[1]);
  assert_true(whole->arena_kept > 1000);  // the next run takes it
  assert_int_equal(slice->arena_kept, 1000);
  close_bed(&b);
  open_warmed(&b, split, 1 << 20);  // memory kept between runs would count
  assert_int_equal(stats_of(&b).contexts, 1);
  close_bed(&b);
}

static void prefaulted_memory_is_limited(void **state) {
  (void)state;
  bed b;
  open_warmed(&b, chain, 0);
  assert_in_range(stats_of(&b).arena_bytes, 0, 4 << 20);
  assert_in_range(stats_of(&b).contexts, 1, 1);
  assert_true(lb_session_trim(b.s) >= stats_of(&b).arena_bytes);
  assert_int_equal(stats_of(&b).contexts, 0);
  close_bed(&b);
  open_warmed(&b, chain, 10000);  // less than it needs
  assert_int_equal(stats_of(&b).arena_bytes, 0);
  close_bed(&b);
}

static void a_fork_after_the_warmup_works(void **state) {
  (void)state;
#ifdef UNDER_TSAN
  skip();  // it cannot follow threads through a fork
#endif
  bed b;
  open_bed(&b, mixed, 0);
  lb_session_load_warmup(b.s, 100 * MS);
  pid_t child = fork();
  if (child == 0) {
    lb_output out[3];
    run_mixed(&b, 1, 32, out);
    _exit(0);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  has_no_trace(&b);
  close_bed(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(dims_of_one_name_get_one_size),
      cmocka_unit_test(dims_may_all_be_known),
      cmocka_unit_test(only_the_first_dim_may_be_open),
      cmocka_unit_test(a_load_warmup_leaves_no_trace),
      cmocka_unit_test(plans_find_slots_added_by_the_warmup),
      cmocka_unit_test(kernels_decided_by_weights_are_wanted_at_load),
      cmocka_unit_test(request_decided_dims_get_kernels_for_any_size),
      cmocka_unit_test(a_guess_of_one_column_wants_no_kernels),
      cmocka_unit_test(a_static_model_wants_the_kernels_it_runs),
      cmocka_unit_test(a_reduction_of_all_has_a_kernel_for_any_size),
      cmocka_unit_test(kernels_without_a_launch_are_not_wanted),
      cmocka_unit_test(compared_contents_are_tried),
      cmocka_unit_test(a_model_that_accepts_no_guess_still_runs),
      cmocka_unit_test(without_ranks_there_is_no_guess),
      cmocka_unit_test(a_loop_without_end_is_cut_short),
      cmocka_unit_test(expensive_plans_are_not_run),
      cmocka_unit_test(memory_for_larger_runs_is_prefaulted),
      cmocka_unit_test(a_model_of_one_height_prefaults_for_a_larger_batch),
      cmocka_unit_test(worker_threads_have_contexts_for_microbatches),
      cmocka_unit_test(prefaulted_memory_is_limited),
      cmocka_unit_test(a_fork_after_the_warmup_works),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
