// base/alloc.h -- allocation of tensor memory, from the caller's allocator or
// the C library. Metadata always uses malloc.
#ifndef LB_BASE_ALLOC_H
#define LB_BASE_ALLOC_H

#include <stddef.h>

#define LB_TENSOR_ALIGN 64
#define LB_LARGE_PAGE ((size_t)2 << 20)  // larger blocks use huge pages

typedef struct lb_alloc {
  void *(*alloc)(void *user, size_t size, size_t align);  // NULL: C library
  void (*free)(void *user, void *p);  // NULL: memory is never freed
  void *user;
} lb_alloc;

// Allocates `size` bytes, aligned to LB_TENSOR_ALIGN, not cleared. A NULL `a`
// means the C library; size 0 returns a unique pointer. Returns NULL if memory
// runs out or if the caller's allocator returns a misaligned pointer.
void *lb_alloc_get(const lb_alloc *a, size_t size);
void lb_alloc_put(const lb_alloc *a, void *p);  // NULL is fine
// Allocates a buffer that may be large and is freed and reallocated at times.
// Large ones are mapped directly: freeing a large block of the C library raises
// its mmap threshold, after which it keeps all smaller freed blocks, those of
// the application too.
void *lb_pages_get(const lb_alloc *a, size_t size);
void lb_pages_put(const lb_alloc *a, void *p, size_t size);  // the same size
// How many bytes to reserve for a buffer of `size` bytes that is likely to
// grow. Reserved pages cost memory only when written. The caller's allocator
// may commit everything at once, so with it the result is `size`.
size_t lb_alloc_pages(const lb_alloc *a, size_t size);
// Frees `size` bytes that will not be needed again soon: returns their pages to
// the system even if the C library would keep them.
void lb_alloc_drop(const lb_alloc *a, void *p, size_t size);

#endif
