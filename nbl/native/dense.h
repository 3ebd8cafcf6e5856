// What the recursions are made of: small matrix products and sums of element-wise products.
//
// A matrix over H is stored as panels of kPanel columns, panel after panel, each with all rows: a sum of products of
// rows then runs along one panel, whose operands stay in the cache. Matrices over symbols are stored by rows, padded
// with zeros to whole cache lines.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#define NBL_INLINE inline __attribute__((always_inline))

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif
constexpr int kLineBytes = 64, kPanelBytes = 7 * kLineBytes;  // an odd number, so that rows spread over the cache

#if defined(NBL_FLOAT)
typedef NBL_FLOAT Real;
#else
typedef float Real;
#endif
typedef Real Vector __attribute__((vector_size(kVectorBytes), may_alias));
constexpr int kVector = kVectorBytes / sizeof(Real);
constexpr int kLine = kLineBytes / sizeof(Real), kPanel = kPanelBytes / sizeof(Real);

template <class N> N whole_lines(N n) { return (n + kLine - 1) / kLine * kLine; }

// A matrix over H: rows x panels
struct Panels {
    Real* start = nullptr;
    size_t rows = 0;
    Real* at(int panel, size_t row) const { return start + (panel * rows + row) * kPanel; }
};

// c[m][n] (+)= sum_k a[m][k * a_step] b[k * b_step + n], for R rows m and V vectors from n on; K > 0
template <int R, int V>
inline void tile(int n, int K, const Real* const* a, size_t a_step, const Real* b, size_t b_step, Real* const* c,
                 bool add) {
    Vector sum[R][V];
    for (int r = 0; r < R; r++)
        for (int v = 0; v < V; v++) sum[r][v] = Vector{};
    int k = 0;
    do {  // at least once: else GCC would keep the sums in memory, too
        const auto row = (const Vector*)(b + k * b_step + n);
        for (int r = 0; r < R; r++)
            for (int v = 0; v < V; v++) sum[r][v] += a[r][k * a_step] * row[v];
    } while (++k < K);
    for (int r = 0; r < R; r++)
        for (int v = 0; v < V; v++) {
            const auto out = (Vector*)(c[r] + n) + v;
            *out = add ? *out + sum[r][v] : sum[r][v];
        }
}

template <int R>
void tiles(int N, int K, const Real* const* a, size_t a_step, const Real* b, size_t b_step, Real* const* c, bool add) {
    int n = 0;
    for (; n + 2 * kVector <= N; n += 2 * kVector) tile<R, 2>(n, K, a, a_step, b, b_step, c, add);
    if (n < N) tile<R, 1>(n, K, a, a_step, b, b_step, c, add);
}

// C (+)= A B with M rows and N columns, N whole lines; a(m) and c(m) are the rows of A and C.
template <class RowA, class RowC>
void gemm(bool add, int M, int N, int K, RowA a, size_t a_step, const Real* b, size_t b_step, RowC c) {
    constexpr int kRows = 6;  // with two vectors each, as many sums as registers hold
    constexpr decltype(&tiles<1>) tiles_of[kRows] = {tiles<1>, tiles<2>, tiles<3>,
                                                        tiles<4>, tiles<5>, tiles<6>};
    const int blocks = (M + kRows - 1) / kRows;
    for (int m = 0, block = 0; block < blocks; block++) {
        const int R = (M - m + blocks - block - 1) / (blocks - block);  // as even as can be
        const Real* rows_a[kRows];
        Real* rows_c[kRows];
        for (int r = 0; r < R; r++, m++) rows_a[r] = a(m), rows_c[r] = c(m);
        tiles_of[R - 1](N, K, rows_a, a_step, b, b_step, rows_c, add);
    }
}

// f(0), ..., f(N - 1), written out: what a loop adds to an array, GCC would keep in memory, not in registers
template <int N, class F> NBL_INLINE void each(F f) {
    if constexpr (N > 0) {
        each<N - 1>(f);
        f(N - 1);
    }
}

// Sums of products f x y of rows of a panel, over the given number of cache lines
template <int Lines> struct Sums {
    static constexpr int V = Lines * kLineBytes / kVectorBytes;
    Vector sum[V];

    NBL_INLINE Sums() {
        each<V>([&](int v) { sum[v] = Vector{}; });
    }
    // n terms, whose operands are the given numbers of Real apart
    NBL_INLINE void add(int n, const Real* x, size_t x_step, const Real* y, size_t y_step, const Real* f) {
        for (; n > 0; n--, x += x_step, y += y_step, f++)
            each<V>([&](int v) { sum[v] += *f * ((const Vector*)x)[v] * ((const Vector*)y)[v]; });
    }
    NBL_INLINE void add(int n, const Real* x, size_t x_step, const Real* y, size_t y_step) {
        for (; n > 0; n--, x += x_step, y += y_step)
            each<V>([&](int v) { sum[v] += ((const Vector*)x)[v] * ((const Vector*)y)[v]; });
    }
    // out = keep * out + sum; out is not read where keep is 0
    NBL_INLINE void store(Real* out, Real keep = 0) const {
        if (keep == 0) each<V>([&](int v) { ((Vector*)out)[v] = sum[v]; });
        else each<V>([&](int v) { ((Vector*)out)[v] = keep * ((Vector*)out)[v] + sum[v]; });
    }
};

// f(Lines) with the number of cache lines as a constant: loops over them are written out, and sums stay in registers
template <int Lines = kPanelBytes / kLineBytes, class F> NBL_INLINE void with_lines(int lines, F f) {
    if constexpr (Lines > 1) {
        if (lines < Lines) return with_lines<Lines - 1>(lines, f);
    }
    f(std::integral_constant<int, Lines>());
}
