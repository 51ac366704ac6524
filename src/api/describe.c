// api/describe.c -- inputs and outputs of a model as text.
#include "api/describe.h"

#include <string.h>

#define MANY 20  // maximum number of names in one message

// A dim that contains an unnamed symbol is shown as "?".
static lb_status describe_dim(lb_arena *arena, lb_dim d, const char **out) {
  lb_strbuf text = {0};
  lb_dim_print(d, &text);
  const char *shown = lb_strbuf_str(&text);
  *out = lb_arena_strdup(arena, strchr(shown, '?') ? "?" : shown);
  lb_status st = lb_strbuf_status(&text);
  if (!lb_failed(st) && !*out) st = lb_oom();
  lb_strbuf_fini(&text);
  return st;
}

lb_status lb_describe(lb_arena *arena, const char *name, const lb_vinfo *info,
                      limber_value_info *out) {
  size_t n = info->rank > 0 ? (size_t)info->rank : 0;
  const char **dims = lb_arena_new(arena, const char *, n);
  if (!dims) return lb_oom();
  for (size_t i = 0; i < n; i++)
    LB_TRY(describe_dim(arena, info->dims[i], &dims[i]));
  *out = (limber_value_info){name, (limber_dtype)info->dtype, info->rank, dims};
  return LB_OK;
}

void lb_describe_type(const limber_value_info *info, lb_strbuf *out) {
  lb_strbuf_puts(out, limber_dtype_name(info->dtype));
  if (info->rank < 0) return;
  lb_strbuf_putc(out, '[');
  for (int i = 0; i < info->rank; i++)
    lb_strbuf_printf(out, i ? ",%s" : "%s", info->dims[i]);
  lb_strbuf_putc(out, ']');
}

void lb_describe_names(const limber_value_info *infos, size_t n,
                       lb_strbuf *out) {
  for (size_t i = 0; i < n && i < MANY; i++)
    lb_strbuf_printf(out, i ? ", '%s'" : "'%s'", infos[i].name);
  if (n > MANY) lb_strbuf_printf(out, ", ... (%zu in all)", n);
}
