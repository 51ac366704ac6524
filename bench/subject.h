// bench/subject.h -- A model at one shape; its kernels are measured one by one.
#ifndef LB_BENCH_SUBJECT_H
#define LB_BENCH_SUBJECT_H

#include "api/session.h"
#include "bench/rotate.h"
#include "session/run.h"

typedef struct bench_subject {  // never freed
  limber_session *session;
  lb_tensor *inputs;
  lb_want *wanted;  // all outputs
  lb_plan *plan;
} bench_subject;

// Opens a model for one thread and plans it. `texts` has INPUT=DIMxDIM for each
// input, or INPUT=DIMxDIM:VALUE where the plan depends on the input's value.
lb_status bench_subject_open(bench_subject *s, const char *model, char **texts,
                             int n);
// Plans again, as for a signature without a plan, and releases the plan.
lb_status bench_subject_plan(const bench_subject *s,
                             lb_plan_workspace *workspace);
// Compiles all requested kernels.
lb_status bench_subject_settle(const bench_subject *s);

// The number of launches in the plan that do the same work as step i, a launch;
// 0 if an earlier step has counted it.
int bench_subject_count(const bench_subject *s, uint32_t i);

// Operands for a launch of the plan. The copies of weights together have as
// many bytes as the model's weights, other copies four times `l2`.
lb_status bench_subject_rotation(const bench_subject *s, const lb_launch *l,
                                 size_t l2, bench_rotation *out);

// Times a kernel in batches of launches.
typedef struct bench_timer {
  const bench_rotation *rotation;
  const lb_exec *kernel;
  size_t at, batch;
} bench_timer;

// A batch takes at least `seconds`.
void bench_timer_init(bench_timer *t, const bench_rotation *r,
                      const lb_exec *kernel, double seconds);
double bench_timer_next(bench_timer *t);  // seconds per launch

double bench_median(double *values, int n);  // sorts `values`

// Seconds per launch in the best of all batches, which take `seconds` in total.
double bench_time_kernel(const bench_rotation *r, const lb_exec *kernel,
                         double seconds);

// Print members of a JSON object, each followed by a comma.
void bench_print_spec(const lb_slot *slot);
void bench_print_dims(const lb_launch *l);

#endif
