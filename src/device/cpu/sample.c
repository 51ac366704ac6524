// device/cpu/sample.c -- a kernel for the tests: it is compiled into its own
// object at build time and contains everything that kernel objects may contain.
// It belongs to no module.

void limber_kernel(double *out, const double *in, long n, int which);
extern const unsigned char limber_header[16];

__attribute__((aligned(16)))
const unsigned char limber_header[16] = {'l', 'i', 'm', 'b', 'e', 'r'};

static const double weights[8] = {1, 2, 3, 5, 7, 11, 13, 17};

typedef double step(double x, long i);

__attribute__((noinline)) static double weigh(double x, long i) {
  return x * weights[i & 7];
}

__attribute__((noinline)) static double shift(double x, long i) {
  return x + weights[i & 7];
}

__attribute__((noinline)) static double drop(double x, long i) {
  return i & 1 ? 0.0 : x;
}

// An array of addresses: .data.rel.ro, with 64-bit relocations.
static step *const steps[] = {weigh, shift, drop};

// Enough cases for a jump table.
__attribute__((noinline)) static double scale(int which) {
  switch (which) {
    case 0: return 0.5;
    case 1: return 0.25;
    case 2: return 4.0;
    case 3: return -1.0;
    case 4: return 1024.0;
    case 5: return 3.0;
    default: return 1.0;
  }
}

void limber_kernel(double *out, const double *in, long n, int which) {
  step *f = steps[(unsigned)which % 3];
  for (long i = 0; i < n; i++) out[i] = f(in[i], i) * scale(which) + 0.125;
}
