// session/record.c -- records the signatures of runs in a file.
//
// Lock order: `set_lock`, then `lock`. A run takes only `lock`, to update one
// table entry. For writing, the signatures are copied under `lock` and printed
// afterwards.
#include "session/record.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/lock.h"
#include "base/map.h"
#include "base/thread.h"
#include "session/shapes.h"

#define WRITE_PERIOD_S 5   // between writes of the file
#define INLINE_BYTES 1024  // larger keys are allocated

typedef struct entry {
  struct entry *prev, *next;
  uint64_t count;
  size_t size;
  char key[];
} entry;

struct lb_recorder {
  const lb_graph *graph;     // borrowed
  const lb_log *log;         // borrowed
  pthread_mutex_t set_lock;  // serialises lb_recorder_set
  lb_lock lock;              // protects `map` to `stop`
  lb_map map;                // key -> entry, owned
  entry *first, *last;       // most recent first
  char *path;                // owned; NULL: nothing is recorded
  bool changed;              // since the file was written
  bool stop;                 // asks the thread to end
  bool warned;               // the last write failed and was logged
  pthread_cond_t wake;
  pthread_t thread;
  bool running;        // there is a thread; protected by set_lock
  unsigned forks;      // fork count when the recorder was created
  uint8_t deciding[];  // lb_deciding per input
};

// -- keys --------------------------------------------------------------------
// A key encodes a signature: for each output, whether it is wanted; for each
// input, its dtype, rank and dims, and its contents if they decide shapes.

typedef struct record_key {
  char small[INLINE_BYTES];
  char *data;
  size_t size;
} record_key;

static void put(record_key *k, const void *p, size_t n) {
  memcpy(k->data + k->size, p, n);
  k->size += n;
}

static void put_contents(record_key *k, const lb_tensor *t) {
  lb_tensor dense = *t;
  lb_tensor_dense(&dense);
  dense.data = k->data + k->size;
  lb_tensor_copy(t, &dense);
  k->size += lb_tensor_bytes(t);
}

static bool has_contents(const lb_recorder *r, uint32_t i, const lb_tensor *t) {
  return lb_deciding_reads((lb_deciding)r->deciding[i], t);
}

static bool key_init(record_key *k, const lb_recorder *rec, const lb_tensor *in,
                     const lb_output *out) {
  const lb_region *r = rec->graph->main;
  size_t size = r->n_results;
  for (uint32_t i = 0; i < r->n_params; i++) {
    size += 8 + (size_t)in[i].rank * sizeof *in[i].dims;
    if (has_contents(rec, i, &in[i])) size += lb_tensor_bytes(&in[i]);
  }
  k->size = 0;
  k->data = size <= INLINE_BYTES ? k->small : malloc(size);
  if (!k->data) return false;
  for (uint32_t i = 0; i < r->n_results; i++)
    put(k, &(char){(char)out[i].wanted}, 1);
  for (uint32_t i = 0; i < r->n_params; i++) {
    int32_t header[2] = {(int32_t)in[i].dtype, in[i].rank};
    put(k, header, sizeof header);
    put(k, in[i].dims, (size_t)in[i].rank * sizeof *in[i].dims);
    if (has_contents(rec, i, &in[i])) put_contents(k, &in[i]);
  }
  return true;
}

static void key_fini(record_key *k) {
  if (k->data != k->small) free(k->data);
}

// Decodes a key. `s` has space for all inputs and outputs; the data of its
// inputs points into the key.
static void key_read(const lb_recorder *rec, char *at,
                     lb_recorded_signature *s) {
  const lb_region *r = rec->graph->main;
  uint32_t wanted = 0;
  for (uint32_t i = 0; i < r->n_results; i++)
    if (at[i]) s->outputs[wanted++] = rec->graph->output_names[i];
  s->n_outputs = wanted;
  if (wanted == r->n_results) s->outputs = NULL;
  at += r->n_results;
  s->n_inputs = r->n_params;
  for (uint32_t i = 0; i < r->n_params; i++) {
    lb_tensor *t = &s->inputs[i];
    int32_t header[2];
    memcpy(header, at, sizeof header);
    at += sizeof header;
    *t = (lb_tensor){.dtype = (lb_dtype)header[0], .rank = header[1]};
    memcpy(t->dims, at, (size_t)t->rank * sizeof *t->dims);
    at += (size_t)t->rank * sizeof *t->dims;
    lb_tensor_dense(t);
    s->names[i] = r->params[i]->name;
    if (!has_contents(rec, i, t)) continue;
    t->data = at;
    at += lb_tensor_bytes(t);
  }
}

