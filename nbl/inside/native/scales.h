// Charts of scaled probabilities: an entry's true value is the stored one times 2^scale.

#pragma once

#include "dense.h"

#include <cmath>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

constexpr int kPeak = 30;           // entries are scaled to at most about 2^kPeak
constexpr int kNever = -(1 << 28);  // the scale of what is impossible

inline int max(int a, int b) { return a > b ? a : b; }
inline int min(int a, int b) { return a < b ? a : b; }

struct Range {
    int first, last;
    int size() const { return last - first + 1; }
};

// 2^e; 0 where it is below the smallest normal number
inline Real power_of_two(int e) {
    const bool is_float = sizeof(Real) == sizeof(float);
    const int bias = is_float ? 127 : 1023;
    const uint64_t bits = e <= -bias ? 0 : uint64_t(e + bias) << (is_float ? 23 : 52);
    Real x;
    std::memcpy(&x, &bits, sizeof x);  // the lower half for a float
    return x;
}

// the largest of n numbers, whole lines, and 0
inline Real peak_of(const Real* x, size_t n) {
    Vector peaks = {};
    for (size_t k = 0; k < n; k += kVector) {
        const Vector next = *(const Vector*)(x + k);
        peaks = peaks > next ? peaks : next;
    }
    Real peak = 0;
    for (int k = 0; k < kVector; k++) peak = peak > peaks[k] ? peak : peaks[k];
    return peak;
}

inline void multiply(Real* x, size_t n, Real factor) {
    for (size_t k = 0; k < n; k++) x[k] *= factor;
}

// of the power of two to divide by
inline int exponent_of(Real peak) {
    int exponent;
    std::frexp(peak, &exponent);
    return peak > 0 ? max(exponent - kPeak, -120) : kNever;
}

// Divides n numbers, whole lines, by a power of two that makes the largest about 2^kPeak; gives its exponent.
inline int rescale(Real* x, size_t n) {
    const int exponent = exponent_of(peak_of(x, n));
    if (exponent != kNever) multiply(x, n, power_of_two(-exponent));
    return exponent;
}

// While it lives, numbers below the smallest normal one count as 0: they are slow and mean nothing here.
struct FlushDenormals {
#if defined(__SSE__)
    const unsigned before = _mm_getcsr();
    FlushDenormals() { _mm_setcsr(before | 0x8040); }
    ~FlushDenormals() { _mm_setcsr(before); }
#endif
};
