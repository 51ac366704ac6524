// partition/zones.c -- zones: positions that see the same taps.
#include "partition/zones.h"

#include <stddef.h>

static int64_t clamp(int64_t x, int64_t lo, int64_t hi) {
  return x < lo ? lo : x > hi ? hi : x;
}

// How many taps t of a window at `at` have at + t * dilation < end.
static int64_t taps_below(const lb_axis *a, int64_t at, int64_t end) {
  if (at >= end) return 0;
  return clamp((end - 1 - at) / a->dilation + 1, 0, a->kernel);
}

// The zone of position o alone.
static lb_zone zone_at(const lb_axis *a, int64_t o, bool with_pads) {
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
      .counted = with_pads ? taps_below(a, at, a->in + a->after) : to - from};
}

// The same of a transposed convolution: tap t of input i is added to position
// i * stride + t - before, so position o has the taps t = (o + before) mod
// stride, and on by strides, of inputs ever one less.
static lb_zone turned_zone_at(const lb_axis *a, int64_t o) {
  int64_t rest = (o + a->before) % a->stride, at = (o + a->before) / a->stride;
  int64_t all = rest < a->kernel ? (a->kernel - 1 - rest) / a->stride + 1 : 0;
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
                   .weight = rest + from * a->stride,
                   .weight_step = a->stride,
                   .counted = 1};
}

static bool follows(const lb_zone *a, const lb_zone *b) {
  return a->taps == b->taps && a->weight == b->weight &&
         a->counted == b->counted && a->out + a->n * a->out_step == b->out &&
         (a->taps == 0 || a->in + a->n * a->in_step == b->in);
}

// Positions from o on that have all taps of a plain window.
static int64_t whole_from(const lb_axis *a, int64_t o) {
  int64_t room = a->in - 1 + a->before - (a->kernel - 1) * a->dilation;
  int64_t last = room < 0 ? -1 : room / a->stride;
  return (last < a->out ? last + 1 : a->out) - o;
}

// The same of a transposed one: o is the first of them, positions are a stride
// apart.
static int64_t turned_whole_from(const lb_axis *a, int64_t o) {
  int64_t left = a->in - (o + a->before) / a->stride;
  int64_t all = (a->out - 1 - o) / a->stride + 1;
  return left < all ? left : all;
}

// Has a position all taps that there are for it?
static bool is_whole(const lb_axis *a, const lb_zone *z, bool turned) {
  if (!turned) return z->taps == a->kernel;
  int64_t rest = (z->out + a->before) % a->stride;
  return rest >= 0 && z->weight == rest && z->in < a->in &&
         rest + z->taps * a->stride >= a->kernel;
}

// Adds positions from o on, a step apart.
static bool add_zones(lb_axis *a, int64_t o, int64_t step, bool turned,
                      bool with_pads) {
  int first = a->n_zones;
  for (; o < a->out;) {
    lb_zone z = turned ? turned_zone_at(a, o) : zone_at(a, o, with_pads);
    if (is_whole(a, &z, turned))
      z.n = turned ? turned_whole_from(a, o) : whole_from(a, o);
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

bool lb_axis_find_zones(lb_axis *a, bool turned, bool with_pads) {
  int largest = 0;
  int64_t step = turned ? a->stride : 1;
  a->n_zones = 0;
  for (int64_t o = 0; o < step; o++)
    if (!add_zones(a, o, step, turned, with_pads)) return false;
  for (int i = 1; i < a->n_zones; i++)
    if (a->zones[i].n > a->zones[largest].n) largest = i;
  lb_zone first = a->zones[0];
  a->zones[0] = a->zones[largest];
  a->zones[largest] = first;
  return a->n_zones > 0;
}
