// api/store_tools.c -- the public functions of the kernel store.
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "api/cache.h"
#include "api/error.h"
#include "api/options.h"
#include "api/store.h"

struct limber_store {
  lb_store *store;  // owned
  char *path;       // owned; of the directory or the file
  bool is_file;     // it is an exported file, opened read-only
  uint64_t capacity;
  lb_log log;
};

// -- opening ------------------------------------------------------------------

static lb_status path_of(const char *given, char **out) {
  lb_strbuf directory = {0};
  const char *why = NULL;
  if (given) {
    *out = *given == '/' ? strdup(given) : realpath(given, NULL);
    if (*out) return LB_OK;
    return lb_error(LB_IO, "cannot open '%s': %s", given, strerror(errno));
  }
  lb_store_directory(&directory, &why);
  lb_status st = lb_strbuf_status(&directory);
  if (!lb_failed(st) && why)
    st = lb_error(LB_INVALID, "kernels are not stored on disk: %s", why);
  if (!lb_failed(st) && !(*out = strdup(lb_strbuf_str(&directory))))
    st = lb_oom();
  lb_strbuf_fini(&directory);
  return st;
}

static lb_status open_store(limber_store *s, const char *given) {
  struct stat info;
  LB_TRY(path_of(given, &s->path));
  s->is_file = stat(s->path, &info) == 0 && S_ISREG(info.st_mode);
  s->log = (lb_log){.level = LB_LOG_WARN};
  s->capacity = lb_store_capacity(&s->log);
  const char *layer = s->path;
  lb_store_options o = {.directory = s->is_file ? NULL : s->path,
                        .layers = &layer,
                        .n_layers = s->is_file,
                        .capacity = s->capacity,
                        .log = &s->log};
  LB_TRY(lb_store_new(&o, &s->store));
  return LB_OK;
}

limber_status limber_store_open(const char *path, limber_store **out) {
  *out = NULL;
  limber_store *s = calloc(1, sizeof *s);
  lb_status st = s ? open_store(s, path) : lb_oom();
  if (lb_failed(st)) {
    limber_store_close(s);
  } else {
    *out = s;
  }
  return lb_report(st, NULL);
}

void limber_store_close(limber_store *s) {
  if (!s) return;
  lb_store_free(s->store);
  free(s->path);
  free(s);
}

const char *limber_store_path(const limber_store *s) { return s->path; }

// Returns the error of an unusable directory, which the calls below would not
// report.
static lb_status check(limber_store *s) {
  return s->is_file ? LB_OK : lb_store_check(s->store);
}

// -- reading ------------------------------------------------------------------

typedef struct visitor {
  limber_store_fn *fn;
  void *user;
} visitor;

static bool visit_entry(void *user, const lb_store_entry *e) {
  const visitor *p = user;
  char key[33];
  snprintf(key, sizeof key, "%016" PRIx64 "%016" PRIx64, e->key.hi, e->key.lo);
  limber_store_entry entry = {
      .size = sizeof entry,
      .key = key,
      .form = e->form,
      .spec = e->spec,
      .assume = e->assume,
      .target = e->target,
      .reusable = e->reusable,
      .bytes = e->object.size + e->meta.size + e->request.size,
      .created = e->created,
      .used = e->used,
      .checksum = lb_hash_seeded(e->object.data, e->object.size,
                                 lb_hash(e->request.data, e->request.size)),
  };
  return p->fn(p->user, &entry) == 0;
}

limber_status limber_store_each(limber_store *s, limber_store_fn *fn,
                                void *user) {
  visitor p = {fn, user};
  lb_status st = check(s);
  if (!lb_failed(st)) st = lb_store_each(s->store, visit_entry, &p);
  return lb_report(st, NULL);
}

static bool count_bytes(void *user, const lb_store_entry *e) {
  limber_store_info *info = user;
  info->entries++;
  info->bytes += e->object.size + e->meta.size + e->request.size;
  return true;
}

static lb_status read_stats(limber_store *s, limber_store_info *info) {
  lb_store_stats stats, all;
  LB_TRY(check(s));
  lb_store_get_stats(s->store, &stats);
  LB_TRY(lb_store_totals(s->store, &all));
  *info = (limber_store_info){.entries = stats.entries,
                              .bytes = stats.bytes,
                              .capacity = s->capacity,
                              .corrupt = stats.corrupt,
                              .rebuilds = stats.rebuilds,
                              .salvaged = stats.salvaged,
                              .hits = all.hits,
                              .hits_readonly = all.hits_readonly,
                              .misses = all.misses,
                              .waits = all.refusals,
                              .insertions = all.insertions,
                              .evictions = all.evictions,
                              .load_ns = all.get_ns,
                              .store_ns = all.put_ns,
                              .ever_corrupt = all.corrupt};
  if (s->is_file) LB_TRY(lb_store_each(s->store, count_bytes, info));
  return LB_OK;
}

limber_status limber_store_stats(limber_store *s, limber_store_info *out) {
  limber_store_info info = {0};
  lb_status st = read_stats(s, &info);
  if (!lb_failed(st))
    st = lb_options_write("limber_store_info", &info, sizeof info, out);
  return lb_report(st, NULL);
}

limber_status limber_store_verify(limber_store *s, limber_store_check *out) {
  lb_store_verified v;
  limber_store_check result = {0};
  lb_status st = check(s);
  if (!lb_failed(st)) st = lb_store_verify(s->store, &v);
  if (!lb_failed(st)) {
    result.entries = v.entries;
    result.corrupt = v.corrupt;
    memcpy(result.error, v.error, sizeof result.error);
    _Static_assert(sizeof result.error == sizeof v.error, "copied");
    st = lb_options_write("limber_store_check", &result, sizeof result, out);
  }
  return lb_report(st, NULL);
}

// -- changing -----------------------------------------------------------------

static lb_status check_writable(limber_store *s) {
  if (s->is_file)
    return lb_error(LB_INVALID,
                    "'%s' is an exported file, which is read-only; name a "
                    "directory",
                    s->path);
  return lb_store_check(s->store);
}

limber_status limber_store_repair(limber_store *s) {
  lb_status st = check_writable(s);
  if (!lb_failed(st)) st = lb_store_repair(s->store);
  return lb_report(st, NULL);
}

limber_status limber_store_prune(limber_store *s, int64_t since, uint64_t bytes,
                                 uint64_t *removed) {
  uint64_t n = 0;
  lb_status st = check_writable(s);
  if (!lb_failed(st)) st = lb_store_prune(s->store, since, bytes, &n);
  if (removed) *removed = n;
  return lb_report(st, NULL);
}

limber_status limber_store_export(limber_store *s, const char *path,
                                  uint64_t *written) {
  uint64_t n = 0;
  lb_status st = check(s);
  if (!lb_failed(st)) st = lb_store_export(s->store, path, &n);
  if (written) *written = n;
  return lb_report(st, NULL);
}

limber_status limber_store_import(limber_store *s, const char *path,
                                  limber_store_import_info *out) {
  lb_store_imported in = {0};
  limber_store_import_info info = {0};
  lb_status st = check_writable(s);
  if (!lb_failed(st)) st = lb_store_import(s->store, path, &in);
  if (!lb_failed(st) && out) {
    info.added = in.added;
    info.already_present = in.already_present;
    info.corrupt = in.corrupt;
    st = lb_options_write("limber_store_import_info", &info, sizeof info, out);
  }
  return lb_report(st, NULL);
}
