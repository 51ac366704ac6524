// base/alloc.c -- tensor memory, from the caller's allocator or the C library.
#include "base/alloc.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define RESERVE_FACTOR 4  // reserved / needed bytes

// Requests huge pages for large blocks: kernels access a matrix at more places
// at once than the TLB has entries for small pages. Clearing a huge page takes
// as long as 70 faults on small pages, and it replaces 512 of them.
static void *c_alloc(size_t size) {
  void *p = NULL;
  bool large = size >= LB_LARGE_PAGE;
  if (posix_memalign(&p, large ? LB_LARGE_PAGE : LB_TENSOR_ALIGN, size) != 0)
    return NULL;
  if (large) madvise(p, size / LB_LARGE_PAGE * LB_LARGE_PAGE, MADV_HUGEPAGE);
  return p;
}

void *lb_alloc_get(const lb_alloc *a, size_t size) {
  if (size > PTRDIFF_MAX) return NULL;  // larger than any C object
  if (size == 0) size = 1;
  if (!a || !a->alloc) return c_alloc(size);
  void *p = a->alloc(a->user, size, LB_TENSOR_ALIGN);
  if ((uintptr_t)p % LB_TENSOR_ALIGN == 0) return p;
  lb_alloc_put(a, p);
  return NULL;
}

// -- large buffers -----------------------------------------------------------

static bool is_mapped(const lb_alloc *a, size_t size) {
  return (!a || !a->alloc) && size >= LB_LARGE_PAGE;
}

// Maps `size` bytes, aligned to a huge page.
static void *map(size_t size) {
  size_t all = size + LB_LARGE_PAGE;
  char *p = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                 -1, 0);
  if (p == MAP_FAILED) return NULL;
  size_t before = -(uintptr_t)p % LB_LARGE_PAGE;
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  size_t end = before + (size + page - 1) / page * page;
  if (before) munmap(p, before);
  if (end < all) munmap(p + end, all - end);
  madvise(p + before, size / LB_LARGE_PAGE * LB_LARGE_PAGE, MADV_HUGEPAGE);
  return p + before;
}

void *lb_pages_get(const lb_alloc *a, size_t size) {
  if (size > PTRDIFF_MAX - LB_LARGE_PAGE) return NULL;
  return is_mapped(a, size) ? map(size) : lb_alloc_get(a, size);
}

void lb_pages_put(const lb_alloc *a, void *p, size_t size) {
  if (p && is_mapped(a, size))
    munmap(p, size);
  else
    lb_alloc_drop(a, p, size);
}

size_t lb_alloc_pages(const lb_alloc *a, size_t size) {
  bool ours = !a || !a->alloc;
  return ours && size <= PTRDIFF_MAX / RESERVE_FACTOR ? RESERVE_FACTOR * size
                                                      : size;
}

void lb_alloc_put(const lb_alloc *a, void *p) {
  if (!p) return;
  if (!a || !a->alloc) {
    free(p);
  } else if (a->free) {
    a->free(a->user, p);
  }
}

void lb_alloc_drop(const lb_alloc *a, void *p, size_t size) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)p;
  uintptr_t begin = (at + page - 1) / page * page;
  uintptr_t end = (at + size) / page * page;
  if (p && (!a || !a->alloc) && begin < end)
    madvise((void *)begin, end - begin, MADV_DONTNEED);
  lb_alloc_put(a, p);
}
