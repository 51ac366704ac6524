#!/usr/bin/env python3
"""Computes the coefficients of math_f32.c and math_f64.c (needs mpmath).

A polynomial is fitted by Remez' exchange: the error, times a weight, is made
equal in size at n + 2 points of alternating sign. Weights are chosen such that
the error of the function is relative.
"""
import sys

import mpmath as mp

mp.mp.prec = 200


def cheb(a, b, n):
    return [(a + b) / 2 + (b - a) / 2 * mp.cos(mp.pi * (2 * i + 1) / (2 * n))
            for i in range(n)]


def remez(f, w, a, b, degree, rounds=12):
    """Coefficients, lowest first, of the polynomial with least max |w(f-p)|."""
    a, b = mp.mpf(a), mp.mpf(b)
    n = degree + 2
    xs = sorted(cheb(a, b, n))
    grid = sorted(cheb(a, b, 60 * n))
    for _ in range(rounds):
        rows = mp.matrix(n, n)
        rhs = mp.matrix(n, 1)
        for i, x in enumerate(xs):
            for j in range(degree + 1):
                rows[i, j] = x**j
            rows[i, degree + 1] = (-1)**i / w(x)
            rhs[i] = f(x)
        sol = mp.lu_solve(rows, rhs)
        c = [sol[i] for i in range(degree + 1)]
        err = [w(x) * (f(x) - mp.polyval(c[::-1], x)) for x in grid]
        peaks = []  # the largest error of each run of one sign
        for x, e in zip(grid, err):
            if peaks and (peaks[-1][1] > 0) == (e > 0):
                if abs(e) > abs(peaks[-1][1]):
                    peaks[-1] = (x, e)
            else:
                peaks.append((x, e))
        while len(peaks) > n:
            peaks.pop(0 if abs(peaks[0][1]) < abs(peaks[-1][1]) else -1)
        if len(peaks) < n:
            break
        xs = [x for x, _ in peaks]
    return c, max(abs(e) for e in err)


def show(name, c, err):
    print(f'{name}  // error 2^{float(mp.log(err, 2)):.1f}')
    for x in c:
        print('   ', float(x).hex() + ',')


def one(x):
    return mp.mpf(1)


LN2_2 = mp.log(2) / 2
EIGHTH = mp.log(2) / 16 * mp.mpf('1.001')  # n is rounded, then r
SQ = mp.sqrt(2) - 1
ERF0 = 2 / mp.sqrt(mp.pi) - 1


def series(f, at0):
    """f, with its value at 0 given."""
    return lambda x: f(x) if abs(x) > mp.mpf(2)**-60 else mp.mpf(at0)


def third(x):
    return x / mp.mpf(3)


def exp_tail(r):
    return (mp.expm1(r) - r) / r**2


def log_tail(f):
    return (mp.log1p(f) - f + f * f / 2) / f**3


def log_odd(z):  # log((1+s)/(1-s)) = 2s + s^3 (2/3 + s^2 p(s^2))
    s = mp.sqrt(z)
    return (2 * mp.atanh(s) - 2 * s - third(2) * s**3) / s**5


def odd_tail(f):  # f(r) = r + r^3 p(r^2)
    return lambda z: (f(mp.sqrt(z)) - mp.sqrt(z)) / mp.sqrt(z)**3


def erf_tail(z):  # erf(x) = x + x p(x^2)
    return mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1


# Of the multiples of 2^-18 between 0.5236 and 0.5275 the one for which erf(i
# step), i = 1 ... 7, are nearest to floats, 0.19 ulp at most. With less the last
# polynomial would end below 3.92, where erf is not yet 1.
ERF_STEP = mp.mpf(137959) / 2**18


def erf_near(i):
    """erf(i step + u) as a polynomial of u; the first is u + u p(u)."""
    half = ERF_STEP / 2
    if i == 0:
        c, err = remez(lambda u: mp.erf(u) / u - 1, lambda u: u / mp.erf(u),
                       mp.mpf(10)**-6, half, 5)
        return [mp.mpf(0)] + c, err
    at = i * ERF_STEP
    return remez(lambda u: mp.erf(at + u), lambda u: 1 / mp.erf(at + u), -half,
                 half, 6)


def cos_tail(z):
    return (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2


def erfcx(t):  # t = (a - 4) / (a + 4); (1 + 2a) exp(a^2) erfc(a)
    a = 4 * (1 + t) / (1 - t)
    return (1 + 2 * a) * mp.exp(a * a) * mp.erfc(a)


def squared(x):  # the tail begins with x^2, or z
    return abs(x)**2 + mp.mpf(10)**-9


def size(x):
    return abs(x) + mp.mpf(10)**-9


def linear(z):
    return z + mp.mpf(10)**-12


FITS = {
    'exp_f32': lambda: remez(series(exp_tail, .5), size, -LN2_2, LN2_2, 4),
    'log_f32': lambda: remez(series(log_tail, third(1)), squared,
                             mp.sqrt(.5) - 1, SQ, 7),
    'exp_part_f32': lambda: remez(series(exp_tail, .5), squared,
                                  -EIGHTH, EIGHTH, 1),
    **{f'erf_f32[{i}]': lambda i=i: erf_near(i) for i in range(8)},
    'sin_f32': lambda: remez(series(odd_tail(mp.sin), -third(.5)), linear, 0,
                             .64, 2),
    'cos_f32': lambda: remez(series(cos_tail, third(.125)),
                             lambda z: linear(z**2), 0, .64, 2),
    'exp_f64': lambda: remez(series(exp_tail, .5), size, -LN2_2, LN2_2, 10),
    'log_f64': lambda: remez(series(log_odd, mp.mpf(2) / 5),
                             lambda z: linear(z**2), 0, .02945, 6),
    'sin_f64': lambda: remez(series(odd_tail(mp.sin), -third(.5)), linear, 0,
                             .64, 5),
    'cos_f64': lambda: remez(series(cos_tail, third(.125)),
                             lambda z: linear(z**2), 0, .64, 5),
    'atan_f64': lambda: remez(series(odd_tail(mp.atan), -third(1)), linear, 0,
                              SQ**2 * mp.mpf('1.001'), 10),
    'asin_f64': lambda: remez(series(odd_tail(mp.asin), third(.5)), linear, 0,
                              .25, 12),
    'erf_f64': lambda: remez(series(erf_tail, ERF0), one, 0, 1, 11),
    'erfcx_f64': lambda: remez(erfcx, one, -mp.mpf(7) / 9, .75, 21, rounds=6),
}

for name in sys.argv[1:] or FITS:
    show(name, *FITS[name]())
