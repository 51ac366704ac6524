// api/passes.c -- the graph passes that the environment disables.
#include "api/passes.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"
#include "graph/pass.h"

static void warn(const lb_log *log, const char *entry, size_t length) {
  static atomic_flag warned = ATOMIC_FLAG_INIT;
  if (atomic_flag_test_and_set(&warned)) return;
  lb_strbuf names = {0};
  for (int i = 0; i < LB_PASS_COUNT; i++)
    lb_strbuf_printf(&names, "%s%s", i ? ", " : "",
                     lb_pass_name((lb_pass_id)i));
  lb_log_line(log, LB_LOG_WARN,
              "LIMBER_PASSES: '%.*s' is ignored: entries are -NAME, with "
              "commas between them, and the names are %s",
              (int)length, entry, lb_strbuf_str(&names));
  lb_strbuf_fini(&names);
}

uint64_t lb_passes_read(const lb_log *log) {
  const char *at = getenv("LIMBER_PASSES");
  uint64_t off = 0;
  if (!at || !*at) return 0;
  for (;; at++) {
    size_t length = strcspn(at, ",");
    lb_pass_id id =
        *at == '-' ? lb_pass_find(at + 1, length - 1) : LB_PASS_COUNT;
    if (id < LB_PASS_COUNT)
      off |= LB_PASS_BIT(id);
    else
      warn(log, at, length < 64 ? length : 64);
    at += length;
    if (!*at) return off;
  }
}
