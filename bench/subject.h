// bench/subject.h -- a model at one shape, whose kernels are measured one by
// one.
#ifndef LB_BENCH_SUBJECT_H
#define LB_BENCH_SUBJECT_H

#include "api/session.h"
#include "bench/rotate.h"
#include "session/run.h"

typedef struct bench_subject {  // the program's until it ends
  limber_session *session;
  lb_plan *plan;
} bench_subject;

// Opens a model for one thread and plans it; `texts` are INPUT=DIMxDIM, one for
// each input, and INPUT=DIMxDIM:VALUE where the plan depends on what it holds.
lb_status bench_subject_open(bench_subject *s, const char *model, char **texts,
                             int n);
// Compiles all kernels that are wanted.
lb_status bench_subject_settle(const bench_subject *s);

// How often the plan does the work of step i, which is a launch; 0 if an
// earlier step has counted it.
int bench_subject_count(const bench_subject *s, uint32_t i);

// Operands for a launch of the plan: weights go round as many bytes as the
// model has, the rest round four times those of L2.
lb_status bench_subject_rotation(const bench_subject *s, const lb_launch *l,
                                 size_t l2, bench_rotation *out);

// A kernel that is timed a batch of launches at a time.
typedef struct bench_turns {
  const bench_rotation *rotation;
  const lb_exec *kernel;
  size_t at, batch;
} bench_turns;

// Batches take at least so many seconds.
void bench_turns_init(bench_turns *t, const bench_rotation *r,
                      const lb_exec *kernel, double seconds);
double bench_turns_next(bench_turns *t);  // seconds of one launch

double bench_median(double *values, int n);  // sorts them

// Seconds of one launch, the best of batches that take so long together.
double bench_time_kernel(const bench_rotation *r, const lb_exec *kernel,
                         double seconds);

// Members of a line of JSON, each with a comma behind it.
void bench_print_spec(const lb_slot *slot);
void bench_print_dims(const lb_launch *l);

#endif
