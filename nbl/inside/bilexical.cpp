// The NBL-PCFG's inside and outside recursions for one sentence, on one core.
//
// The recursions, the scaled chart and all names are those of bilexical_torch.py: read that first. The order of the
// work is made for the cache. Everything that runs along H is done panel by panel (dense.h). The sums over the splits
// read the whole chart, so they are taken for a band of several widths at once: `far` terms, whose operands lie outside
// the band, for all spans of the band, while the operands of a head are in the cache; the few `near` terms inside the
// band width by width.

#include "dense.h"

#include <cmath>
#include <limits>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace {

using namespace nbl;

enum { LEFT, RIGHT };
constexpr int kBand = 4;            // widths in a band
constexpr int kNever = -(1 << 28);  // the scale of an impossible span

int max(int a, int b) { return a > b ? a : b; }
int min(int a, int b) { return a < b ? a : b; }

struct Range {
    int first, last;
    int size() const { return last - first + 1; }
};

// What Python passes (native.py). Tables and gradients are laid out as in bilexical_torch.Tables; gradients and
// posteriors are zero at the start, and null where not wanted.
template <class T> struct Problem {
    int64_t length, l, A, H, D_B, D_C, D_w;  // words of this sentence; sizes of the axes
    const T *root, *H_Aw, *B_H, *leaf_B, *C_H, *leaf_C, *w_H;
    T* log_Z;
    T *d_root, *d_H_Aw, *d_B, *d_leaf_B, *d_C, *d_leaf_C, *d_w;
    T *spans, *arcs;
    T* scratch;
};

template <class T> class Sentence {
  public:
    Sentence(const Problem<T>& problem) : q(problem) { layout(); }

    int64_t scratch_bytes() const { return used * sizeof(T) + kLineBytes; }  // and what alignment takes

    void solve() {
        pack();
        inside();
        const double log_Z = goal();
        *q.log_Z = log_Z;
        if (!outside_wanted || log_Z == -INFINITY) return;
        outside(log_Z);
        if (q.d_H_Aw) unpack();
        if (q.arcs) arcs();
    }

  private:
    const Problem<T>& q;
    const int l = q.length, A = q.A, H = q.H, D_B = q.D_B, D_C = q.D_C, D_w = q.D_w;
    const int Ap = whole_lines<T>(A), Hp = whole_lines<T>(H), panels = (H + kPanel<T> - 1) / kPanel<T>;
    const bool outside_wanted = q.d_root || q.spans;

    // ---- memory ----------------------------------------------------------------------------------------------

    T* const base = (T*)((uintptr_t(q.scratch) + kLineBytes - 1) / kLineBytes * kLineBytes);
    int64_t used = 0;  // numbers of T from base

    Panels<T> w, W, B, C, leaf_B, leaf_C;    // the tables, rows: [D][q], [p][A], [D][A], [D][A], [D], [D]
    T *Wt, *Bt, *Ct;                         // [p][H][Ap], [D][H][Ap]
    Panels<T> X, I, K, word_sums;            // X becomes dX in the outside pass; word_sums is T, [D][C]
    T *s, *ds;                               // see s_at, ds_at
    Panels<T> dI, dK, dW, dB, dC, d_leaf_B, d_leaf_C, dw, d_word_sums;
    T* d_word_sums_t;                        // [D][kPanel][Ap]
    int *I_scale, *K_scale, *X_scale, *s_exponent, *K_exponent;  // [i][j]
    T *f_left, *f_right;                     // see split_factors

    template <class U = T> U* take(size_t n) {
        U* const start = (U*)(base + used);
        used += whole_lines<T>((n * sizeof(U) + sizeof(T) - 1) / sizeof(T));
        return start;
    }
    Panels<T> take_panels(size_t rows) { return {take(rows * panels * kPanel<T>), rows}; }

    void layout() {
        const size_t cells = (l + 1) * (l + 1), rows = row(l, 0, l + 1), widest = (l + 1) * (l + 1) / 4;
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
        word_sums = take_panels(D_w * A);
        s = take(rows * Ap);
        for (int** table : {&I_scale, &K_scale, &X_scale, &s_exponent, &K_exponent}) *table = take<int>(cells);
        f_left = take(cells * (l + 1));
        f_right = take(cells * (l + 1));
        if (!outside_wanted) return;
        Bt = take(D_B * H * Ap);
        Ct = take(D_C * H * Ap);
        ds = take(widest * Ap);
        dI = take_panels((kBand * widest + l) * D_B);
        d_word_sums = take_panels(D_w * A);
        d_word_sums_t = take(D_w * kPanel<T> * Ap);
        dK = take_panels(2 * cells);  // from here on: zero at the start of the outside pass
        dW = take_panels(l * A);
        dB = take_panels(D_B * A);
        dC = take_panels(D_C * A);
        d_leaf_B = take_panels(D_B);
        d_leaf_C = take_panels(D_C);
        dw = take_panels(D_w * l);
    }
