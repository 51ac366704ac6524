// tools/progress.h -- progress reports on standard error: a bar on a terminal,
// otherwise a line per second.
#ifndef LIMBER_TOOLS_PROGRESS_H
#define LIMBER_TOOLS_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct progress {
  const char *what;  // "kernels"; borrowed
  uint64_t done, total;
  bool terminal;
  double start_ms, drawn_ms;
} progress;

void progress_begin(progress *p, const char *what, uint64_t total);
void progress_add(progress *p);  // one more is done
void progress_end(progress *p);

// Prints the bar into buf, `width` columns wide in all.
void progress_text(const progress *p, double now_ms, int width, char *buf,
                   int cap);

#endif
