// api/found.c -- the environment that the process detected.
#include <stdlib.h>
#include <unistd.h>

#include "api/error.h"
#include "api/options.h"
#include "api/runtime.h"
#include "api/store.h"

lb_status lb_found_init(lb_found *f, const lb_kernels *k) {
  const char *why;
  *f = (lb_found){0};
  lb_target_print(&k->target, &f->isa);
  if (k->may_compile) lb_strbuf_puts(&f->worker, lb_strbuf_str(&k->worker));
  lb_store_directory(&f->store, &why);
  LB_TRY(lb_strbuf_status(&f->isa));
  LB_TRY(lb_strbuf_status(&f->worker));
  return lb_strbuf_status(&f->store);
}

void lb_found_fini(lb_found *f) {
  lb_strbuf_fini(&f->isa);
  lb_strbuf_fini(&f->worker);
  lb_strbuf_fini(&f->store);
}

limber_status limber_runtime_describe(limber_runtime *runtime,
                                      limber_runtime_info *out) {
  limber_runtime *r;
  lb_status st = lb_runtime_of(runtime, &r);
  if (lb_failed(st)) return lb_report(st, NULL);
  const lb_found *found = &r->shared->found;
  const char *worker = lb_strbuf_str(&found->worker);
  limber_runtime_info info = {
      .threads = lb_pool_threads(r->pool),
      .isa = lb_strbuf_str(&found->isa),
      .pack = lb_kernels_levels(),
      .worker = worker,
      .worker_found = *worker && access(worker, X_OK) == 0,
      .store = lb_strbuf_str(&found->store),
      .prefer_reusable_kernels = r->prefer.reusable,
      .prefer_reusable_from = r->prefer.from,
      .cache_capacity = lb_lru_capacity(&r->shared->lru),
  };
  st = lb_options_write("limber_runtime_info", &info, sizeof info, out);
  return lb_report(st, &r->log);
}
