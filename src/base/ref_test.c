// base/ref_test.c -- exactly one release reports to be the last.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <pthread.h>

#include "base/ref.h"

typedef struct shared {
  lb_ref ref;
  int value;  // written by the last one only
} shared;

static void *let_go(void *arg) {
  shared *s = arg;
  for (int i = 0; i < 1000; i++) {
    lb_ref_retain(&s->ref);
    if (lb_ref_release(&s->ref)) s->value += 100;
  }
  if (lb_ref_release(&s->ref)) s->value++;
  return NULL;
}

static void one_release_is_the_last(void **state) {
  (void)state;
  shared s = {.value = 0};
  pthread_t threads[4];
  lb_ref_init(&s.ref);
  for (int i = 0; i < 4; i++) lb_ref_retain(&s.ref);
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, let_go, &s);
  if (lb_ref_release(&s.ref)) s.value++;
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  assert_int_equal(s.value, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(one_release_is_the_last)};
  return cmocka_run_group_tests_name("ref", tests, NULL, NULL);
}
