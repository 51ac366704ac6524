// compile/queue.h -- which slot to compile next.
//
// The priority of a slot is the time that runs spent in its step, times the
// fraction of it that a compiled kernel is expected to save, divided by the
// cost of compiling it. The last two are learned per form. While requests run,
// the time halves each second, so that what they need now comes before what
// they needed earlier. A slot without a measured time is assumed to be small;
// the four kinds that usually matter most -- convolution, matmul with and
// without constant weights, softmax -- larger.
//
// A slot is *due* once the runs that used it reach the lowest compile threshold
// of the sessions that use it, or if a caller waits for it.
//
// Bounded: a full queue drops the slot of lowest priority, which comes back
// when a run uses it again. Not thread-safe: see service_internal.h.
#ifndef LB_COMPILE_QUEUE_H
#define LB_COMPILE_QUEUE_H

#include "compile/slot_profile.h"

#define LB_QUEUE_MAX 1024
#define LB_COMPILE_THRESHOLD 2  // uses until a slot is due; the default

typedef struct lb_queue {
  lb_slot *slots[LB_QUEUE_MAX];  // borrowed; unordered; each has a profile
  size_t n;
  double cost_us[LB_FORM_COUNT];  // of compiling one kernel
  // Fraction of the step's time that a kernel saves: [0] in place of a cover,
  // [1] in place of a pack kernel.
  double gain[LB_FORM_COUNT][2];
  bool fifo;           // first come, first served, whatever the priority
  uint64_t last_seq;   // sequence number of the last slot put
  int64_t decayed_ns;  // when times were last halved
  uint64_t released;   // slots removed without being compiled, eviction from a
                       // full queue not counted
  lb_hub *hub;         // borrowed; may be NULL. Set after lb_queue_init
} lb_queue;

typedef struct lb_queue_time {
  int64_t now_ns;
  bool idle;    // no requests: slots that are not due may be taken
  bool urgent;  // only slots that a caller waits for
} lb_queue_time;

void lb_queue_init(lb_queue *q);

double lb_queue_priority(const lb_queue *q, const lb_slot *slot);
// The fraction of its compile cost that the kernel would save requests per
// second, at their recent rate.
double lb_queue_payback(const lb_queue *q, const lb_slot *slot);

void lb_queue_put(lb_queue *q, lb_slot *slot);
// Removes and returns the slot to compile next, or NULL; slots that are no
// longer pending are released. For NULL, *wait_ns is the time after which to
// try again if nothing happens before, or -1.
lb_slot *lb_queue_take(lb_queue *q, const lb_queue_time *t, int64_t *wait_ns);
// The highest payback of the slots that could be taken; 0 if there is none.
double lb_queue_best_payback(lb_queue *q, const lb_queue_time *t);
// The number of slots that could be taken with at least this payback.
size_t lb_queue_count(lb_queue *q, const lb_queue_time *t, double payback);
// Takes a slot that was not yet searched for on disk, or returns NULL.
lb_slot *lb_queue_take_unsearched(lb_queue *q);
// Releases slots that were last used by `session` and that no caller waits for.
void lb_queue_drop(lb_queue *q, unsigned session);
void lb_queue_clear(lb_queue *q);

void lb_queue_learn_cost(lb_queue *q, const lb_slot *slot, double us);
// A trial found the kernel to be `ratio` times as fast as what it replaced.
void lb_queue_learn_gain(lb_queue *q, const lb_slot *slot, double ratio);

#endif
