// base/undertsan.h -- for tests: UNDER_TSAN is defined where threads are
// watched.
#ifndef LB_BASE_UNDERTSAN_H
#define LB_BASE_UNDERTSAN_H

#if defined(__SANITIZE_THREAD__)
#define UNDER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNDER_TSAN 1
#endif
#endif

#endif
