// bench/kernels.c -- Measures every kernel of a model at one shape against the
// roofline of one core.
//
//   kernels MODEL INPUT=DIMxDIM...     prints a line of JSON for each kernel,
//                                      and one for the model
//
// The roofline of a kernel is the minimum of its time: its operations at the
// peak of multiply-adds, or its bytes at the read bandwidth for a working set
// of that size, whichever is longer. Kernel and machine are measured
// alternately. LIMBER_ISA is honoured.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/machine.h"
#include "bench/subject.h"

#define KERNEL_SECONDS 0.12  // including measurements of the machine
#define BATCH_SECONDS 100e-6
#define MACHINE_SECONDS 80e-6  // minimum; more for long batches
#define MACHINE_SHARE 0.1      // of a batch
#define GUESSES 5
#define MIN_ROUNDS 15
#define MAX_ROUNDS 2000
#define MAX_READERS 64

typedef struct kernel_bench {
  bench_machine machine;
  bench_reader readers[MAX_READERS];  // never freed
  int n_readers;
  bench_subject subject;
} kernel_bench;

// The work of one launch.
typedef struct launch_work {
  double flops, bytes[2];   // weights, other operands
  bench_reader *reader[2];  // of working sets as large as theirs
} launch_work;

// Seconds that the machine needs for `w` at present, measured for `seconds`.
typedef double need_fn(const kernel_bench *b, const launch_work *w,
                       double seconds);

typedef struct rounds {
  double times[MAX_ROUNDS], shares[MAX_ROUNDS];
  int n;
} rounds;

// A kernel against one of its two bounds.
typedef struct result {
  const char *bound;
  double best, median;  // seconds per launch
  double share;         // of the roofline, in the median round
} result;

// -- rounds ------------------------------------------------------------------

static lb_status reader_of(kernel_bench *b, size_t bytes, bench_reader **out) {
  for (int i = 0; i < b->n_readers; i++) {
    *out = &b->readers[i];
    if (bytes > (*out)->size * 7 / 8 && bytes < (*out)->size * 9 / 8)
      return LB_OK;
  }
  if (b->n_readers == MAX_READERS)
    return lb_error(LB_INVALID, "more than %d sizes of operands", MAX_READERS);
  *out = &b->readers[b->n_readers];
  LB_TRY(bench_reader_init(*out, b->machine.bits, bytes));
  b->n_readers++;
  return LB_OK;
}

static lb_status work_of(kernel_bench *b, const lb_launch *l,
                         const bench_rotation *r, launch_work *out) {
  *out = (launch_work){.flops = bench_flops(l)};
  size_t sets[2] = {r->weight_set, r->other_set};
  size_t moved[2] = {r->weight_bytes, r->other_bytes};
  for (int i = 0; i < 2; i++) {
    out->bytes[i] = (double)moved[i];
    if (moved[i]) LB_TRY(reader_of(b, sets[i], &out->reader[i]));
  }
  return LB_OK;
}

static double computing(const kernel_bench *b, const launch_work *w,
                        double seconds) {
  return w->flops / (1e9 * bench_fma_now(b->machine.bits, seconds));
}

static double moving(const kernel_bench *b, const launch_work *w,
                     double seconds) {
  (void)b;
  double need = 0;
  for (int i = 0; i < 2; i++)
    if (w->bytes[i] > 0)
      need += w->bytes[i] / (1e9 * bench_reader_now(w->reader[i], seconds));
  return need;
}

// Each batch of the kernel runs between two measurements of the machine and is
// compared with their mean. Clock frequency varies by 10 % between milliseconds
// and between minutes, as does the share of L3 that other processes leave; both
// affect adjacent measurements alike. The result is the median of all rounds:
// the best time divided by the best measurement would compare two outliers, and
// as reads have more of them than multiply-adds, kernels would look better than
// they are.
static void run_rounds(const kernel_bench *b, const launch_work *w,
                       need_fn *need, bench_timer *t, rounds *out) {
  double begin = bench_now(), seconds = MACHINE_SECONDS;
  double batch = bench_timer_next(t) * (double)t->batch;
  if (MACHINE_SHARE * batch > seconds) seconds = MACHINE_SHARE * batch;
  double before = need(b, w, seconds);
  size_t start = t->at;
  for (out->n = 0; out->n < MAX_ROUNDS; out->n++) {
    if (out->n >= MIN_ROUNDS && t->at - start >= 2 * t->rotation->copies &&
        bench_now() - begin >= KERNEL_SECONDS)
      break;
    double took = bench_timer_next(t), after = need(b, w, seconds);
    out->times[out->n] = took;
    out->shares[out->n] = (before + after) / 2 / took;
    before = after;
  }
}

