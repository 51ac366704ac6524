// bench/kernels.c -- every kernel of a model at one shape against what the core
// can do.
//
//   kernels MODEL INPUT=DIMxDIM...     prints a line of JSON for each kernel,
//                                      and one for the model
//
// The line of a kernel is the time that nobody can go below: its
// multiplications at the peak, or its bytes at the speed at which this core
// reads a set of that size, whichever is longer; all are measured in turns.
// LIMBER_ISA is honoured.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/machine.h"
#include "bench/subject.h"

#define KERNEL_SECONDS 0.12  // with what is measured beside the kernel
#define BATCH_SECONDS 100e-6
#define MACHINE_SECONDS 80e-6  // at least; more beside long batches
#define MACHINE_SHARE 0.1      // of a batch
#define GUESSES 5
#define MIN_ROUNDS 15
#define MAX_ROUNDS 2000
#define MAX_READERS 64

typedef struct bench {
  bench_machine machine;
  bench_reader readers[MAX_READERS];  // the program's until it ends
  int n_readers;
  bench_subject subject;
} bench;

// What one launch asks of the machine.
typedef struct work {
  double flops, bytes[2];   // weights, the rest
  bench_reader *reader[2];  // of sets as large as theirs
} work;

// Seconds that the machine needs for it now, measured for so many seconds.
typedef double need_fn(const bench *b, const work *w, double seconds);

typedef struct rounds {
  double times[MAX_ROUNDS], shares[MAX_ROUNDS];
  int n;
} rounds;

// A kernel beside one of the things that may bound it.
typedef struct result {
  const char *bound;
  double best, median;  // seconds of a launch
  double share;         // of what the machine needs, in the median round
} result;

// -- rounds ------------------------------------------------------------------

static lb_status reader_of(bench *b, size_t bytes, bench_reader **out) {
  for (int i = 0; i < b->n_readers; i++) {
    *out = &b->readers[i];
    if (bytes > (*out)->size * 7 / 8 && bytes < (*out)->size * 9 / 8)
      return LB_OK;
  }
  if (b->n_readers == MAX_READERS)
    return lb_error(LB_INVALID, "too many sizes of operands");
  *out = &b->readers[b->n_readers];
  LB_TRY(bench_reader_init(*out, b->machine.bits, bytes));
  b->n_readers++;
  return LB_OK;
}

static lb_status work_of(bench *b, const lb_launch *l, const bench_rotation *r,
                         work *out) {
  *out = (work){.flops = bench_flops(l)};
  size_t sets[2] = {r->weight_set, r->other_set};
  size_t moved[2] = {r->weight_bytes, r->other_bytes};
  for (int i = 0; i < 2; i++) {
    out->bytes[i] = (double)moved[i];
    if (moved[i]) LB_TRY(reader_of(b, sets[i], &out->reader[i]));
  }
  return LB_OK;
}

static double computing(const bench *b, const work *w, double seconds) {
  return w->flops / (1e9 * bench_fma_now(b->machine.bits, seconds));
}

static double moving(const bench *b, const work *w, double seconds) {
  (void)b;
  double need = 0;
  for (int i = 0; i < 2; i++)
    if (w->bytes[i] > 0)
      need += w->bytes[i] / (1e9 * bench_reader_now(w->reader[i], seconds));
  return need;
}

// Each batch of the kernel is between two measurements of the machine, and is
// held against both. The clock moves by a tenth from one millisecond to
// another, and from minute to minute, and so does what neighbours leave of L3:
// what was measured beside the kernel has moved with it. What counts is the
// median of all rounds. The best time beside the best measurement would be a
// lucky round of each; caches are lucky more often than a loop of
// multiplications, so kernels would look better than they are, and luck does
// not repeat.
static void run_rounds(const bench *b, const work *w, need_fn *need,
                       bench_turns *t, rounds *out) {
  double begin = bench_now(), seconds = MACHINE_SECONDS;
  double batch = bench_turns_next(t) * (double)t->batch;
  if (MACHINE_SHARE * batch > seconds) seconds = MACHINE_SHARE * batch;
  double before = need(b, w, seconds);
  size_t start = t->at;
  for (out->n = 0; out->n < MAX_ROUNDS; out->n++) {
    if (out->n >= MIN_ROUNDS && t->at - start >= 2 * t->rotation->copies &&
        bench_now() - begin >= KERNEL_SECONDS)
      break;
    double took = bench_turns_next(t), after = need(b, w, seconds);
    out->times[out->n] = took;
    out->shares[out->n] = (before + after) / 2 / took;
    before = after;
  }
}

