// compile/compile_log.c -- a list of records, and optional dumps of objects.
#include "compile/compile_log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_BYTES 64

lb_status lb_compile_log_init(lb_compile_log *l, const char *directory,
                              const lb_log *log) {
  *l = (lb_compile_log){.log = log};
  lb_arena_init(&l->arena, 4 << 10);
  if (!directory) return LB_OK;
  l->directory = lb_arena_strdup(&l->arena, directory);
  return l->directory ? LB_OK : lb_oom();
}

void lb_compile_log_fini(lb_compile_log *l) {
  lb_map_fini(&l->by_name);
  lb_arena_fini(&l->arena);
}

// -- adding ------------------------------------------------------------------

static lb_status reserve(lb_compile_log *l) {
  if (l->n < l->cap) return LB_OK;
  size_t cap = l->cap ? 2 * l->cap : 32;
  lb_compile_record **list = lb_arena_new(&l->arena, lb_compile_record *, cap);
  if (!list) return lb_oom();
  if (l->n) memcpy(list, l->list, l->n * sizeof *list);
  l->list = list;
  l->cap = cap;
  return LB_OK;
}

// The form is the first word of a spec's text.
static void print_name(const lb_request *r, uint64_t generator,
                       const char *text, char *out) {
  lb_hash128 key = lb_spec_key(&r->spec, &r->facts, r->target, generator);
  snprintf(out, NAME_BYTES, "%.*s-%016" PRIx64 "%016" PRIx64,
           (int)strcspn(text, " "), text, key.hi, key.lo);
}

// Appends a record; `name` is in the arena.
static lb_status append(lb_compile_log *l, const char *name, const char *text,
                        lb_compile_record **out) {
  LB_TRY(reserve(l));
  lb_compile_record *record = lb_arena_new(&l->arena, lb_compile_record, 1);
  if (!record) return lb_oom();
  record->name = name;
  record->text = lb_arena_strdup(&l->arena, text);
  if (!record->text) return lb_oom();
  LB_TRY(lb_map_put(&l->by_name, name, strlen(name), record, NULL));
  *out = l->list[l->n++] = record;
  return LB_OK;
}

static lb_status add(lb_compile_log *l, const char *name, const char *text,
                     lb_compile_record **out) {
  lb_compile_record *old = lb_map_get(&l->by_name, name, strlen(name));
  if (old) {
    old->error = NULL;
    *out = old;
    return LB_OK;
  }
  const char *copy = lb_arena_strdup(&l->arena, name);
  return copy ? append(l, copy, text, out) : lb_oom();
}

lb_status lb_compile_log_add(lb_compile_log *l, const lb_request *request,
                             uint64_t generator, lb_compile_record **out) {
  char name[NAME_BYTES];
  lb_strbuf text = {0};
  lb_spec_print(&request->spec, &text);
  lb_strbuf_puts(&text, "\nfacts ");
  lb_facts_print(&request->facts, &text);
  lb_strbuf_printf(&text, "\ntarget %s\n", request->target);
  lb_status st = lb_strbuf_status(&text);
  if (!lb_failed(st)) {
    print_name(request, generator, lb_strbuf_str(&text), name);
    st = add(l, name, lb_strbuf_str(&text), out);
  }
  lb_strbuf_fini(&text);
  return st;
}

lb_status lb_compile_log_set_error(lb_compile_log *l, lb_compile_record *record,
                                   const char *why) {
  record->error = lb_arena_strdup(&l->arena, why);
  return record->error ? LB_OK : lb_oom();
}

// -- files -------------------------------------------------------------------

static bool write_all(int fd, lb_span bytes) {
  const uint8_t *p = bytes.data;
  for (size_t left = bytes.size; left;) {
    ssize_t n = write(fd, p, left);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    p += n;
    left -= (size_t)n;
  }
  return true;
}

static bool write_file(const lb_compile_log *l, const lb_compile_record *record,
                       const char *suffix, lb_span bytes) {
  lb_strbuf path = {0};
  lb_strbuf_printf(&path, "%s/%s%s", l->directory, record->name, suffix);
  bool ok = !path.failed;
  int fd = ok ? open(lb_strbuf_str(&path),
                     O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)
              : -1;
  ok = fd >= 0 && write_all(fd, bytes);
  if (fd >= 0 && close(fd)) ok = false;
  lb_strbuf_fini(&path);
  return ok;
}

void lb_compile_log_dump(lb_compile_log *l, const lb_compile_record *record,
                         lb_span object) {
  if (!l->directory) return;
  mkdir(l->directory, 0777);
  lb_span text = {(const uint8_t *)record->text, strlen(record->text)};
  if (write_file(l, record, ".o", object) &&
      write_file(l, record, ".txt", text))
    return;
  if (!l->warned)
    lb_log_line(l->log, LB_LOG_WARN, "objects cannot be written to '%s': %s",
                l->directory, strerror(errno));
  l->warned = true;
}
