// compile/compile_log.h -- what became of each key that was compiled: its name,
// how long it took, how large it is, or why there is none.
//
// With a folder, every object is written there as NAME.o, and what it computes
// beside it as NAME.txt, for people to look at. Nothing reads them back.
//
// One thread at a time; texts stay where they are until all is freed.
#ifndef LB_COMPILE_COMPILE_LOG_H
#define LB_COMPILE_COMPILE_LOG_H

#include "base/arena.h"
#include "base/log.h"
#include "base/map.h"
#include "spec/message.h"

typedef struct lb_compile_record {
  const char *name;     // "matmul-<32 hex digits>": form and key
  const char *text;     // spec, facts and target; one line each
  const char *refused;  // why there is none; NULL: it is loaded
  uint32_t compile_us, check_us;
  size_t code_bytes;
} lb_compile_record;

typedef struct lb_compile_log {
  lb_arena arena;
  lb_compile_record **list;  // in the arena
  size_t n, cap;
  lb_map by_name;
  const char *folder;  // in the arena; NULL: objects are not written
  const lb_log *log;   // borrowed
  bool told;           // that the folder cannot be written
} lb_compile_log;

// `folder` may be NULL.
lb_status lb_compile_log_init(lb_compile_log *b, const char *folder,
                              const lb_log *log);
void lb_compile_log_fini(lb_compile_log *b);

// The one of that key, with its name and text: a kernel that was evicted and is
// compiled again is not told of twice.
lb_status lb_compile_log_add(lb_compile_log *b, const lb_request *request,
                             uint64_t generator, lb_compile_record **out);
lb_status lb_compile_log_refuse(lb_compile_log *b, lb_compile_record *built,
                                const char *why);

// Writes the object, if that is asked for. A folder that cannot be written is
// one warning.
void lb_compile_log_dump(lb_compile_log *b, const lb_compile_record *built,
                         lb_span object);

#endif
