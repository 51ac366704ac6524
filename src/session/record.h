// session/record.h -- records the signatures of runs in a file.
//
// While a file is set, every successful run is recorded: its input shapes, the
// contents that decided shapes, and which outputs were wanted. Equal signatures
// are counted. A thread writes changes every few seconds. So do the calls that
// set another file or none, or free the recorder; a run never does.
//
// (1) The file is replaced as a whole, by a rename: a reader, or a crash, sees
//     the old version or the new one.
// (2) At most LB_RECORD_MAX signatures; the least recently seen are dropped.
// (3) Signatures that the file holds when it is set are read, and their counts
//     continue.
// (4) A forked child records and writes nothing.
#ifndef LB_SESSION_RECORD_H
#define LB_SESSION_RECORD_H

#include "base/log.h"
#include "plan/program.h"
#include "session/session.h"

#define LB_RECORD_MAX 4096

typedef struct lb_recorder lb_recorder;

// `log` and the program's graph are borrowed and outlive the recorder. The
// program need not: every version has the same inputs.
lb_status lb_recorder_new(const lb_program *prog, const lb_log *log,
                          lb_recorder **out);
void lb_recorder_free(lb_recorder *r);  // writes; NULL is fine

// Sets the file to write; NULL: none. LB_IO: the previous file or the new one
// cannot be written. LB_INVALID: the file is not a shapes file, or is of
// another model. On failure nothing is recorded.
lb_status lb_recorder_set(lb_recorder *r, const char *path);

// Any thread may call it, also during lb_recorder_set.
void lb_recorder_note(lb_recorder *r, const lb_tensor *inputs,
                      const lb_output *outputs);

#endif
