// base/alloc.h -- where tensor memory comes from: the caller's allocator, or
// the C library's. Metadata always uses malloc.
#ifndef LB_BASE_ALLOC_H
#define LB_BASE_ALLOC_H

#include <stddef.h>

#define LB_TENSOR_ALIGN 64
#define LB_LARGE_PAGE ((size_t)2 << 20)  // what has room for one is given some

typedef struct lb_alloc {
  void *(*alloc)(void *user, size_t size, size_t align);  // NULL: C library
  void (*free)(void *user, void *p);  // NULL: memory is never given back
  void *user;
} lb_alloc;

// `a` may be NULL: the C library. Aligned to LB_TENSOR_ALIGN; size 0 gives a
// unique pointer. NULL when memory is out, or when the caller's allocator
// breaks the alignment. Not cleared.
void *lb_alloc_get(const lb_alloc *a, size_t size);
void lb_alloc_put(const lb_alloc *a, void *p);  // NULL is fine
// `size` bytes that are asked for and given back now and then, and may be many:
// those are the system's. Were they the C library's, it would take a large
// block that it gets back for a reason to keep all that are smaller from then
// on, the program's too.
void *lb_pages_get(const lb_alloc *a, size_t size);
void lb_pages_put(const lb_alloc *a, void *p, size_t size);  // the same size
// How much to ask for in place of `size` bytes that are likely to become more:
// the system gives address space, and pages only where they are written. The
// caller's allocator may give all of it at once, so there it is `size`.
size_t lb_alloc_pages(const lb_alloc *a, size_t size);
// The same for `size` bytes that will not be needed again soon: the system gets
// them, where the C library would keep them.
void lb_alloc_drop(const lb_alloc *a, void *p, size_t size);

#endif