// -- the table; with the lock held --------------------------------------------

static void unlink_entry(lb_recorder *r, entry *e) {
  *(e->prev ? &e->prev->next : &r->first) = e->next;
  *(e->next ? &e->next->prev : &r->last) = e->prev;
}

static void push_front(lb_recorder *r, entry *e) {
  e->prev = NULL;
  e->next = r->first;
  *(r->first ? &r->first->prev : &r->last) = e;
  r->first = e;
}

static void drop(lb_recorder *r, entry *e) {
  unlink_entry(r, e);
  lb_map_remove(&r->map, e->key, e->size);
  free(e);
}

static void clear(lb_recorder *r) {
  while (r->first) drop(r, r->first);
}

// Adds `times` to the count of a key and makes it the most recent. Without
// memory for a new key, the key is skipped.
static void count_key(lb_recorder *r, const record_key *k, uint64_t times) {
  entry *e = lb_map_get(&r->map, k->data, k->size);
  if (e) {
    unlink_entry(r, e);
  } else {
    if (r->map.count == LB_RECORD_MAX) drop(r, r->last);
    e = malloc(sizeof *e + k->size);
    if (!e) return;
    *e = (entry){.size = k->size};
    memcpy(e->key, k->data, k->size);
    lb_status st = lb_map_put(&r->map, e->key, e->size, e, NULL);
    if (lb_failed(st)) {
      lb_status_drop(st);
      free(e);
      return;
    }
  }
  e->count += times;
  push_front(r, e);
  r->changed = true;
}

void lb_recorder_note(lb_recorder *r, const lb_tensor *inputs,
                      const lb_output *outputs) {
  record_key k;
  if (lb_fork_count() != r->forks || !key_init(&k, r, inputs, outputs)) return;
  lb_lock_take(&r->lock);
  if (r->path) count_key(r, &k, 1);
  lb_lock_give(&r->lock);
  key_fini(&k);
}

// -- writing -----------------------------------------------------------------

typedef struct copy {  // a copy of all entries
  char *bytes;         // owned; the entries, contiguous
  entry **list;        // owned; points into bytes
  size_t n;
  char *path;  // owned
} copy;

static void copy_fini(copy *c) {
  free(c->bytes);
  free(c->list);
  free(c->path);
}

static size_t padded(const entry *e) {
  return (sizeof *e + e->size + 15) / 16 * 16;
}

// Call with the lock held.
static lb_status take_copy(lb_recorder *r, copy *c) {
  size_t size = 1;
  for (const entry *e = r->first; e; e = e->next) size += padded(e);
  c->bytes = malloc(size);
  c->list = malloc((r->map.count + 1) * sizeof *c->list);
  c->path = strdup(r->path);
  if (!c->bytes || !c->list || !c->path) return lb_oom();
  char *at = c->bytes;
  for (const entry *e = r->first; e; e = e->next) {
    memcpy(at, e, sizeof *e + e->size);
    c->list[c->n++] = (entry *)(void *)at;
    at += padded(e);
  }
  r->changed = false;
  return LB_OK;
}

// The most frequent first, and then the smaller key, so that equal tables give
// equal files.
static int compare(const void *a, const void *b) {
  const entry *x = *(entry *const *)a, *y = *(entry *const *)b;
  if (x->count != y->count) return x->count < y->count ? 1 : -1;
  size_t n = x->size < y->size ? x->size : y->size;
  int order = memcmp(x->key, y->key, n);
  return order ? order : (x->size > y->size) - (x->size < y->size);
}

