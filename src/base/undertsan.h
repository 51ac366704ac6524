// base/undertsan.h -- defines UNDER_TSAN under ThreadSanitizer and UNDER_ASAN
// under AddressSanitizer: for tests, and for limber-jit's memory limit.
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
