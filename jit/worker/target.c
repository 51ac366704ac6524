// worker/target.c -- targets from text.
#include "worker/target.h"

#include <stdio.h>
#include <string.h>

static bool is_word(const char *p, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (!(p[i] >= 'a' && p[i] <= 'z') && !(p[i] >= '0' && p[i] <= '9') &&
        p[i] != '-' && p[i] != '.')
      return false;
  return n > 0;
}

static uint32_t feature_bit(const char *p, size_t n) {
  for (lb_feature f = 0; f < LB_FEATURE_COUNT; f++)
    if (strlen(lb_feature_name(f)) == n && !memcmp(lb_feature_name(f), p, n))
      return 1u << f;
  return 0;
}

static lb_status parse_level(const char *p, size_t n, lb_jit_target *out) {
  char level[32];
  snprintf(level, sizeof level, "%.*s", n < 31 ? (int)n : 31, p);
  out->lower = lb_lower_target_find(level);
  if (!strcmp(level, "x86-64-v3")) out->render.level = LB_LEVEL_V3;
  if (!strcmp(level, "x86-64-v4")) out->render.level = LB_LEVEL_V4;
  if (!out->lower || !out->render.level)
    return lb_error(LB_UNSUPPORTED,
                    "target '%s': there are kernels for x86-64-v3 and "
                    "x86-64-v4",
                    level);
  return LB_OK;
}

// Of LLVM's, or a trait that code is chosen by; others are of no use.
static void take_feature(const char *p, size_t n, lb_jit_target *out) {
  char name[64];
  snprintf(name, sizeof name, "%s+%.*s", out->lower->level, (int)n, p);
  const lb_lower_target *with = lb_lower_target_find(name);
  if (with) out->lower = with;
  out->render.features |= feature_bit(p, n);
}

lb_status lb_jit_target_parse(const char *text, lb_jit_target *out) {
  *out = (lb_jit_target){0};
  for (const char *p = text; p;) {
    const char *end = strchrnul(p, '+');
    size_t n = (size_t)(end - p);
    if (!is_word(p, n))
      return lb_error(LB_INVALID, "target '%s': not a level and features",
                      text);
    if (p == text)
      LB_TRY(parse_level(p, n, out));
    else
      take_feature(p, n, out);
    p = *end ? end + 1 : NULL;
  }
  return lb_target_check(&out->render);
}

bool lb_jit_target_runs(const lb_jit_target *t) {
  lb_target host;
  lb_status st = lb_target_host(&host);
  bool runs = !lb_failed(st) && t->render.level <= host.level &&
              !(t->render.features & ~host.features);
  lb_status_drop(st);
  return runs;
}
