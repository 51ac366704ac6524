// compile/queue.c -- which slot to compile next.
//
// Priorities change with every run, so the array is not sorted: each take
// searches it. That is a thousand small computations before a compilation of a
// million instructions.
#include "compile/queue.h"

#define IDLE_WAIT_NS INT64_C(50000000)  // between checks for idle requests
#define HALF_LIFE_NS INT64_C(1000000000)
#define WINDOW_S 1.5  // seconds of runs in a time that halves each second
#define UNMEASURED_NS 20000.0  // of a step without a measured time
#define CRITICAL_BONUS 8.0
#define INITIAL_COST_US 20000.0
#define COVER_GAIN 0.5   // expected of one kernel in place of several
#define PACK_GAIN 0.02   // expected of a kernel in place of a pack kernel
#define MIN_GAIN 0.01    // what was learned may not apply to other slots
#define LEARN_RATE 0.25  // weight of the last observation

void lb_queue_init(lb_queue *q) {
  *q = (lb_queue){0};
  for (int i = 0; i < LB_FORM_COUNT; i++) {
    q->cost_us[i] = INITIAL_COST_US;
    q->gain[i][0] = COVER_GAIN;
    q->gain[i][1] = PACK_GAIN;
  }
}

static lb_slot_profile *profile(const lb_slot *s) {
  return lb_slot_profile_of(s);
}

// -- priority ----------------------------------------------------------------

static unsigned uses_of(const lb_slot *s) {
  return atomic_load_explicit(&profile(s)->uses, memory_order_relaxed);
}

static double gain_of(const lb_queue *q, const lb_slot *slot) {
  double gain = q->gain[slot->key.spec.form][slot->in_pack];
  return gain > MIN_GAIN ? gain : MIN_GAIN;
}

double lb_queue_priority(const lb_queue *q, const lb_slot *slot) {
  double ns =
      (double)atomic_load_explicit(&profile(slot)->ns, memory_order_relaxed);
  if (ns <= 0) {
    ns = uses_of(slot) ? UNMEASURED_NS * uses_of(slot) : 1;
    if (lb_spec_is_critical(&slot->key.spec)) ns *= CRITICAL_BONUS;
  }
  return ns * gain_of(q, slot) / q->cost_us[slot->key.spec.form];
}

double lb_queue_payback(const lb_queue *q, const lb_slot *slot) {
  return 1e-3 * lb_queue_priority(q, slot) / WINDOW_S;  // ns per us
}

static void learn(double *x, double seen) { *x += LEARN_RATE * (seen - *x); }

void lb_queue_learn_cost(lb_queue *q, const lb_slot *slot, double us) {
  learn(&q->cost_us[slot->key.spec.form], us > 1 ? us : 1);
}

void lb_queue_learn_gain(lb_queue *q, const lb_slot *slot, double ratio) {
  double gain = ratio > 1 ? 1 - 1 / ratio : ratio - 1;
  learn(&q->gain[slot->key.spec.form][slot->in_pack], gain);
}

// -- contents ----------------------------------------------------------------

static int urgency(const lb_slot *s) {
  return atomic_load_explicit(&profile(s)->urgent, memory_order_relaxed);
}

static void release(lb_slot *slot) {
  atomic_store(&profile(slot)->queued, false);
}

static lb_slot *remove_at(lb_queue *q, size_t i) {
  lb_slot *slot = q->slots[i];
  q->slots[i] = q->slots[--q->n];
  return slot;
}

// More urgent, or else of higher priority.
static bool is_before(const lb_queue *q, const lb_slot *a, const lb_slot *b) {
  int x = urgency(a), y = urgency(b);
  if (x != y) return x > y;
  if (q->fifo) return profile(a)->seq < profile(b)->seq;
  return lb_queue_priority(q, a) > lb_queue_priority(q, b);
}

static void drop(const lb_queue *q, lb_slot *slot, lb_reason why) {
  lb_event e = {.kind = LB_EVENT_KERNEL_DROPPED, .reason = why};
  release(slot);
  lb_slot_emit(q->hub, slot, &e, "%s", "");
}

static void emit_queued(const lb_queue *q, const lb_slot *slot) {
  lb_event e = {.kind = LB_EVENT_KERNEL_QUEUED, .reason = LB_REASON_USED};
  if (urgency(slot)) {
    e.reason = LB_REASON_REQUESTED;
  } else if (!uses_of(slot)) {
    e.reason = LB_REASON_NO_KERNEL;
  }
  lb_slot_emit(q->hub, slot, &e, "%s", "");
}

