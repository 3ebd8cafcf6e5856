// What the charts of a sentence have in common. Entries are scaled: the true value is the stored one times 2^scale.

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

enum { LEFT, RIGHT };  // D: which child is the head child

// Of l words the spans of a width that have the head p, by their start
inline Range spans_of(int l, int p, int width) { return {max(0, p - width + 1), min(p, l - width)}; }

// Scratch memory, handed out in whole cache lines; without any, a count of what is needed
class Scratch {
  public:
    int64_t scratch_bytes() const { return used * sizeof(Real) + kLineBytes; }  // and what alignment takes

  protected:
    explicit Scratch(Real* memory) : base((Real*)((uintptr_t(memory) + kLineBytes - 1) / kLineBytes * kLineBytes)) {}

    template <class U = Real> U* take(size_t n) {
        U* const start = (U*)(base + used);
        used += whole_lines((n * sizeof(U) + sizeof(Real) - 1) / sizeof(Real));
        return start;
    }

    Real* const base;
    int64_t used = 0;  // numbers of Real from base
};

// Of the heads p of all spans [i, j) of l words: by width, then [i][p], so that the heads of a span are neighbours
inline size_t row_by_width(int l, int i, int j, int p) {
    const size_t u = j - i - 1, before = u * (u + 1) / 2 * (l + 1) - u * (u + 1) * (2 * u + 1) / 6;
    return before + size_t(i) * (j - i) + (p - i);
}

// 2^e; 0 where it is below the smallest normal number
inline Real power_of_two(int e) {
    const bool is_float = sizeof(Real) == sizeof(float);
    const int bias = is_float ? 127 : 1023;
    const uint64_t bits = e <= -bias ? 0 : uint64_t(e + bias) << (is_float ? 23 : 52);
    Real x;
    std::memcpy(&x, &bits, sizeof x);  // the lower half for a float
    return x;
}

// Finite, however large: such gradients belong to values that are 0 or nearly so, and 0 * inf would not be 0.
constexpr Real kBound = sizeof(Real) == sizeof(float) ? 0x1p112 : 0x1p896;
inline Real bounded(Real x) { return x > kBound ? kBound : x < -kBound ? -kBound : x; }
NBL_INLINE Vector bounded(Vector x) {
    const Vector high = Vector{} + kBound, low = Vector{} - kBound;
    x = x < high ? x : high;
    return x > low ? x : low;
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
inline void multiply(Real* out, const Real* x, const Real* y, size_t n) {
    for (size_t k = 0; k < n; k++) out[k] = x[k] * y[k];
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
