// session/record.h -- signatures that runs met, kept in a file.
//
// While a file is set, every run that succeeds is noted: its input shapes, the
// contents that decided shapes, which outputs were asked for. Equal ones are
// counted. A thread writes them every few seconds if there is something to
// write, and so does whoever sets another file, none, or ends: never a run.
//
// (1) The file is replaced as a whole, by a rename: whoever reads it, or is
//     left with it after a crash, has one version or the next.
// (2) At most LB_RECORD_MOST signatures; the least recently seen go first.
// (3) What the file holds when it is set is counted on.
// (4) A forked child notes and writes nothing.
#ifndef LB_SESSION_RECORD_H
#define LB_SESSION_RECORD_H

#include "base/log.h"
#include "plan/program.h"
#include "session/session.h"

#define LB_RECORD_MOST 4096

typedef struct lb_recorder lb_recorder;

// `log` is borrowed, as is the program's graph; both outlive the recorder. The
// program need not: every version has the same inputs.
lb_status lb_recorder_new(const lb_program *prog, const lb_log *log,
                          lb_recorder **out);
void lb_recorder_free(lb_recorder *r);  // writes; NULL is fine

// Where to write from now on; NULL: nowhere. LB_IO: what there was cannot be
// written, or not there. LB_INVALID: the file holds something else, or shapes
// of another model. Then nothing is recorded.
lb_status lb_recorder_set(lb_recorder *r, const char *path);

// Any thread may call it, meanwhile too.
void lb_recorder_note(lb_recorder *r, const lb_tensor *inputs,
                      const lb_output *outputs);

#endif
