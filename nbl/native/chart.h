// The chart of one sentence of the NBL-PCFG: what is stored, where, and how tables get in and gradients out.

#pragma once

#include "dense.h"
#include "lanes.h"
#include "scaled_chart.h"

#include <initializer_list>

constexpr int kBand = 4;                                           // widths that are worked on together
constexpr int kTogether = kVectorBytes == kLineBytes ? kBand : 1;  // as far as there are registers for their sums

// f(width, T) for the widths from `low` to `high`, T at a time
template <class F> NBL_INLINE void in_blocks(int low, int high, F f) {
    for (int width = low; width <= high; width += kTogether)
        with_count<kTogether>(high - width + 1, [&](auto T) { f(width, T); });
}

// What Python passes (inside/bilexical/native.py). Tables and gradients are laid out as in its Tables, all of them
// probabilities; gradients and posteriors are zero at the start, and null where not wanted.
struct Problem {
    int64_t length, l, A, H, D_B, D_C, D_w;  // words of this sentence; sizes of the axes
    const Real *root, *H_Aw, *B_H, *leaf_B, *C_H, *leaf_C, *w_H;
    Real* log_Z;
    Real *d_root, *d_H_Aw, *d_B_H, *d_leaf_B, *d_C_H, *d_leaf_C, *d_w_H;
    Real *spans, *arcs;
    Real* scratch;
};

// The memory of a sentence, and where things are in it
class Chart : public Scratch {
  public:
    explicit Chart(const Problem& p) : Scratch(p.scratch), problem(p) { layout(); }

  protected:
    const Problem& problem;
    const int l = problem.length, A = problem.A, H = problem.H, D_B = problem.D_B, D_C = problem.D_C, D_w = problem.D_w;
    const int Ap = whole_lines(A), Hp = whole_lines(H), panels = (H + kPanel - 1) / kPanel;
    const bool outside_wanted = problem.d_root || problem.spans;

    Panels w, W, B, C, leaf_B, leaf_C;           // the tables; rows: [D][q], [p][A], [D][A], [D][A], [D], [D]
    Real *Wt, *Bt, *Ct;                          // the same with the symbols innermost: [p][H][Ap], [D][H][Ap]
    Panels X, I, K;                              // rows: see row, K_row; the outside pass puts dX in the place of X
    Real *s, *f_left, *f_right;                  // see s_at, split_factors
    int* first_row;                              // [i][j], see row
    int *I_scale, *K_scale, *X_scale;            // [i][j]
    int *s_exponent, *K_exponent;                // [i][j], of what s and K were divided by
    Real* scaled;                                // see scaled_at
    const Real** operands;                       // the rows that a sum over splits runs over
    Panels dI, dK;                               // rows: see dI_at, K_row
    Real *ds, *d_word_sums;                      // see s_at, derive_words
    Real *s_of_word, *d_of_word;                 // see derive_w_and_C
    bool* mild;                                  // [i][j], whether sums of dX I are in range
    Panels dW, dB, dC, d_leaf_B, d_leaf_C, dw;   // rows: as those of the tables
    Panels dK_by_head, K_by_word;                // rows: [p], [q]
    Real *K_by_word_t, *counts;                  // see add_arcs

    Panels take_panels(size_t rows) { return {take(rows * panels * kPanel), rows}; }

    void layout() {
        const size_t cells = (l + 1) * (l + 1), rows = row_by_width(l, 0, l + 1, 0), widest = (l + 1) * (l + 1) / 4;
        w = take_panels(D_w * l);
        Wt = take(size_t(l) * H * Ap);
        W = take_panels(l * A);
        B = take_panels(D_B * A);
        C = take_panels(D_C * A);
        leaf_B = take_panels(D_B);
        leaf_C = take_panels(D_C);
        X = take_panels(rows);
        I = take_panels(D_B * rows);
        K = take_panels(2 * cells);
        s = take(rows * Ap);
        for (int** table : {&first_row, &I_scale, &K_scale, &X_scale, &s_exponent, &K_exponent})
            *table = take<int>(cells);
        f_left = take(cells * (l + 1));
        f_right = take(cells * (l + 1));
        scaled = take(kBand * (l + 1) * kPanel);
        operands = take<const Real*>(2 * (l + 1));
        if (!outside_wanted) return;
        Bt = take(D_B * H * Ap);
        Ct = take(D_C * H * Ap);
        ds = take(rows * Ap);
        mild = take<bool>(cells);
        dI = take_panels((kBand * widest + l) * D_B);
        d_word_sums = take(kPanel * Ap);
        s_of_word = take(widest * Ap);
        d_of_word = take(A * kPanel);
        dK = take_panels(2 * cells);  // from here on: zero at the start of the outside pass
        dW = take_panels(l * A);
        dB = take_panels(D_B * A);
        dC = take_panels(D_C * A);
        d_leaf_B = take_panels(D_B);
        d_leaf_C = take_panels(D_C);
        dw = take_panels(D_w * l);
        if (!problem.arcs) return;
        dK_by_head = take_panels(l);
        K_by_word = take_panels(l);
        K_by_word_t = take(kPanel * whole_lines(l));
        counts = take(l * whole_lines(l));
    }

