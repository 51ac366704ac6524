// kir/testkit.h -- For tests: converts kernels from and to text.
#ifndef LB_KIR_TESTKIT_H
#define LB_KIR_TESTKIT_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#include "kir/build.h"
#include "kir/interp.h"
#include "kir/kir.h"

static inline void assert_ok(lb_status st) {
  if (!lb_failed(st)) return;
  print_error("%s (%s)\n", lb_status_message(st), lb_status_where(st));
  lb_status_drop(st);
  fail();
}

// Fails unless `st` is an error with this code whose message contains `part`.
static inline void assert_error(lb_status st, lb_code code, const char *part) {
  if (lb_status_code(st) != code || !strstr(lb_status_message(st), part)) {
    print_error("wanted %s '%s', got %s '%s'\n", lb_code_name(code), part,
                lb_code_name(lb_status_code(st)), lb_status_message(st));
    lb_status_drop(st);
    fail();
  }
  lb_status_drop(st);
}

// A verified kernel; `body` is its text without the first line.
static inline lb_kernel kernel_of(const char *body) {
  lb_kernel k;
  lb_strbuf text = {0};
  lb_strbuf_puts(&text, "kernel test local 1 1 1\n");
  lb_strbuf_puts(&text, body);
  assert_ok(lb_kernel_parse(lb_strbuf_str(&text), &k));
  assert_ok(lb_kernel_verify(&k));
  lb_strbuf_fini(&text);
  return k;
}

// The text of k without its first line; the caller frees `out` with
// lb_strbuf_fini.
static inline const char *body_of(const lb_kernel *k, lb_strbuf *out) {
  lb_kernel_print(k, out);
  assert_ok(lb_strbuf_status(out));
  return strchr(out->data, '\n') + 1;
}

static inline lb_status run_kernel(const lb_kernel *k, const lb_karg *args,
                                   uint32_t n_args, uint32_t groups) {
  lb_kinterp *m;
  lb_status st = lb_kinterp_new(k, &m);
  if (lb_failed(st)) return st;
  st = lb_kinterp_run(m, &(lb_klaunch){.args = args,
                                       .n_args = n_args,
                                       .groups = {groups, 1, 1},
                                       .budget = 10000000});
  lb_kinterp_free(m);
  return st;
}

#endif
