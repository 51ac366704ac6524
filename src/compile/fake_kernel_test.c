// compile/fake_kernel_test.c -- a kernel that computes nothing, spending
// ITERATIONS on it: what fake_worker_test.c responds with.
#include <stdint.h>

#ifndef ITERATIONS
#define ITERATIONS 0
#endif

void limber_kernel(const uint64_t *args);
void limber_kernel(const uint64_t *args) {
  (void)args;
  for (volatile int i = 0; i < ITERATIONS; i++) continue;
}
