// bench/kernels.c -- every kernel of a model at one shape against what the core
// can do.
//
//   kernels MODEL INPUT=DIMxDIM...     prints a line of JSON for each kernel,
//                                      and one for the model
//
// The line of a kernel is the time that nobody can go below: its
// multiplications at the peak, or its bytes at the speed at which this core
// reads a set of that size, whichever is longer. LIMBER_ISA is honoured.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/machine.h"
#include "bench/subject.h"

#define KERNEL_SECONDS 0.12
#define MAX_SPEEDS 64

typedef struct bench {
  bench_machine machine;
  double peak;  // GFLOP/s
  struct {
    size_t bytes;
    double speed;
  } speeds[MAX_SPEEDS];  // measured so far
  int n_speeds;
  bench_subject subject;
} bench;

// -- timing ------------------------------------------------------------------

static double speed_of(bench *b, size_t bytes) {
  for (int i = 0; i < b->n_speeds; i++)
    if (bytes > b->speeds[i].bytes * 7 / 8 &&
        bytes < b->speeds[i].bytes * 9 / 8)
      return b->speeds[i].speed;
  double speed = bench_read_speed(b->machine.bits, bytes);
  if (b->n_speeds < MAX_SPEEDS) {
    b->speeds[b->n_speeds].bytes = bytes;
    b->speeds[b->n_speeds++].speed = speed;
  }
  return speed;
}

// -- the report --------------------------------------------------------------

static void print_kernel(bench *b, const lb_launch *l, const bench_rotation *r,
                         const bench_timing *t, int count) {
  double flops = bench_flops(l), bytes = 0, moving = 0;
  size_t sets[2] = {r->weight_set, r->other_set};
  size_t moved[2] = {r->weight_bytes, r->other_bytes};
  for (int i = 0; i < 2; i++) {
    if (!moved[i]) continue;
    bytes += (double)moved[i];
    moving += (double)moved[i] / (1e9 * speed_of(b, sets[i]));
  }
  double computing = flops / (1e9 * b->peak);
  printf("{");
  bench_print_spec(l->slot);
  bench_print_dims(l);
  printf("\"count\": %d, \"best\": %.4g, \"median\": %.4g, ", count, t->best,
         t->median);
  printf("\"flops\": %.6g, \"bytes\": %.6g, ", flops, bytes);
  printf("\"level\": \"%s\", ",
         bench_level_name(bench_level_of(
             &b->machine,
             r->weight_bytes > r->other_bytes ? r->weight_set : r->other_set)));
  printf("\"bound\": \"%s\", \"line\": %.4g}\n",
         computing > moving ? "fma" : "read",
         computing > moving ? computing : moving);
}

static lb_status bench_launch(bench *b, const lb_launch *l,
                              lb_kernel_fn *kernel, int count) {
  bench_rotation r;
  LB_TRY(bench_subject_rotation(&b->subject, l, b->machine.caches.l2, &r));
  bench_timing t = bench_time_kernel(&r, kernel, KERNEL_SECONDS);
  print_kernel(b, l, &r, &t, count);
  fflush(stdout);
  bench_rotation_fini(&r);
  return LB_OK;
}

static lb_status bench_plan(bench *b) {
  const lb_plan *plan = b->subject.plan;
  uint32_t launches = 0, others = 0;
  for (uint32_t i = 0; i < plan->n_steps; i++) {
    const lb_step *step = &plan->steps[i];
    lb_kernel_fn *kernel = NULL;
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
      "{\"launches\": %u, \"host_steps\": %u, \"gflops\": %.1f, "
      "\"packed_bytes\": %zu, \"later_stages\": %s}\n",
      launches, others, b->peak,
      b->subject.session->session->parts.packed_bytes,
      plan->n_facts ? "true" : "false");
  return LB_OK;
}

static lb_status run(bench *b, int argc, char **argv) {
  LB_TRY(bench_machine_init(&b->machine));
  LB_TRY(bench_subject_open(&b->subject, argv[1], argv + 2, argc - 2));
  LB_TRY(bench_subject_settle(&b->subject));
  b->peak = bench_fma_peak(b->machine.bits);
  return bench_plan(b);
}

int main(int argc, char **argv) {
  bench b = {0};
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
