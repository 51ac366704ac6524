// tools/draw.h -- a seeded random number generator.
#ifndef LIMBER_TOOLS_DRAW_H
#define LIMBER_TOOLS_DRAW_H

#include <stdint.h>

// splitmix64. Every seed, 0 included, is equally good.
static inline uint64_t draw_next(uint64_t *state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

#endif
