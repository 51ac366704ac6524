// api/found.c -- what a runtime found around it.
#include <stdlib.h>
#include <unistd.h>

#include "api/cache.h"
#include "api/error.h"
#include "api/options.h"
#include "api/runtime.h"
#include "api/store.h"

// Asked for the second time, the environment is not complained about.
static const lb_log silent = {.level = LB_LOG_ERROR};

lb_status lb_found_init(lb_found *f) {
  lb_target target = lb_kernels_target(&silent);
  const char *why;
  *f = (lb_found){0};
  lb_target_print(&target, &f->isa);
  if (lb_kernels_may_compile(&silent)) lb_kernels_worker(&f->worker);
  lb_store_folder(&f->store, &why);
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
  lb_shelf *shelf;
  lb_status st = lb_runtime_of(runtime, &r);
  if (lb_failed(st)) return lb_report(st, NULL);
  st = lb_process_shelf(&r->log, &shelf);
  if (lb_failed(st)) return lb_report(st, &r->log);
  const char *worker = lb_strbuf_str(&r->found.worker);
  limber_runtime_info info = {
      .threads = lb_pool_threads(r->pool),
      .isa = lb_strbuf_str(&r->found.isa),
      .pack = lb_kernels_levels(),
      .worker = worker,
      .worker_found = *worker && access(worker, X_OK) == 0,
      .store = lb_strbuf_str(&r->found.store),
      .prefer_reusable_kernels = r->prefer.reusable,
      .prefer_reusable_from = r->prefer.from,
      .cache_capacity = lb_shelf_capacity(shelf),
  };
  st = lb_options_write("limber_runtime_info", &info, sizeof info, out);
  return lb_report(st, &r->log);
}
