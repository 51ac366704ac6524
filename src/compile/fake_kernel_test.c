// compile/fake_kernel_test.c -- a kernel that does nothing, in the place of
// all, and takes its time for it if TURNS says so: what fake_worker_test.c
// answers with.
#include <stdint.h>

#ifndef TURNS
#define TURNS 0
#endif

void limber_kernel(const uint64_t *args);
void limber_kernel(const uint64_t *args) {
  (void)args;
  for (volatile int i = 0; i < TURNS; i++) continue;
}