void lb_queue_put(lb_queue *q, lb_slot *slot) {
  emit_queued(q, slot);
  profile(slot)->seq = ++q->last_seq;
  if (q->n < LB_QUEUE_MAX) {
    q->slots[q->n++] = slot;
    return;
  }
  size_t least = 0;
  for (size_t i = 1; i < q->n; i++)
    if (is_before(q, q->slots[least], q->slots[i])) least = i;
  if (is_before(q, q->slots[least], slot)) {
    drop(q, slot, LB_REASON_QUEUE_FULL);
  } else {
    drop(q, q->slots[least], LB_REASON_QUEUE_FULL);
    q->slots[least] = slot;
  }
}

static int64_t min_wait(int64_t a, int64_t b) { return a < 0 || b < a ? b : a; }

// The threshold doubles with each eviction. Otherwise kernels would be compiled
// forever where the cache is too small for those that runs use.
static bool is_due(const lb_slot *s) {
  unsigned evicted = atomic_load_explicit(&s->evicted, memory_order_relaxed);
  unsigned compile_threshold = atomic_load_explicit(
      &profile(s)->compile_threshold, memory_order_relaxed);
  if (!compile_threshold) compile_threshold = LB_COMPILE_THRESHOLD;
  return uses_of(s) >= (uint64_t)compile_threshold
                           << (evicted < 20 ? evicted : 20);
}

// May it be taken? If not, but time alone will change that, *wait_ns is when.
static bool may_take(const lb_slot *slot, const lb_queue_time *t,
                     int64_t *wait_ns) {
  bool urgent = urgency(slot) > 0;
  int64_t backoff = atomic_load(&profile(slot)->backoff_until) - t->now_ns;
  if (t->urgent && !urgent) return false;
  if (backoff > 0) {
    *wait_ns = min_wait(*wait_ns, backoff);
    return false;
  }
  if (urgent || t->idle || is_due(slot)) return true;
  *wait_ns = min_wait(*wait_ns, IDLE_WAIT_NS);
  return false;
}

// Runs add to these times concurrently. A measured time never becomes 0, which
// means not measured.
static void decay(lb_queue *q, const lb_queue_time *t) {
  if (t->idle || !q->decayed_ns) q->decayed_ns = t->now_ns;
  int64_t halvings = (t->now_ns - q->decayed_ns) / HALF_LIFE_NS;
  if (halvings <= 0) return;
  q->decayed_ns = t->now_ns;
  for (size_t i = 0; i < q->n; i++) {
    _Atomic uint64_t *ns = &profile(q->slots[i])->ns;
    uint64_t before = atomic_load_explicit(ns, memory_order_relaxed);
    uint64_t after = halvings < 64 ? before >> halvings : 0;
    if (before && !after) after = 1;
    atomic_fetch_sub_explicit(ns, before - after, memory_order_relaxed);
  }
}

lb_slot *lb_queue_take(lb_queue *q, const lb_queue_time *t, int64_t *wait_ns) {
  size_t best = SIZE_MAX;
  decay(q, t);
  *wait_ns = -1;
  for (size_t i = 0; i < q->n;) {
    if (!lb_slot_is_pending(q->slots[i])) {
      q->released++;
      release(remove_at(q, i));
      continue;
    }
    if (may_take(q->slots[i], t, wait_ns) &&
        (best == SIZE_MAX || is_before(q, q->slots[i], q->slots[best])))
      best = i;
    i++;
  }
  return best == SIZE_MAX ? NULL : remove_at(q, best);
}

// Below 0 if it could not be taken.
static double payback_at(const lb_queue *q, size_t i, const lb_queue_time *t) {
  int64_t wait_ns = -1;
  bool may =
      lb_slot_is_pending(q->slots[i]) && may_take(q->slots[i], t, &wait_ns);
  return may ? lb_queue_payback(q, q->slots[i]) : -1;
}

double lb_queue_best_payback(lb_queue *q, const lb_queue_time *t) {
  double best = 0;
  decay(q, t);
  for (size_t i = 0; i < q->n; i++) {
    double payback = payback_at(q, i, t);
    if (payback > best) best = payback;
  }
  return best;
}

size_t lb_queue_count(lb_queue *q, const lb_queue_time *t, double payback) {
  size_t n = 0;
  decay(q, t);
  for (size_t i = 0; i < q->n; i++) n += payback_at(q, i, t) >= payback;
  return n;
}

lb_slot *lb_queue_take_unsearched(lb_queue *q) {
  for (size_t i = 0; i < q->n; i++)
    if (!profile(q->slots[i])->searched && lb_slot_is_pending(q->slots[i]))
      return remove_at(q, i);
  return NULL;
}

void lb_queue_drop(lb_queue *q, unsigned session) {
  for (size_t i = 0; i < q->n;) {
    if (atomic_load(&profile(q->slots[i])->session) != session ||
        urgency(q->slots[i])) {
      i++;
      continue;
    }
    q->released++;
    drop(q, remove_at(q, i), LB_REASON_CLOSED);
  }
}

void lb_queue_clear(lb_queue *q) {
  while (q->n) release(remove_at(q, q->n - 1));
}