static void run_beside(const bench *b, const work *w, need_fn *need,
                       bench_turns *t, result *out) {
  static rounds all;
  run_rounds(b, w, need, t, &all);
  double share = bench_median(all.shares, all.n);
  if (share <= out->share) return;
  out->bound = need == computing ? "fma" : "read";
  out->share = share;
  out->median = bench_median(all.times, all.n);
  out->best = all.times[0];
}

static double guess(const bench *b, const work *w, need_fn *need) {
  double some[GUESSES];
  for (int i = 0; i < GUESSES; i++) some[i] = need(b, w, MACHINE_SECONDS);
  return bench_median(some, GUESSES);
}

// The longer of both needs is the line, so the larger share counts. They are
// measured one behind the other: a core that has waited for memory multiplies
// faster for a while, by up to a seventh. What is far from being the longer
// one is left out.
static result run_both(const bench *b, const work *w, bench_turns *t) {
  result out = {.bound = "read"};
  double computes = guess(b, w, computing), moves = guess(b, w, moving);
  if (2 * computes >= moves) run_beside(b, w, computing, t, &out);
  if (2 * moves >= computes) run_beside(b, w, moving, t, &out);
  return out;
}

// -- the report --------------------------------------------------------------

static void print_kernel(const bench *b, const lb_launch *l,
                         const bench_rotation *r, const work *w,
                         const result *made, int count) {
  printf("{");
  bench_print_spec(l->slot);
  bench_print_dims(l);
  printf("\"count\": %d, \"best\": %.4g, \"median\": %.4g, ", count, made->best,
         made->median);
  printf("\"flops\": %.6g, \"bytes\": %.6g, ", w->flops,
         w->bytes[0] + w->bytes[1]);
  printf("\"level\": \"%s\", ",
         bench_level_name(bench_level_of(
             &b->machine,
             r->weight_bytes > r->other_bytes ? r->weight_set : r->other_set)));
  printf("\"bound\": \"%s\", \"fraction\": %.4g}\n", made->bound, made->share);
}

static lb_status bench_launch(bench *b, const lb_launch *l,
                              const lb_exec *kernel, int count) {
  bench_rotation r;
  bench_turns t;
  work w;
  LB_TRY(bench_subject_rotation(&b->subject, l, b->machine.caches.l2, &r));
  lb_status st = work_of(b, l, &r, &w);
  if (!lb_failed(st)) {
    bench_turns_init(&t, &r, kernel, BATCH_SECONDS);
    result made = run_both(b, &w, &t);
    print_kernel(b, l, &r, &w, &made, count);
    fflush(stdout);
  }
  bench_rotation_fini(&r);
  return st;
}

static lb_status bench_plan(bench *b) {
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
      "{\"launches\": %u, \"host_steps\": %u, "
      "\"packed_bytes\": %zu, \"later_stages\": %s}\n",
      launches, others, b->subject.session->session->versions.weights.bytes,
      plan->n_facts ? "true" : "false");
  return LB_OK;
}

static lb_status run(bench *b, int argc, char **argv) {
  LB_TRY(bench_machine_init(&b->machine));
  LB_TRY(bench_subject_open(&b->subject, argv[1], argv + 2, argc - 2));
  LB_TRY(bench_subject_settle(&b->subject));
  return bench_plan(b);
}

int main(int argc, char **argv) {
  static bench b;
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
