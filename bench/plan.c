// bench/plan.c -- Plans a model at one shape again and again, for callgrind:
//
//   plan MODEL TIMES INPUT=DIMxDIM...    prints the steps of the plan
//
// callgrind counts only what bench_count_plans does (--toggle-collect), so
// neither loading nor the first plan, which adds the slots, counts. LIMBER_SKIP
// is honoured.
#include <stdio.h>
#include <stdlib.h>

#include "bench/subject.h"

// Not static and not inlined: callgrind finds it by its name.
__attribute__((noinline)) lb_status bench_count_plans(
    const bench_subject *s, lb_plan_workspace *workspace, int times) {
  for (int i = 0; i < times; i++) LB_TRY(bench_subject_plan(s, workspace));
  return LB_OK;
}

int main(int argc, char **argv) {
  bench_subject s;
  lb_plan_workspace workspace;
  if (argc < 3) {
    fprintf(stderr, "usage: plan MODEL TIMES INPUT=DIMS...\n");
    return 2;
  }
  lb_plan_workspace_init(&workspace);
  lb_status st = bench_subject_open(&s, argv[1], argv + 3, argc - 3);
  if (!lb_failed(st)) st = bench_subject_plan(&s, &workspace);
  if (!lb_failed(st)) st = bench_count_plans(&s, &workspace, atoi(argv[2]));
  if (lb_failed(st)) {
    fprintf(stderr, "plan: %s\n", lb_status_message(st));
    lb_status_drop(st);
    return 1;
  }
  printf("{\"steps\": %u}\n", s.plan->n_steps);
  return 0;
}
