// partition/zones.c -- finds ranges of positions that have the same taps
// inside.
#include "partition/zones.h"

#include <stddef.h>

static int64_t clamp(int64_t x, int64_t lo, int64_t hi) {
  return x < lo ? lo : x > hi ? hi : x;
}

// The number of taps t of a window at `at` with at + t * dilation < end.
static int64_t taps_below(const lb_axis *a, int64_t at, int64_t end) {
  if (at >= end) return 0;
  return clamp((end - 1 - at) / a->dilation + 1, 0, a->kernel);
}

// The zone of position o only.
static lb_zone zone_at(const lb_axis *a, int64_t o, bool count_pads) {
  int64_t at = o * a->stride - a->before;
  int64_t from = taps_below(a, at, 0), to = taps_below(a, at, a->in);
  if (to < from) to = from;
  return (lb_zone){
      .out = o,
      .out_step = 1,
      .n = 1,
      .in = at + from * a->dilation,
      .in_step = a->stride,
      .taps = to - from,
      .tap_step = a->dilation,
      .weight = from,
      .weight_step = 1,
      .counted = count_pads ? taps_below(a, at, a->in + a->after) : to - from};
}

// The same for a transposed convolution: tap t of input i contributes to
// position i * stride + t - before, so position o has the taps t = (o + before)
// mod stride, t + stride, ..., of inputs in descending order.
static lb_zone transposed_zone_at(const lb_axis *a, int64_t o) {
  int64_t phase = (o + a->before) % a->stride, at = (o + a->before) / a->stride;
  int64_t all = phase < a->kernel ? (a->kernel - 1 - phase) / a->stride + 1 : 0;
  int64_t from = at >= a->in ? at - a->in + 1 : 0;
  int64_t to = at + 1 < all ? at + 1 : all;
  if (to < from) to = from;
  return (lb_zone){.out = o,
                   .out_step = a->stride,
                   .n = 1,
                   .in = at - from,
                   .in_step = 1,
                   .taps = to - from,
                   .tap_step = -1,
                   .weight = phase + from * a->stride,
                   .weight_step = a->stride,
                   .counted = 1};
}

static bool follows(const lb_zone *a, const lb_zone *b) {
  return a->taps == b->taps && a->weight == b->weight &&
         a->counted == b->counted && a->out + a->n * a->out_step == b->out &&
         (a->taps == 0 || a->in + a->n * a->in_step == b->in);
}

// The number of positions from o on that have all taps of a plain window.
static int64_t whole_from(const lb_axis *a, int64_t o) {
  int64_t last_start = a->in - 1 + a->before - (a->kernel - 1) * a->dilation;
  int64_t last = last_start < 0 ? -1 : last_start / a->stride;
  return (last < a->out ? last + 1 : a->out) - o;
}

// The same for a transposed convolution: o is the first of them, positions are
// a stride apart.
static int64_t transposed_whole_from(const lb_axis *a, int64_t o) {
  int64_t left = a->in - (o + a->before) / a->stride;
  int64_t all = (a->out - 1 - o) / a->stride + 1;
  return left < all ? left : all;
}

// Whether a position has all taps that it can have.
static bool is_whole(const lb_axis *a, const lb_zone *z, bool transposed) {
  if (!transposed) return z->taps == a->kernel;
  int64_t phase = (z->out + a->before) % a->stride;
  return phase >= 0 && z->weight == phase && z->in < a->in &&
         phase + z->taps * a->stride >= a->kernel;
}

// Adds the zones of positions from o on, `step` apart.
static bool add_zones(lb_axis *a, int64_t o, int64_t step, bool transposed,
                      bool count_pads) {
  int first = a->n_zones;
  for (; o < a->out;) {
    lb_zone z =
        transposed ? transposed_zone_at(a, o) : zone_at(a, o, count_pads);
    if (is_whole(a, &z, transposed))
      z.n = transposed ? transposed_whole_from(a, o) : whole_from(a, o);
    o += z.n * step;
    lb_zone *last = a->n_zones > first ? &a->zones[a->n_zones - 1] : NULL;
    if (last && follows(last, &z)) {
      last->n += z.n;
      continue;
    }
    if (a->n_zones == LB_MAX_ZONES) return false;
    a->zones[a->n_zones++] = z;
  }
  return true;
}

bool lb_axis_find_zones(lb_axis *a, bool transposed, bool count_pads) {
  int largest = 0;
  int64_t step = transposed ? a->stride : 1;
  a->n_zones = 0;
  for (int64_t o = 0; o < step; o++)
    if (!add_zones(a, o, step, transposed, count_pads)) return false;
  for (int i = 1; i < a->n_zones; i++)
    if (a->zones[i].n > a->zones[largest].n) largest = i;
  lb_zone first = a->zones[0];
  a->zones[0] = a->zones[largest];
  a->zones[largest] = first;
  return a->n_zones > 0;
}
