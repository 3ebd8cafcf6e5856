// Across the lanes of vectors: sums of lanes, and matrices transposed block by block.

#pragma once

#include "exponential.h"

// Of each group of 2 s lanes of two vectors the first half (`odd`: the second), that of a and then that of b
template <int s> NBL_INLINE Vector half(Vector a, Vector b, bool odd) {
#if defined(__clang__)
    Vector out;
    for (int k = 0; k < kVector; k++) out[k] = k & s ? b[odd ? k : k - s] : a[odd ? k + s : k];
    return out;
#else
    WholeVector from = {};
    for (int k = 0; k < kVector; k++) from[k] = k & s ? kVector + (odd ? k : k - s) : odd ? k + s : k;
    return __builtin_shuffle(a, b, from);
#endif
}

// The sum of the lanes of x[k] in lane k; x is overwritten.
template <int s = 1> NBL_INLINE Vector lane_sums(Vector* x) {
    if constexpr (s < kVector) {
        each<kVector / (2 * s)>([&](int k) __attribute__((always_inline)) {
            const Vector a = x[2 * s * k], b = x[2 * s * k + s];
            x[2 * s * k] = half<s>(a, b, false) + half<s>(a, b, true);
        });
        return lane_sums<2 * s>(x);
    }
    return x[0];
}

// Lane j of x[k] to lane k of x[j]
template <int s = 1> NBL_INLINE void transpose(Vector* x) {
    if constexpr (s < kVector) {
        each<kVector / 2>([&](int k) __attribute__((always_inline)) {
            const int n = k / s * 2 * s + k % s;
            const Vector a = x[n], b = x[n + s];
            x[n] = half<s>(a, b, false);
            x[n + s] = half<s>(a, b, true);
        });
        transpose<2 * s>(x);
    }
}

// to[n][m] = from[m][n] for so many rows m and columns n; the rows of `to` are filled with zeros up to whole lines.
inline void transpose(const Real* from, size_t from_step, int rows, int columns, Real* to, size_t to_step) {
    for (int m = 0; m < whole_lines(rows); m += kVector)
        for (int n = 0; n < columns; n += kVector) {
            Vector x[kVector];
            for (int k = 0; k < kVector; k++)
                x[k] = m + k < rows ? *(const Vector*)(from + (m + k) * from_step + n) : Vector{};
            transpose(x);
            for (int k = 0; k < kVector && n + k < columns; k++) *(Vector*)(to + (n + k) * to_step + m) = x[k];
        }
}

// The sum of x y over n numbers, whole vectors
inline Real dot(const Real* x, const Real* y, int n) {
    Vector sums = {};
    for (int k = 0; k < n; k += kVector) sums += *(const Vector*)(x + k) * *(const Vector*)(y + k);
    Real sum = 0;
    for (int k = 0; k < kVector; k++) sum += sums[k];
    return sum;
}

// out[m] = sum_n a[m][n] x[n] for n < N, whole vectors; zeros up to a whole line of out
inline void product_by_rows(int M, int N, const Real* a, size_t a_step, const Real* x, Real* out) {
    for (int m = 0; m < whole_lines(M); m += kVector) {
        Vector sums[kVector];
        for (int k = 0; k < kVector; k++) {
            sums[k] = Vector{};
            if (m + k < M)
                for (int n = 0; n < N; n += kVector)
                    sums[k] += *(const Vector*)(a + (m + k) * a_step + n) * *(const Vector*)(x + n);
        }
        *(Vector*)(out + m) = lane_sums(sums);
    }
}
