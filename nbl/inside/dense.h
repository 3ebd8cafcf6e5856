// What the recursions of bilexical.cpp are made of: small matrix products and sums of element-wise products.
//
// A matrix over H is stored as panels of kPanel columns, panel after panel, each with all rows: a sum of products of
// rows then runs along one panel, whose operands stay in the cache. Matrices over symbols are stored by rows, padded
// with zeros to whole cache lines.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace nbl {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif
constexpr int kLineBytes = 64, kPanelBytes = 256;

template <class T> using Vector __attribute__((vector_size(kVectorBytes), may_alias)) = T;
template <class T> constexpr int kVector = kVectorBytes / sizeof(T);
template <class T> constexpr int kLine = kLineBytes / sizeof(T);
template <class T> constexpr int kPanel = kPanelBytes / sizeof(T);

template <class T> int whole_lines(int n) { return (n + kLine<T> - 1) / kLine<T> * kLine<T>; }

// A matrix over H: rows x panels
template <class T> struct Panels {
    T* start = nullptr;
    size_t rows = 0;
    T* at(int panel, size_t row) const { return start + (panel * rows + row) * kPanel<T>; }
};

// c[m][n] (+)= sum_k a[m][k * a_step] b[k * b_step + n], for R rows m and V vectors from n on
template <class T, int R, int V>
inline void tile(int n, int K, const T* const* a, size_t a_step, const T* b, size_t b_step, T* const* c, bool add) {
    Vector<T> sum[R][V] = {};
    for (int k = 0; k < K; k++) {
        const auto row = (const Vector<T>*)(b + k * b_step + n);
        for (int r = 0; r < R; r++)
            for (int v = 0; v < V; v++) sum[r][v] += a[r][k * a_step] * row[v];
    }
    for (int r = 0; r < R; r++)
        for (int v = 0; v < V; v++) {
            const auto out = (Vector<T>*)(c[r] + n) + v;
            *out = add ? *out + sum[r][v] : sum[r][v];
        }
}

template <class T, int R>
void tiles(int N, int K, const T* const* a, size_t a_step, const T* b, size_t b_step, T* const* c, bool add) {
    int n = 0;
    for (; n + 2 * kVector<T> <= N; n += 2 * kVector<T>) tile<T, R, 2>(n, K, a, a_step, b, b_step, c, add);
    if (n < N) tile<T, R, 1>(n, K, a, a_step, b, b_step, c, add);
}

// C (+)= A B with M rows and N columns, N whole lines; a(m) and c(m) are the rows of A and C.
template <class T, class RowA, class RowC>
void gemm(bool add, int M, int N, int K, RowA a, size_t a_step, const T* b, size_t b_step, RowC c) {
    constexpr int kRows = 6;  // with two vectors each, as many sums as registers hold
    constexpr decltype(&tiles<T, 1>) tiles_of[kRows] = {tiles<T, 1>, tiles<T, 2>, tiles<T, 3>,
                                                        tiles<T, 4>, tiles<T, 5>, tiles<T, 6>};
    const int blocks = (M + kRows - 1) / kRows;
    for (int m = 0, block = 0; block < blocks; block++) {
        const int R = (M - m + blocks - block - 1) / (blocks - block);  // as even as can be
        const T* rows_a[kRows];
        T* rows_c[kRows];
        for (int r = 0; r < R; r++, m++) rows_a[r] = a(m), rows_c[r] = c(m);
        tiles_of[R - 1](N, K, rows_a, a_step, b, b_step, rows_c, add);
    }
}

// Sums of products f x y of rows of a panel
template <class T> struct Sums {
    static constexpr int V = kPanelBytes / kVectorBytes;
    Vector<T> sum[V] = {};

    // n terms, whose operands are the given numbers of T apart
    void add(int n, const T* x, size_t x_step, const T* y, size_t y_step, const T* f, size_t f_step) {
        for (; n > 0; n--, x += x_step, y += y_step, f += f_step)
            for (int v = 0; v < V; v++) sum[v] += *f * ((const Vector<T>*)x)[v] * ((const Vector<T>*)y)[v];
    }
    void store(T* out) const {
        for (int v = 0; v < V; v++) ((Vector<T>*)out)[v] = sum[v];
    }
    // out = keep * out + sum
    void store(T* out, T keep) const {
        for (int v = 0; v < V; v++) ((Vector<T>*)out)[v] = keep * ((Vector<T>*)out)[v] + sum[v];
    }
};

// 2^e; 0 where it is below the smallest normal number
inline float power_of_two(int e, float) {
    const uint32_t bits = e < -126 ? 0 : uint32_t(e + 127) << 23;
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}
inline double power_of_two(int e, double) {
    const uint64_t bits = e < -1022 ? 0 : uint64_t(e + 1023) << 52;
    double x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

template <class T> T peak_of(const T* x, size_t n, T peak = 0) {
    for (size_t k = 0; k < n; k++) peak = peak > x[k] ? peak : x[k];
    return peak;
}

template <class T> void multiply(T* x, size_t n, T factor) {
    for (size_t k = 0; k < n; k++) x[k] *= factor;
}

}  // namespace nbl
