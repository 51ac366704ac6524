// base/undertsan.h -- UNDER_TSAN is defined where threads are watched,
// UNDER_ASAN where memory is: for tests, and for the limit of limber-jit.
#ifndef LB_BASE_UNDERTSAN_H
#define LB_BASE_UNDERTSAN_H

#if defined(__SANITIZE_THREAD__)
#define UNDER_TSAN 1
#elif defined(__SANITIZE_ADDRESS__)
#define UNDER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNDER_TSAN 1
#elif __has_feature(address_sanitizer)
#define UNDER_ASAN 1
#endif
#endif

#endif