static lb_status print(const lb_recorder *r, const copy *c, lb_strbuf *out) {
  const lb_region *main = r->graph->main;
  size_t n = (size_t)main->n_params + main->n_results + 1;
  const char **names = calloc(2 * n, sizeof *names);
  lb_tensor *inputs = calloc(n, sizeof *inputs);
  lb_status st = names && inputs ? LB_OK : lb_oom();
  lb_shapes_print_header(out);
  for (size_t i = 0; !lb_failed(st) && i < c->n; i++) {
    lb_recorded_signature s = {.count = c->list[i]->count,
                               .names = names,
                               .inputs = inputs,
                               .outputs = names + n};
    key_read(r, c->list[i]->key, &s);
    lb_shapes_print(&s, out);
  }
  free(names);
  free(inputs);
  return lb_failed(st) ? st : lb_strbuf_status(out);
}

static lb_status write_copy(const lb_recorder *r, copy *c) {
  lb_strbuf text = {0};
  qsort(c->list, c->n, sizeof *c->list, compare);
  lb_status st = print(r, c, &text);
  if (!lb_failed(st))
    st = lb_file_replace(
        c->path, (lb_span){(const uint8_t *)lb_strbuf_str(&text), text.len});
  lb_strbuf_fini(&text);
  return st;
}

// Succeeds if there is nothing to write.
static lb_status write_now(lb_recorder *r) {
  copy c = {0};
  lb_lock_take(&r->lock);
  bool due = r->path && r->changed;
  lb_status st = due ? take_copy(r, &c) : LB_OK;
  lb_lock_give(&r->lock);
  if (due && !lb_failed(st)) st = write_copy(r, &c);
  copy_fini(&c);
  if (!lb_failed(st)) return st;
  lb_lock_take(&r->lock);
  r->changed = true;
  lb_lock_give(&r->lock);
  return st;
}

static void warn(lb_recorder *r, lb_status st) {
  if (lb_failed(st) && !r->warned)
    lb_log_line(r->log, LB_LOG_WARN, "shapes are not recorded: %s",
                lb_status_message(st));
  r->warned = lb_failed(st);
  lb_status_drop(st);
}

static void *write_often(void *user) {
  lb_recorder *r = user;
  lb_thread_name("limber-shapes");
  lb_lock_take(&r->lock);
  while (!r->stop) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += WRITE_PERIOD_S;
    pthread_cond_timedwait(&r->wake, &r->lock.mutex, &t);
    if (r->stop) break;
    lb_lock_give(&r->lock);
    warn(r, write_now(r));
    lb_lock_take(&r->lock);
  }
  lb_lock_give(&r->lock);
  return NULL;
}

// -- setting the file ---------------------------------------------------------

static void stop_thread(lb_recorder *r) {
  if (!r->running) return;
  lb_lock_take(&r->lock);
  r->stop = true;
  pthread_cond_signal(&r->wake);
  lb_lock_give(&r->lock);
  pthread_join(r->thread, NULL);
  r->running = r->stop = false;
}

static lb_status start_thread(lb_recorder *r) {
  r->running = !lb_thread_start(write_often, r, &r->thread);
  return r->running
             ? LB_OK
             : lb_error(LB_OOM, "cannot start the thread that writes shapes");
}

// Finds input i of the model in a recorded signature.
static lb_status take_input(const lb_recorder *r,
                            const lb_recorded_signature *s, uint32_t i,
                            lb_tensor *out) {
  const char *name = r->graph->main->params[i]->name;
  for (uint32_t k = 0; k < s->n_inputs; k++) {
    if (strcmp(s->names[k], name)) continue;
    *out = s->inputs[k];
    if (!has_contents(r, i, out) || out->data) return LB_OK;
    return lb_error(LB_INVALID,
                    "a signature does not have the contents of input '%s'",
                    name);
  }
  return lb_error(LB_INVALID,
                  "the file is of another model: it has no input '%s'", name);
}

static void take_outputs(const lb_recorder *r, const lb_recorded_signature *s,
                         lb_output *out) {
  for (uint32_t i = 0; i < r->graph->main->n_results; i++) {
    out[i].wanted = !s->outputs;
    for (uint32_t k = 0; k < s->n_outputs; k++)
      if (!strcmp(s->outputs[k], r->graph->output_names[i]))
        out[i].wanted = true;
  }
}

