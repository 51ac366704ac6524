// compile/built.h -- what became of each key that was compiled: its name, how
// long it took, how large it is, or why there is none.
//
// With a folder, every object is written there as NAME.o, and what it computes
// beside it as NAME.txt, for people to look at. Nothing reads them back.
//
// One thread at a time; texts stay where they are until all is freed.
#ifndef LB_COMPILE_BUILT_H
#define LB_COMPILE_BUILT_H

#include "base/arena.h"
#include "base/log.h"
#include "base/map.h"
#include "spec/message.h"

typedef struct lb_built {
  const char *name;     // "matmul-<32 hex digits>": form and key
  const char *text;     // spec, facts and target; one line each
  const char *refused;  // why there is none; NULL: it is loaded
  uint32_t compile_us, check_us;
  size_t code_bytes;
} lb_built;

typedef struct lb_builts {
  lb_arena arena;
  lb_built **list;  // in the arena
  size_t n, cap;
  lb_map by_name;
  const char *folder;  // in the arena; NULL: objects are not written
  const lb_log *log;   // borrowed
  bool told;           // that the folder cannot be written
} lb_builts;

// `folder` may be NULL.
lb_status lb_builts_init(lb_builts *b, const char *folder, const lb_log *log);
void lb_builts_fini(lb_builts *b);

// The one of that key, with its name and text: a kernel that was evicted and is
// compiled again is not told of twice.
lb_status lb_builts_add(lb_builts *b, const lb_request *request,
                        uint64_t generator, lb_built **out);
lb_status lb_builts_refuse(lb_builts *b, lb_built *built, const char *why);

// Writes the object, if that is asked for. A folder that cannot be written is
// one warning.
void lb_builts_dump(lb_builts *b, const lb_built *built, lb_span object);

#endif
