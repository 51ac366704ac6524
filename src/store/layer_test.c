// store/layer_test.c -- a store over in-memory layers instead of SQLite files.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "store/store_internal.h"

// Holds one entry in memory, and counts the calls.
typedef struct memory {
  lb_layer base;
  lb_hash128 key;
  char object[16];
  size_t size;  // 0: empty
  int gets, leases, releases, flushes, *freed;
  bool busy;  // another process holds every lease
} memory;

static bool memory_get(lb_layer *l, lb_hash128 key, lb_span request,
                       lb_store_hit *out) {
  memory *m = (memory *)l;
  (void)request;
  m->gets++;
  if (!m->size || m->key.lo != key.lo) return false;
  out->object = (lb_blob){malloc(m->size), m->size};
  assert_non_null(out->object.data);
  memcpy(out->object.data, m->object, m->size);
  l->core->stats.hits++;
  return true;
}

static lb_status memory_put(lb_layer *l, const lb_store_entry *e) {
  memory *m = (memory *)l;
  m->key = e->key;
  m->size = e->object.size;
  memcpy(m->object, e->object.data, m->size);
  l->core->stats.insertions++;
  return LB_OK;
}

static lb_status memory_drop(lb_layer *l, lb_hash128 key) {
  memory *m = (memory *)l;
  if (m->key.lo == key.lo) m->size = 0;
  return LB_OK;
}

static lb_lease_state memory_lease(lb_layer *l, lb_hash128 key,
                                   double seconds) {
  memory *m = (memory *)l;
  (void)key, (void)seconds;
  m->leases++;
  return m->busy ? LB_LEASE_BUSY : LB_LEASE_GRANTED;
}

static void memory_release(lb_layer *l, lb_hash128 key) {
  (void)key;
  ((memory *)l)->releases++;
}

static lb_status memory_flush(lb_layer *l) {
  ((memory *)l)->flushes++;
  return LB_OK;
}

static void memory_before_fork(lb_layer *l) { (void)l; }
static void memory_free(lb_layer *l) { ++*((memory *)l)->freed; }

static const lb_layer_ops writable_ops = {.get = memory_get,
                                          .put = memory_put,
                                          .drop = memory_drop,
                                          .lease = memory_lease,
                                          .release = memory_release,
                                          .flush = memory_flush,
                                          .before_fork = memory_before_fork,
                                          .free = memory_free};
static const lb_layer_ops readonly_ops = {
    .get = memory_get, .before_fork = memory_before_fork, .free = memory_free};

static int freed;

static lb_store *store_of(memory *layers, int n) {
  lb_store *s;
  lb_status st = lb_store_new(&(lb_store_options){0}, &s);
  assert_false(lb_failed(st));
  for (int i = 0; i < n; i++) {
    layers[i].base.core = &s->core;
    layers[i].freed = &freed;
    s->layers[s->n_layers++] = &layers[i].base;
  }
  freed = 0;
  return s;
}

static bool has(lb_store *s, uint64_t key, const char *object) {
  lb_store_hit found;
  if (!lb_store_get(s, (lb_hash128){.lo = key}, (lb_span){0}, &found))
    return false;
  bool same = found.object.size == strlen(object) &&
              !memcmp(found.object.data, object, found.object.size);
  lb_store_hit_fini(&found);
  return same;
}

static lb_status put(lb_store *s, uint64_t key, const char *object) {
  lb_span bytes = {(const uint8_t *)object, strlen(object)};
  lb_store_entry e = {.key = {.lo = key}, .object = bytes};
  return lb_store_put(s, &e);
}

static void layers_are_searched_in_order_and_the_first_is_written(
    void **state) {
  (void)state;
  memory m[2] = {{.base.ops = &writable_ops}, {.base.ops = &readonly_ops}};
  lb_store *s = store_of(m, 2);
  m[1].key.lo = 7;
  m[1].size = 3;
  memcpy(m[1].object, "far", 3);
  assert_true(has(s, 7, "far"));
  assert_int_equal(m[0].gets, 1);
  lb_status st = put(s, 7, "near");
  assert_false(lb_failed(st));
  assert_true(has(s, 7, "near"));
  assert_int_equal(m[1].gets, 1);  // the first had it
  assert_false(has(s, 8, ""));
  lb_store_stats stats;
  lb_store_get_stats(s, &stats);
  assert_int_equal(stats.hits, 2);
  assert_int_equal(stats.misses, 1);
  assert_int_equal(stats.insertions, 1);
  st = lb_store_drop(s, (lb_hash128){.lo = 7});
  assert_false(lb_failed(st));
  assert_true(has(s, 7, "far"));
  lb_store_free(s);
  assert_int_equal(m[0].flushes, 1);
  assert_int_equal(freed, 2);
}

static void leases_come_from_the_writable_layer(void **state) {
  (void)state;
  memory m[1] = {{.base.ops = &writable_ops}};
  lb_store *s = store_of(m, 1);
  lb_hash128 key = {.lo = 1};
  assert_int_equal(lb_store_lease(s, key, 1), LB_LEASE_GRANTED);
  lb_store_release(s, key);
  m[0].busy = true;
  assert_int_equal(lb_store_lease(s, key, 1), LB_LEASE_BUSY);
  assert_int_equal(m[0].leases, 2);
  assert_int_equal(m[0].releases, 1);
  lb_store_stats stats;
  lb_store_get_stats(s, &stats);
  assert_int_equal(stats.leases, 1);
  assert_int_equal(stats.refusals, 1);
  lb_store_free(s);
}

static void nothing_is_stored_if_all_layers_are_read_only(void **state) {
  (void)state;
  memory m[1] = {{.base.ops = &readonly_ops}};
  lb_store *s = store_of(m, 1);
  lb_status st = put(s, 1, "x");
  assert_int_equal(lb_status_code(st), LB_IO);
  lb_status_drop(st);
  assert_int_equal(lb_store_lease(s, (lb_hash128){.lo = 1}, 1),
                   LB_LEASE_GRANTED);
  lb_store_release(s, (lb_hash128){.lo = 1});
  lb_store_free(s);
  assert_int_equal(freed, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(layers_are_searched_in_order_and_the_first_is_written),
      cmocka_unit_test(leases_come_from_the_writable_layer),
      cmocka_unit_test(nothing_is_stored_if_all_layers_are_read_only),
  };
  return cmocka_run_group_tests_name("layer", tests, NULL, NULL);
}