static void run_beside(const kernel_bench *b, const launch_work *w,
                       need_fn *need, bench_timer *t, result *out) {
  static rounds all;
  run_rounds(b, w, need, t, &all);
  double share = bench_median(all.shares, all.n);
  if (share <= out->share) return;
  out->bound = need == computing ? "fma" : "read";
  out->share = share;
  out->median = bench_median(all.times, all.n);
  out->best = all.times[0];
}

static double guess(const kernel_bench *b, const launch_work *w,
                    need_fn *need) {
  double some[GUESSES];
  for (int i = 0; i < GUESSES; i++) some[i] = need(b, w, MACHINE_SECONDS);
  return bench_median(some, GUESSES);
}

// The longer of both bounds is the roofline, so the larger share counts. They
// are measured one after the other: a core that has waited for memory
// multiplies up to 14 % faster for a while. A bound that is clearly the shorter
// one is left out.
static result run_both(const kernel_bench *b, const launch_work *w,
                       bench_timer *t) {
  result out = {.bound = "read"};
  double computes = guess(b, w, computing), moves = guess(b, w, moving);
  if (2 * computes >= moves) run_beside(b, w, computing, t, &out);
  if (2 * moves >= computes) run_beside(b, w, moving, t, &out);
  return out;
}

// -- the report --------------------------------------------------------------

static void print_kernel(const kernel_bench *b, const lb_launch *l,
                         const bench_rotation *r, const launch_work *w,
                         const result *measured, int count) {
  printf("{");
  bench_print_spec(l->slot);
  bench_print_dims(l);
  printf("\"count\": %d, \"best\": %.4g, \"median\": %.4g, ", count,
         measured->best, measured->median);
  printf("\"flops\": %.6g, \"bytes\": %.6g, ", w->flops,
         w->bytes[0] + w->bytes[1]);
  printf("\"level\": \"%s\", ",
         bench_level_name(bench_level_of(
             &b->machine,
             r->weight_bytes > r->other_bytes ? r->weight_set : r->other_set)));
  printf("\"bound\": \"%s\", \"fraction\": %.4g}\n", measured->bound,
         measured->share);
}

static lb_status bench_launch(kernel_bench *b, const lb_launch *l,
                              const lb_exec *kernel, int count) {
  bench_rotation r;
  bench_timer t;
  launch_work w;
  LB_TRY(bench_subject_rotation(&b->subject, l, b->machine.caches.l2, &r));
  lb_status st = work_of(b, l, &r, &w);
  if (!lb_failed(st)) {
    bench_timer_init(&t, &r, kernel, BATCH_SECONDS);
    result measured = run_both(b, &w, &t);
    print_kernel(b, l, &r, &w, &measured, count);
    fflush(stdout);
  }
  bench_rotation_fini(&r);
  return st;
}

static lb_status bench_plan(kernel_bench *b) {
  const lb_plan *plan = b->subject.plan;
  uint32_t launches = 0, others = 0;
  for (uint32_t i = 0; i < plan->n_steps; i++) {
    const lb_step *step = &plan->steps[i];
    const lb_exec *kernel = NULL;
    if (step->kind == LB_STEP_LAUNCH)
      kernel = lb_slot_kernel(step->launch->slot);
    if (!kernel) {
      others += step->kind != LB_STEP_LAUNCH;
      continue;
    }
    int count = bench_subject_count(&b->subject, i);
    if (count) LB_TRY(bench_launch(b, step->launch, kernel, count));
    launches++;
    i += step->skip;
  }
  printf(
      "{\"launches\": %u, \"reference_steps\": %u, "
      "\"packed_bytes\": %zu, \"later_stages\": %s}\n",
      launches, others, b->subject.session->session->versions.weights.bytes,
      plan->n_stage_results ? "true" : "false");
  return LB_OK;
}

static lb_status run(kernel_bench *b, int argc, char **argv) {
  LB_TRY(bench_machine_init(&b->machine));
  LB_TRY(bench_subject_open(&b->subject, argv[1], argv + 2, argc - 2));
  LB_TRY(bench_subject_settle(&b->subject));
  return bench_plan(b);
}

int main(int argc, char **argv) {
  static kernel_bench b;
  if (argc < 2) {
    fprintf(stderr, "usage: kernels MODEL INPUT=DIMxDIM...\n");
    return 2;
  }
  lb_status st = run(&b, argc, argv);
  bool failed = lb_failed(st);
  if (failed) fprintf(stderr, "kernels: %s\n", lb_status_message(st));
  lb_status_drop(st);
  return failed;
}
