// compile/compile_log.c -- a list, and files of those who asked for them.
#include "compile/compile_log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_BYTES 64

lb_status lb_compile_log_init(lb_compile_log *b, const char *folder,
                              const lb_log *log) {
  *b = (lb_compile_log){.log = log};
  lb_arena_init(&b->arena, 4 << 10);
  if (!folder) return LB_OK;
  b->folder = lb_arena_strdup(&b->arena, folder);
  return b->folder ? LB_OK : lb_oom();
}

void lb_compile_log_fini(lb_compile_log *b) {
  lb_map_fini(&b->by_name);
  lb_arena_fini(&b->arena);
}

// -- adding ------------------------------------------------------------------

static lb_status reserve(lb_compile_log *b) {
  if (b->n < b->cap) return LB_OK;
  size_t cap = b->cap ? 2 * b->cap : 32;
  lb_compile_record **list = lb_arena_new(&b->arena, lb_compile_record *, cap);
  if (!list) return lb_oom();
  if (b->n) memcpy(list, b->list, b->n * sizeof *list);
  b->list = list;
  b->cap = cap;
  return LB_OK;
}

// The form is the first word of a spec's text.
static void print_name(const lb_request *r, uint64_t generator,
                       const char *text, char *out) {
  lb_hash128 key = lb_spec_key(&r->spec, &r->facts, r->target, generator);
  snprintf(out, NAME_BYTES, "%.*s-%016" PRIx64 "%016" PRIx64,
           (int)strcspn(text, " "), text, key.hi, key.lo);
}

// Appends one; its name is in the arena.
static lb_status append(lb_compile_log *b, const char *name, const char *text,
                        lb_compile_record **out) {
  LB_TRY(reserve(b));
  lb_compile_record *built = lb_arena_new(&b->arena, lb_compile_record, 1);
  if (!built) return lb_oom();
  built->name = name;
  built->text = lb_arena_strdup(&b->arena, text);
  if (!built->text) return lb_oom();
  LB_TRY(lb_map_put(&b->by_name, name, strlen(name), built, NULL));
  *out = b->list[b->n++] = built;
  return LB_OK;
}

static lb_status add(lb_compile_log *b, const char *name, const char *text,
                     lb_compile_record **out) {
  lb_compile_record *old = lb_map_get(&b->by_name, name, strlen(name));
  if (old) {
    old->refused = NULL;
    *out = old;
    return LB_OK;
  }
  const char *copy = lb_arena_strdup(&b->arena, name);
  return copy ? append(b, copy, text, out) : lb_oom();
}

lb_status lb_compile_log_add(lb_compile_log *b, const lb_request *request,
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
    st = add(b, name, lb_strbuf_str(&text), out);
  }
  lb_strbuf_fini(&text);
  return st;
}

lb_status lb_compile_log_refuse(lb_compile_log *b, lb_compile_record *built,
                                const char *why) {
  built->refused = lb_arena_strdup(&b->arena, why);
  return built->refused ? LB_OK : lb_oom();
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

static bool write_file(const lb_compile_log *b, const lb_compile_record *built,
                       const char *suffix, lb_span bytes) {
  lb_strbuf path = {0};
  lb_strbuf_printf(&path, "%s/%s%s", b->folder, built->name, suffix);
  bool ok = !path.failed;
  int fd = ok ? open(lb_strbuf_str(&path),
                     O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)
              : -1;
  ok = fd >= 0 && write_all(fd, bytes);
  if (fd >= 0 && close(fd)) ok = false;
  lb_strbuf_fini(&path);
  return ok;
}

void lb_compile_log_dump(lb_compile_log *b, const lb_compile_record *built,
                         lb_span object) {
  if (!b->folder) return;
  mkdir(b->folder, 0777);
  lb_span text = {(const uint8_t *)built->text, strlen(built->text)};
  if (write_file(b, built, ".o", object) && write_file(b, built, ".txt", text))
    return;
  if (!b->told)
    lb_log_line(b->log, LB_LOG_WARN, "objects cannot be written to '%s': %s",
                b->folder, strerror(errno));
  b->told = true;
}
