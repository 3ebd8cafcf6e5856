// Products of large matrices of any strides, out of the tiles of dense.h.
//
// The right factor is copied, a few hundred rows at a time, into panels as wide as a tile: one panel stays in the first
// cache while the rows of the left factor pass by, all panels and a block of those rows stay in the second. Every entry
// of the result is the same ordered sum however the work is divided.

#pragma once

#include "dense.h"

constexpr int kTileRows = 6, kTileColumns = 2 * kVector;
constexpr int kDepth = 256;                // rows of the right factor that are worked on together
constexpr int kBlockRows = 16 * kTileRows;  // rows of the left factor
constexpr int kBlockColumns = 512;         // columns of the right factor

// Entry (m, k) is at start + m * row + k * column.
struct Matrix {
    const Real* start;
    ptrdiff_t row, column;
};

constexpr size_t kPanelsSize = kDepth * kBlockColumns;

// Rows of B as panels [column / kTileColumns][k][kTileColumns], padded with zeros, row k multiplied by weight[k].
inline void pack_panels(int N, int K, Matrix B, Real* panels, const Real* weight = nullptr) {
    for (int n = 0; n < N; n += kTileColumns, panels += K * kTileColumns) {
        const int columns = N - n < kTileColumns ? N - n : kTileColumns;
        const Real* const from = B.start + n * B.column;
        if (columns < kTileColumns) std::memset(panels, 0, K * kTileColumns * sizeof(Real));
        if (B.column == 1)
            for (int k = 0; k < K; k++)
                std::memcpy(panels + k * kTileColumns, from + k * B.row, columns * sizeof(Real));
        else
            for (int c = 0; c < columns; c++)
                for (int k = 0; k < K; k++) panels[k * kTileColumns + c] = from[k * B.row + c * B.column];
        if (weight)
            for (int k = 0; k < K; k++)
                for (int c = 0; c < kTileColumns; c++) panels[k * kTileColumns + c] *= weight[k];
    }
}

// R rows of C (+)= A B for one panel of B; K > 0
template <int R>
void panel_rows(bool add, int columns, int K, Matrix A, const Real* panel, Real* C, ptrdiff_t C_row) {
    const bool direct = columns == kTileColumns && (uintptr_t(C) | C_row * sizeof(Real)) % kVectorBytes == 0;
    alignas(kLineBytes) Real tile_rows[R][kTileColumns];
    const Real* a[R];
    Real* c[R];
    for (int r = 0; r < R; r++) a[r] = A.start + r * A.row, c[r] = direct ? C + r * C_row : tile_rows[r];
    tile<R, 2>(0, K, a, A.column, panel, kTileColumns, c, direct && add);
    if (direct) return;
    for (int r = 0; r < R; r++)
        for (int n = 0; n < columns; n++) C[r * C_row + n] = (add ? C[r * C_row + n] : Real(0)) + tile_rows[r][n];
}

// C (+)= A B, of which B is in panels; K <= kDepth
inline void times_panels(bool add, int M, int N, int K, Matrix A, const Real* panels, Real* C, ptrdiff_t C_row) {
    constexpr decltype(&panel_rows<1>) rows_of[kTileRows] = {panel_rows<1>, panel_rows<2>, panel_rows<3>,
                                                             panel_rows<4>, panel_rows<5>, panel_rows<6>};
    for (int block = 0; block < M; block += kBlockRows) {
        const int end = M < block + kBlockRows ? M : block + kBlockRows;
        for (int n = 0; n < N; n += kTileColumns) {
            const int columns = N - n < kTileColumns ? N - n : kTileColumns;
            for (int m = block, left = (end - block + kTileRows - 1) / kTileRows; left > 0; left--) {
                const int rows = (end - m + left - 1) / left;  // as even as can be
                rows_of[rows - 1](add, columns, K, {A.start + m * A.row, A.row, A.column}, panels + size_t(n) * K,
                                  C + m * C_row + n, C_row);
                m += rows;
            }
        }
    }
}

// C (+)= A B, or A diag(weight) B; `panels` is memory for kPanelsSize numbers
inline void product(bool add, int M, int N, int K, Matrix A, Matrix B, Real* C, ptrdiff_t C_row, Real* panels,
                    const Real* weight = nullptr) {
    for (int n = 0; n < N; n += kBlockColumns)
        for (int k = 0; k < K; k += kDepth) {
            const int columns = N - n < kBlockColumns ? N - n : kBlockColumns, depth = K - k < kDepth ? K - k : kDepth;
            pack_panels(columns, depth, {B.start + n * B.column + k * B.row, B.row, B.column}, panels,
                        weight ? weight + k : nullptr);
            times_panels(add || k > 0, M, columns, depth, {A.start + k * A.column, A.row, A.column}, panels, C + n,
                         C_row);
        }
}
