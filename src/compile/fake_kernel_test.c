// compile/fake_kernel_test.c -- a kernel that does nothing, in the place of
// all: what fake_worker_test.c answers with.
#include <stdint.h>

void limber_kernel(const uint64_t *args);
void limber_kernel(const uint64_t *args) { (void)args; }
