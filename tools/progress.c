// tools/progress.c -- progress reports on standard error.
#include "progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli.h"

#define REDRAW_MS 100.0  // between two updates of a bar
#define LINE_MS 1000.0   // between two lines; shorter work prints none

void progress_begin(progress *p, const char *what, uint64_t total) {
  *p = (progress){.what = what,
                  .total = total,
                  .terminal = isatty(STDERR_FILENO),
                  .start_ms = now_ms()};
  p->drawn_ms = p->start_ms;
}

void progress_text(const progress *p, double now, int width, char *buf,
                   int cap) {
  char tail[128];
  uint64_t total = p->total > p->done ? p->total : p->done;
  snprintf(tail, sizeof tail, " %" PRIu64 "/%" PRIu64 " %s, %.0f s", p->done,
           total, p->what, (now - p->start_ms) / 1e3);
  int bar_width = width - (int)strlen(tail) - 2;
  if (bar_width < 1) {
    snprintf(buf, (size_t)cap, "%s", tail + 1);
    return;
  }
  if (bar_width > 40) bar_width = 40;
  int full =
      total ? (int)((double)bar_width * (double)p->done / (double)total) : 0;
  char bar[41];
  for (int i = 0; i < bar_width; i++) bar[i] = i < full ? '#' : '.';
  snprintf(buf, (size_t)cap, "[%.*s]%s", bar_width, bar, tail);
}

static int columns(void) {
  struct winsize size;
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) || !size.ws_col) return 80;
  return size.ws_col;
}

static void draw(progress *p, double now) {
  char text[256];
  progress_text(p, now, p->terminal ? columns() - 1 : 0, text, sizeof text);
  fprintf(stderr, p->terminal ? "\r\033[K%s" : "%s\n", text);
  fflush(stderr);
  p->drawn_ms = now;
}

void progress_add(progress *p) {
  double now = now_ms();
  p->done++;
  if (now - p->drawn_ms >= (p->terminal ? REDRAW_MS : LINE_MS)) draw(p, now);
}

// Clears the bar before other output.
void progress_end(progress *p) {
  if (!p->terminal || p->drawn_ms == p->start_ms) return;
  fprintf(stderr, "\r\033[K");
  fflush(stderr);
}