    int columns(int panel) const { return min(kPanel, Hp - panel * kPanel); }  // in whole lines
    int states(int panel) const { return min(kPanel, H - panel * kPanel); }    // of H

    int cell(int i, int j) const { return i * (l + 1) + j; }
    // Of s and all that follows from it: by width, then [i][p], so that the heads of a span are neighbours. The head 0
    // stands for the place from which the rows of a span are counted, whether it is in the span or not.
    ptrdiff_t row(int i, int j, int p) const { return first_row[cell(i, j)] + p; }
    Real* X_at(int c, int i, int j, int p) const { return X.at(c, 0) + row(i, j, p) * kPanel; }
    Real* I_at(int c, int D, int i, int j, int p) const {
        return I.at(c, D_B == 2 && D == RIGHT ? X.rows : 0) + row(i, j, p) * kPanel;
    }
    Real* s_at(int i, int j, int p) const { return s + row(i, j, p) * Ap; }
    Real* ds_at(int i, int j, int p) const { return ds + row(i, j, p) * Ap; }
    // of a band of widths from `low` on, [row][D]
    Real* dI_at(int c, int low, int i, int j, int p) const {
        return dI.at(c, 0) + (row(i, j, p) - row(0, low, 0)) * D_B * kPanel;
    }
    // [j][i] for LEFT, [i][j] for RIGHT: the ways in which the split-sum runs
    size_t K_row(int D, int i, int j) const { return D == LEFT ? cell(j, i) : K.rows / 2 + cell(i, j); }

    // One panel of f K for the terms of up to kBand sums: row n of sum t
    Real* scaled_at(int t, int n) const { return scaled + (t * (l + 1) + n) * kPanel; }

    int lines(int c) const { return columns(c) / kLine; }

    void pad(Panels to, const Real* from, int outer, int D_size) const {  // [outer][D][H] to rows [D][outer]
        for (int o = 0; o < outer; o++)
            for (int D = 0; D < D_size; D++, from += H)
                for (int c = 0; c < panels; c++) {
                    Real* const target = to.at(c, D * outer + o);
                    std::memcpy(target, from + c * kPanel, states(c) * sizeof(Real));
                    std::memset(target + states(c), 0, (kPanel - states(c)) * sizeof(Real));
                }
    }

    void unpad(Real* to, Panels from, int outer, int D_size) const {
        for (int o = 0; o < outer; o++)
            for (int D = 0; D < D_size; D++, to += H)
                for (int c = 0; c < panels; c++)
                    std::memcpy(to + c * kPanel, from.at(c, D * outer + o), states(c) * sizeof(Real));
    }

    void transpose_rows(Real* to, Panels from, int first) const {  // A rows of H to [H][Ap]
        for (int c = 0; c < panels; c++)
            transpose(from.at(c, first), kPanel, A, states(c), to + c * kPanel * Ap, Ap);
    }

    void pack() const {
        for (int i = 0; i < l; i++)
            for (int j = i + 1; j <= l; j++) first_row[cell(i, j)] = int(row_by_width(l, i, j, i)) - i;
        pad(w, problem.w_H, l, D_w);
        pad(W, problem.H_Aw, l * A, 1);
        pad(B, problem.B_H, A, D_B);
        pad(C, problem.C_H, A, D_C);
        pad(leaf_B, problem.leaf_B, 1, D_B);
        pad(leaf_C, problem.leaf_C, 1, D_C);
        for (int p = 0; p < l; p++) transpose_rows(Wt + size_t(p) * H * Ap, W, p * A);
        if (!outside_wanted) return;
        for (int D = 0; D < D_B; D++) transpose_rows(Bt + D * H * Ap, B, D * A);
        for (int D = 0; D < D_C; D++) transpose_rows(Ct + D * H * Ap, C, D * A);
    }

    void unpack() const {
        unpad(problem.d_H_Aw, dW, l * A, 1);
        unpad(problem.d_B_H, dB, A, D_B);
        unpad(problem.d_C_H, dC, A, D_C);
        unpad(problem.d_leaf_B, d_leaf_B, 1, D_B);
        unpad(problem.d_leaf_C, d_leaf_C, 1, D_C);
        unpad(problem.d_w_H, dw, l, D_w);
    }
};
