// observe/analyzer.h -- the dataflow analyzer: statistics of the data that runs
// meet, gathered beside them by a thread of low priority.
//
// A *point* is something that runs observe, such as the share of padding in a
// mask; it is a number below LB_POINTS. Runs write samples into rings and never
// wait: a sample for which all
// rings are full is dropped and counted. The analyzer's
// thread moves them into windows (observe/window.h) and hands a consistent
// snapshot of all points to its owner.
//
// Threading: any thread may sample; at most one is inside the owner's function
// at a time. A forked child has no analyzer thread, so it decides only when it
// asks for that.
#ifndef LB_OBSERVE_ANALYZER_H
#define LB_OBSERVE_ANALYZER_H

#include <stdint.h>

#include "base/status.h"
#include "observe/window.h"

#define LB_POINTS 8

typedef struct lb_snapshot {  // of all points, at one moment
  uint64_t samples, dropped;
  lb_window_summary points[LB_POINTS];
} lb_snapshot;

// Called on the analyzer's thread, or by lb_analyzer_update, when there are new
// samples. It may take its time: samples wait in their rings meanwhile.
typedef void lb_analyzer_fn(void *user, const lb_snapshot *s);

typedef struct lb_analyzer lb_analyzer;

lb_status lb_analyzer_new(double half_life, lb_analyzer_fn *fn, void *user,
                          lb_analyzer **out);
void lb_analyzer_free(lb_analyzer *a);  // joins the thread; NULL is fine

// Lock-free; takes about 10 ns. `hint` spreads threads over the rings.
void lb_analyzer_sample(lb_analyzer *a, uint64_t hint, uint32_t point,
                        float value);
// Reads all samples and calls the owner's function at once, on this thread,
// whether there are samples or not; waits if another thread is inside it.
void lb_analyzer_update(lb_analyzer *a);
// Forgets what is known of a point: something has changed it.
void lb_analyzer_forget(lb_analyzer *a, uint32_t point);
void lb_analyzer_snapshot(lb_analyzer *a, lb_snapshot *out);

#endif
