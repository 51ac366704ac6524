// compile/compile_log.h -- one record per compiled key: its name, compile time
// and code size, or the error.
//
// With a directory, every object is also written there as NAME.o, with its
// spec as NAME.txt, for people to inspect. Nothing reads these files back.
//
// One thread at a time. Records and their texts stay valid until fini.
#ifndef LB_COMPILE_COMPILE_LOG_H
#define LB_COMPILE_COMPILE_LOG_H

#include "base/arena.h"
#include "base/log.h"
#include "base/map.h"
#include "spec/message.h"

typedef struct lb_compile_record {
  const char *name;   // "matmul-<32 hex digits>": form and key
  const char *text;   // spec, facts and target; one line each
  const char *error;  // why there is no kernel; NULL: it was loaded
  uint32_t compile_us, check_us;
  size_t code_bytes;
} lb_compile_record;

typedef struct lb_compile_log {
  lb_arena arena;
  lb_compile_record **list;  // in the arena
  size_t n, cap;
  lb_map by_name;
  const char *directory;  // in the arena; NULL: objects are not written
  const lb_log *log;      // borrowed
  bool warned;            // that the directory cannot be written
} lb_compile_log;

// `directory` may be NULL.
lb_status lb_compile_log_init(lb_compile_log *l, const char *directory,
                              const lb_log *log);
void lb_compile_log_fini(lb_compile_log *l);

// Finds or adds the record of the request's key and clears its error. A kernel
// that was evicted and is compiled again reuses its record.
lb_status lb_compile_log_add(lb_compile_log *l, const lb_request *request,
                             uint64_t generator, lb_compile_record **out);
lb_status lb_compile_log_set_error(lb_compile_log *l, lb_compile_record *record,
                                   const char *why);

// Writes the object if there is a directory. Failures to write are logged as
// one warning in all.
void lb_compile_log_dump(lb_compile_log *l, const lb_compile_record *record,
                         lb_span object);

#endif
