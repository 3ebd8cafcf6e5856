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

#define NBL_INLINED __attribute__((always_inline))  // a lambda
#define NBL_INLINE inline NBL_INLINED

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

// Rows a step apart
template <class R> struct Rows {
    R* start;
    ptrdiff_t step;
    NBL_INLINE R* operator()(int m) const { return start + m * step; }
};
template <class R> Rows(R*, ptrdiff_t) -> Rows<R>;

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

// R rows of a product: columns in tiles of up to `Most` vectors, as even as can be
template <int R, int Most>
void tiles(int N, int K, const Real* const* a, size_t a_step, const Real* b, size_t b_step, Real* const* c, bool add) {
    const int vectors = N / kVector, blocks = (vectors + Most - 1) / Most;
    for (int v = 0, block = 0; block < blocks; block++) {
        const int V = (vectors - v + blocks - block - 1) / (blocks - block);
        if constexpr (Most >= 4) {
            if (V == 4) tile<R, 4>(v * kVector, K, a, a_step, b, b_step, c, add);
            if (V == 3) tile<R, 3>(v * kVector, K, a, a_step, b, b_step, c, add);
        }
        if constexpr (Most >= 2) {
            if (V == 2) tile<R, 2>(v * kVector, K, a, a_step, b, b_step, c, add);
        }
        if (V == 1) tile<R, 1>(v * kVector, K, a, a_step, b, b_step, c, add);
        v += V;
    }
}

// f(N) with a number from 1 to Most as a constant
template <int Most, class F> NBL_INLINE void with_count(int n, F f) {
    if constexpr (Most > 1) {
        if (n < Most) return with_count<Most - 1>(n, f);
    }
    f(std::integral_constant<int, Most>());
}

template <int MaxRows, int MaxVectors, class RowA, class RowC>
void product(bool add, int M, int N, int K, RowA a, size_t a_step, const Real* b, size_t b_step, RowC c) {
    const int blocks = (M + MaxRows - 1) / MaxRows;
    for (int m = 0, block = 0; block < blocks; block++) {
        const int R = (M - m + blocks - block - 1) / (blocks - block);  // as even as can be
        const Real* rows_a[MaxRows];
        Real* rows_c[MaxRows];
        for (int r = 0; r < R; r++, m++) rows_a[r] = a(m), rows_c[r] = c(m);
        with_count<MaxRows>(R, [&](auto rows) {
            tiles<rows, MaxVectors>(N, K, rows_a, a_step, b, b_step, rows_c, add);
        });
    }
}

// C (+)= A B with M rows and N columns, N whole lines; a(m) and c(m) are the rows of A and C.
template <class RowA, class RowC>
void gemm(bool add, int M, int N, int K, RowA a, size_t a_step, const Real* b, size_t b_step, RowC c) {
    constexpr int kVectors = kVectorBytes == 64 ? 4 : 2;
    if (N == kVector) product<12, 1>(add, M, N, K, a, a_step, b, b_step, c);
    else product<6, kVectors>(add, M, N, K, a, a_step, b, b_step, c);
}

// f(0), ..., f(N - 1), written out: what a loop adds to an array, GCC would keep in memory, not in registers
template <int N, class F> NBL_INLINE void each(F f) {
    if constexpr (N > 0) {
        each<N - 1>(f);
        f(N - 1);
    }
}

// T sums of products x y[t] of rows of a panel, over the given number of cache lines; they share the operand x
template <int Lines, int T = 1> struct Sums {
    static constexpr int V = Lines * kLineBytes / kVectorBytes;
    Vector sum[T][V];

    NBL_INLINE Sums() {
        each<T>([&](int t) { each<V>([&](int v) { sum[t][v] = Vector{}; }); });
    }
    // n terms x(m) y[t](m); the rows of y are a step apart
    template <class Row> NBL_INLINE void add(int n, Row x, const Real* const* y, ptrdiff_t y_step) {
        const Real* rows[T];
        each<T>([&](int t) NBL_INLINED { rows[t] = y[t]; });
        for (int m = 0; m < n; m++) {
            const auto row = (const Vector*)x(m);
            each<V>([&](int v) NBL_INLINED {
                const Vector shared = row[v];
                each<T>([&](int t) NBL_INLINED { sum[t][v] += shared * ((const Vector*)rows[t])[v]; });
            });
            each<T>([&](int t) NBL_INLINED { rows[t] += y_step; });
        }
    }
    // one term f x y of the one sum
    NBL_INLINE void add(Real f, const Real* x, const Real* y) {
        each<V>([&](int v) { sum[0][v] += f * ((const Vector*)x)[v] * ((const Vector*)y)[v]; });
    }
    // out = keep * out + factor * sum[t]; out is not read where keep is 0
    NBL_INLINE void store(Real* out, Real keep = 0, int t = 0, Real factor = 1) const {
        if (keep == 0) each<V>([&](int v) { ((Vector*)out)[v] = factor * sum[t][v]; });
        else each<V>([&](int v) { ((Vector*)out)[v] = keep * ((Vector*)out)[v] + factor * sum[t][v]; });
    }
};

// The same with the number of cache lines of a panel: loops over them are written out, and sums stay in registers. An
// even number is made odd, which is half of the code: all rows have room for it.
template <int Lines = kPanelBytes / kLineBytes, class F> NBL_INLINE void with_lines(int lines, F f) {
    if constexpr (Lines > 2) {
        if (lines <= Lines - 2) return with_lines<Lines - 2>(lines, f);
    }
    f(std::integral_constant<int, Lines>());
}
