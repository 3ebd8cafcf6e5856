// Exponentials and logarithms of whole vectors, exact to about two units in the last place.

#pragma once

#include "dense.h"

#include <cmath>

typedef std::conditional_t<sizeof(Real) == 4, int32_t, int64_t> Whole;
typedef Whole WholeVector __attribute__((vector_size(kVectorBytes), may_alias));
typedef std::make_unsigned_t<Whole> Bits __attribute__((vector_size(kVectorBytes), may_alias));  // may overflow

constexpr bool kIsFloat = sizeof(Real) == 4;
constexpr int kMantissa = kIsFloat ? 23 : 52;
constexpr Real kLn2High = kIsFloat ? 0.693359375 : 6.93147180369123816490e-01;  // few digits: n * kLn2High is exact
constexpr Real kLn2Low = kIsFloat ? -2.12194440054690581e-4 : 1.90821492927058770002e-10;

// 2^Exponent exp(x), if that is at most e^88 (double: e^709). It is 0 where it would be below the smallest normal
// number; NaN stays NaN.
//
// exp(x) = 2^n exp(r), |r| <= log(2) / 2: adding `shift` rounds x / log(2) to n and leaves n in the lowest bits.
template <int Exponent = 0> NBL_INLINE Vector exp_of(Vector x) {
    constexpr Real least = (kIsFloat ? -87.33 : -708.39) - Exponent * 0.69314718055994530942;
    constexpr Real shift = kIsFloat ? 0x1.8p23 : 0x1.8p52;
    constexpr int order = kIsFloat ? 7 : 13;
    const Vector shifted = x * Real(1.44269504088896340736) + shift;
    const Vector n = shifted - shift;
    const Vector r = (x - n * kLn2High) - n * kLn2Low;
    Real inverse_factorial[order + 1] = {1};
    for (int k = 1; k <= order; k++) inverse_factorial[k] = inverse_factorial[k - 1] / k;
    Vector sum = Vector{} + inverse_factorial[order];
    each<order>([&](int k) { sum = sum * r + inverse_factorial[order - 1 - k]; });
    const Bits scaled = (Bits)sum + (((Bits)shifted + Exponent) << kMantissa);
    return x < least ? Vector{} : (Vector)scaled;
}

// log(x / 2^Exponent); -inf where x is below the smallest normal number
//
// x = 2^n (1 + f), 1 + f from 1 / sqrt(2) to sqrt(2): log(1 + f) = 2 artanh(s), s = f / (2 + f), a series in s^2.
template <int Exponent = 0> NBL_INLINE Vector log_of(Vector x) {
    constexpr int order = kIsFloat ? 5 : 11;
    const Real root_half = 0.70710678118654752440, smallest = kIsFloat ? 0x1p-126 : 0x1p-1022;
    Whole half_bits;
    std::memcpy(&half_bits, &root_half, sizeof half_bits);
    const WholeVector n = ((WholeVector)x - half_bits) >> kMantissa;  // rounds down
    const Vector f = (Vector)((WholeVector)x - (n << kMantissa)) - Real(1), s = f / (f + Real(2)), z = s * s;
    Vector sum = {};
    each<order>([&](int k) { sum = (sum + Real(2) / (2 * (order - k) + 1)) * z; });
    const Vector half_square = f * f * Real(0.5), exponent = __builtin_convertvector(n - Exponent, Vector);
    const Vector log = f - (half_square - (s * (half_square + sum) + exponent * kLn2Low)) + exponent * kLn2High;
    return x < smallest ? Vector{} - Real(INFINITY) : log;
}
