// observe/window.c -- see window.h.
#include "observe/window.h"

#include <math.h>
#include <stddef.h>

#define CONFIDENCE 1.96  // standard errors: 95 %
#define DRIFT 4.0        // standard errors of the recent mean
#define RECENT 8         // fraction of the half-life
#define MIN_DEVIATION 1e-9

// West's update of mean and variance with a decay.
static void update(double *weight, double *mean, double *variance, double keep,
                   double x) {
  double before = *weight * keep, after = before + 1, delta = x - *mean;
  *mean += delta / after;
  if (variance) *variance = (before * *variance + delta * (x - *mean)) / after;
  *weight = after;
}

void lb_window_add(lb_window *w, double x, double half_life) {
  double keep = exp2(-1 / half_life), recent = exp2(-RECENT / half_life);
  update(&w->weight, &w->mean, &w->variance, keep, x);
  update(&w->recent_weight, &w->recent, NULL, recent, x);
  w->squares = w->squares * keep * keep + 1;
}

lb_window_summary lb_window_summarise(const lb_window *w) {
  lb_window_summary s = {
      .mean = w->mean, .lower = -INFINITY, .upper = INFINITY};
  if (w->squares <= 0) return s;
  s.n = w->weight * w->weight / w->squares;
  if (s.n < 2) return s;
  double deviation = sqrt(w->variance * s.n / (s.n - 1));
  double error = CONFIDENCE * deviation / sqrt(s.n);
  s.lower = s.mean - error;
  s.upper = s.mean + error;
  // The recent mean is part of the mean, which makes this test cautious.
  double noise = deviation / sqrt(w->recent_weight) + MIN_DEVIATION;
  s.drifted = s.n >= 2 * RECENT && fabs(w->recent - w->mean) > DRIFT * noise;
  return s;
}