static lb_status count_signature(lb_recorder *r,
                                 const lb_recorded_signature *s) {
  const lb_region *main = r->graph->main;
  lb_tensor *in = calloc(main->n_params + 1u, sizeof *in);
  lb_output *out = calloc(main->n_results + 1u, sizeof *out);
  record_key k;
  lb_status st = in && out ? LB_OK : lb_oom();
  for (uint32_t i = 0; !lb_failed(st) && i < main->n_params; i++)
    st = take_input(r, s, i, &in[i]);
  if (!lb_failed(st)) take_outputs(r, s, out);
  if (!lb_failed(st) && key_init(&k, r, in, out)) {
    lb_lock_take(&r->lock);
    count_key(r, &k, s->count);
    lb_lock_give(&r->lock);
    key_fini(&k);
  }
  free(in);
  free(out);
  return st;
}

// Reads the signatures of the file, if it exists. The least frequent are
// counted first, so that they are the least recent and are dropped first.
static lb_status load_counts(lb_recorder *r, const char *path) {
  lb_shapes shapes = {0};
  if (!lb_file_exists(path)) return LB_OK;
  lb_status st = lb_shapes_read(path, &shapes);
  for (size_t i = shapes.n; !lb_failed(st) && i--;) {
    st = count_signature(r, &shapes.list[i]);
    if (lb_failed(st)) st = lb_status_note(st, "%s", path);
  }
  lb_shapes_fini(&shapes);
  return st;
}

// Stops the thread, writes changes, then clears the table and the file name.
static lb_status finish(lb_recorder *r) {
  stop_thread(r);
  lb_status st = write_now(r);
  lb_lock_take(&r->lock);
  clear(r);
  free(r->path);
  r->path = NULL;
  r->changed = false;
  lb_lock_give(&r->lock);
  return st;
}

static lb_status begin(lb_recorder *r, const char *path) {
  char *own = strdup(path);
  if (!own) return lb_oom();
  lb_status st = load_counts(r, path);
  lb_lock_take(&r->lock);
  r->path = own;
  r->changed = true;
  lb_lock_give(&r->lock);
  if (!lb_failed(st)) st = write_now(r);  // checks that it can be written
  if (!lb_failed(st)) st = start_thread(r);
  if (!lb_failed(st)) return st;
  lb_lock_take(&r->lock);
  r->changed = false;  // leave the file as it is
  lb_lock_give(&r->lock);
  lb_status_drop(finish(r));
  return st;
}

lb_status lb_recorder_set(lb_recorder *r, const char *path) {
  if (lb_fork_count() != r->forks)
    return lb_error(LB_UNSUPPORTED, "a forked child records no shapes");
  pthread_mutex_lock(&r->set_lock);
  lb_status st = finish(r);
  if (!lb_failed(st) && path) st = begin(r, path);
  pthread_mutex_unlock(&r->set_lock);
  return st;
}

// -- lifecycle ---------------------------------------------------------------

static void init_wake(pthread_cond_t *wake) {
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(wake, &monotonic);
  pthread_condattr_destroy(&monotonic);
}

lb_status lb_recorder_new(const lb_program *prog, const lb_log *log,
                          lb_recorder **out) {
  const lb_region *main = prog->graph->main;
  lb_recorder *r = *out = calloc(1, sizeof *r + main->n_params);
  if (!r) return lb_oom();
  r->graph = prog->graph;
  for (uint32_t i = 0; i < main->n_params; i++)
    r->deciding[i] = prog->deciding[main->params[i]->id];
  r->log = log;
  lb_status st = lb_lock_init(&r->lock);
  if (lb_failed(st)) {
    free(r);
    *out = NULL;
    return st;
  }
  pthread_mutex_init(&r->set_lock, NULL);
  init_wake(&r->wake);
  r->forks = lb_fork_count();
  return LB_OK;
}

void lb_recorder_free(lb_recorder *r) {
  if (!r) return;
  if (lb_fork_count() == r->forks) {
    warn(r, finish(r));
    pthread_cond_destroy(&r->wake);
  }
  clear(r);
  free(r->path);
  lb_map_fini(&r->map);
  pthread_mutex_destroy(&r->set_lock);
  lb_lock_fini(&r->lock);
  free(r);
}
