// compile/queue.h -- which slot is worth compiling next.
//
// The worth of a slot is the time that runs were seen to spend in it, times the
// share of it that a kernel of its own is expected to save, divided by what
// making that costs. The last two are learned, by form. While requests run,
// half of that time is forgotten each second: what they need comes before what
// they needed. What nobody measured
// yet is taken for something small; the four kinds that matter most as a rule
// -- convolutions, products with weights and without, softmax -- for more.
//
// A slot is *ripe* once enough runs have met it for the session that asks for
// the fewest, or if somebody waits for it.
//
// Bounded: the least worth falls out, and comes back when it is met again. Not
// thread-safe: see service.c.
#ifndef LB_COMPILE_QUEUE_H
#define LB_COMPILE_QUEUE_H

#include "compile/slot_profile.h"

#define LB_QUEUE_MAX 1024
#define LB_COMPILE_THRESHOLD \
  2  // runs that make a slot ripe, unless a session says

typedef struct lb_queue {
  lb_slot *slots[LB_QUEUE_MAX];  // borrowed; asked for, in no order; each has
                                 // a profile
  size_t n;
  double cost_us[LB_FORM_COUNT];  // of making one
  // What making one saves, of the time: in place of a cover, of the pack's.
  double gain[LB_FORM_COUNT][2];
  bool in_turn;      // first come, first made, whatever it is worth
  uint64_t places;   // given so far to what came
  int64_t faded_ns;  // when times were halved
  uint64_t let_go;   // without being made, though there was room
  lb_hub *hub;       // borrowed; may be NULL. Set after lb_queue_init
} lb_queue;

typedef struct lb_queue_time {
  int64_t now_ns;
  bool idle;    // no requests: what is not ripe will do
  bool urgent;  // nothing but what somebody waits for
} lb_queue_time;

void lb_queue_init(lb_queue *q);

double lb_queue_priority(const lb_queue *q, const lb_slot *slot);
// The part of what it costs that requests of late would have back in each
// second, if it were there.
double lb_queue_payback(const lb_queue *q, const lb_slot *slot);

void lb_queue_put(lb_queue *q, lb_slot *slot);
// The one to make next, or NULL; what needs nothing any more is let go. If it
// is NULL, *wait_ns is when to look again, should nothing happen before: or -1.
lb_slot *lb_queue_take(lb_queue *q, const lb_queue_time *t, int64_t *wait_ns);
// What the best of those returns that could be taken; 0 if there is none.
double lb_queue_best(lb_queue *q, const lb_queue_time *t);
// How many of those return at least so much.
size_t lb_queue_count(lb_queue *q, const lb_queue_time *t, double returns);
// One that was not looked for on disk yet, or NULL.
lb_slot *lb_queue_take_new(lb_queue *q);
// Lets go what was asked for by that session alone, as far as can be seen, and
// nobody waits for.
void lb_queue_drop(lb_queue *q, unsigned session);
void lb_queue_clear(lb_queue *q);

void lb_queue_learn_cost(lb_queue *q, const lb_slot *slot, double us);
// A kernel was found to be so many times as fast as what it replaced.
void lb_queue_learn_gain(lb_queue *q, const lb_slot *slot, double ratio);

#endif
