// The NL-PCFG's recursions for one sentence, on one core: log p(w) and its gradients.
//
// Names are those of lexical.py: read that first. Here the chart holds the sentence alone, and a rule with its head on
// the right is looked up in the mirror image's part of the tables. Entries are scaled by powers of two, with a scale
// for each span and head; `total` below is s before it was scaled.

#include "dense.h"
#include "scaled_chart.h"

#include <cmath>
#include <limits>

namespace {

// What Python passes (lexical_native.py). Tables are laid out as in lexical_rules.ChartRules; gradients are zero at
// the start, and null where not wanted.
struct Problem {
    int64_t length, l, b, sentence, A, PT;  // words of this sentence; sizes of the axes; its place in the batch
    const Real *logp_A_S, *logp_w_C, *leaf, *leaf_exponent, *R, *E, *T;
    Real* log_prob;
    Real *d_logp_A_S, *d_logp_w_C, *d_leaf, *d_R, *d_E, *d_T;
    Real* scratch;
};

// Large but finite: such gradients belong to values that are 0 or nearly so, and 0 * inf would not be 0.
inline Real bounded(Real gradient) {
    constexpr Real bound = sizeof(Real) == sizeof(float) ? 0x1p112 : 0x1p896;
    return gradient > bound ? bound : gradient;
}

class Sentence : public Scratch {
  public:
    explicit Sentence(const Problem& p) : Scratch(p.scratch), problem(p) { layout(); }

    void solve() {
        pack();
        for (int width = 2; width <= l; width++) {
            fill(width);
            for (int i = 0; i + width <= l; i++) close(i, i + width);
        }
        const double log_prob = goal();
        *problem.log_prob = log_prob;
        if (!gradients || log_prob == -INFINITY) return;
        std::memset(ds, 0, (base + used - ds) * sizeof(Real));
        derive_goal(log_prob);
        for (int width = l; width >= 2; width--) {
            for (int i = 0; i + width <= l; i++) derive_close(i, i + width);
            derive_fill(width);
        }
        unpack();
    }

  private:
    const Problem& problem;
    const int l = problem.length, A = problem.A, PT = problem.PT, Ap = whole_lines(A), BC = A * Ap;
    const bool gradients = problem.d_R;

    Real *word, *R, *Rt;                // [q][Ap]; [D][p][A][B][Cp]; [D][p][B][Cp][Ap]
    Real *s, *closed[2];                // see s_at, closed_at
    int* word_exponent;                 // [q], of the power of two that word was divided by
    int *s_scale, *s_exponent;          // rows as in s: its scale; the power of two that total was divided by
    int* closed_scale;                  // [i][j]; that of a leaf where j = i + 1
    Real *head, *Q, *f;                 // of one head: [split][Ap], [span][B][Cp], [split]
    Real *d_total, *dQ, *dQt, *d_head;  // [span][Ap], [span][B][Cp], [C][Bp], [split][Ap]
    Real *ds, *d_closed, *dR, *d_word;  // as s, closed, R and word; zero at the start of the outside pass

    void layout() {
        const size_t rows = size_t(l) * (l + 1) * (l + 2) / 6, cells = (l + 1) * (l + 1);
        word = take(l * Ap);
        Rt = take(size_t(2 * l) * BC * Ap);
        s = take(rows * Ap);
        for (Real*& table : closed) table = take(cells * Ap);
        word_exponent = take<int>(l);
        s_scale = take<int>(rows);
        s_exponent = take<int>(rows);
        closed_scale = take<int>(cells);
        head = take(l * Ap);
        Q = take(size_t(l) * BC);
        f = take(l);
        if (!gradients) return;
        R = take(size_t(2 * l) * BC * A);
        d_total = take(l * Ap);
        dQ = take(size_t(l) * BC);
        dQt = take(BC);
        d_head = take(l * Ap);
        ds = take(rows * Ap);
        d_closed = take(cells * Ap);
        dR = take(size_t(2 * l) * BC * A);
        d_word = take(l * Ap);
    }

    int cell(int i, int j) const { return i * (l + 1) + j; }
    size_t row(int i, int j, int p) const { return row_by_width(l, i, j, p); }
    Real* s_at(int i, int j, int p) const { return s + row(i, j, p) * Ap; }
    Real* ds_at(int i, int j, int p) const { return ds + row(i, j, p) * Ap; }
    // [j][i] for children of heads on their left, [i][j] for those of heads on their right: the ways the splits run
    Real* closed_at(int D, int i, int j) const { return closed[D] + (D == LEFT ? cell(j, i) : cell(i, j)) * Ap; }
    Real* d_closed_at(int i, int j) const { return d_closed + cell(i, j) * Ap; }

    // Where the head p is in the tables of direction D, in rows [p][2b]; and a word q among the l of a row.
    size_t place(int D, int p) const {
        return D == LEFT ? p * 2 * problem.b + problem.sentence
                         : (problem.l - 1 - p) * 2 * problem.b + problem.b + problem.sentence;
    }
    int position(int D, int q) const { return D == LEFT ? q : problem.l - 1 - q; }
    size_t E_at(int D, int p, int q) const { return (place(D, p) * problem.l + position(D, q)) * A * A; }
    size_t T_at(int D, int p) const { return place(D, p) * A * (A + PT); }
    size_t R_at(int D, int p) const { return size_t(D * l + p) * BC * A; }    // in R and dR
    size_t Rt_at(int D, int p) const { return size_t(D * l + p) * BC * Ap; }  // in Rt

    void pack() const {
        for (int q = 0; q < l; q++) {
            const Real* const logp = problem.logp_w_C + q * A;
            Real peak = -INFINITY;
            for (int c = 0; c < A; c++) peak = std::fmax(peak, logp[c]);
            word_exponent[q] = peak == -INFINITY ? kNever : int(std::floor(peak / M_LN2));
            for (int c = 0; c < Ap; c++)
                word[q * Ap + c] =
                    c < A && peak != -INFINITY ? Real(std::exp(logp[c] - word_exponent[q] * M_LN2)) : Real(0);
            const Real exponent = problem.leaf_exponent[q];
            closed_scale[cell(q, q + 1)] = exponent == -INFINITY ? kNever : int(exponent);
        }
        for (int D = LEFT; D <= RIGHT; D++)
            for (int p = 0; p < l; p++) {
                const Real* const from = problem.R + place(D, p) * A * A * A;
                Real* const to_t = Rt + Rt_at(D, p);
                std::memset(to_t, 0, BC * Ap * sizeof(Real));
                for (int a = 0; a < A; a++)
                    for (int B = 0; B < A; B++)
                        for (int c = 0; c < A; c++) to_t[(B * Ap + c) * Ap + a] = from[(a * A + B) * A + c];
                if (!gradients) continue;
                for (int aB = 0; aB < A * A; aB++)
                    for (int c = 0; c < Ap; c++) R[R_at(D, p) + aB * Ap + c] = c < A ? from[aB * A + c] : Real(0);
            }
    }

    void unpack() const {
        for (int D = LEFT; D <= RIGHT; D++)
            for (int p = 0; p < l; p++)
                for (int aB = 0; aB < A * A; aB++)
                    for (int c = 0; c < A; c++)
                        problem.d_R[(place(D, p) * A * A + aB) * A + c] = bounded(dR[R_at(D, p) + aB * Ap + c]);
        for (int q = 0; q < l; q++)
            for (int c = 0; c < A; c++) problem.d_logp_w_C[q * A + c] = d_word[q * Ap + c];
    }

    // The splits of a span with head p into a head child of at least two words and a child of at least two, by the
    // point k: [i, k) is the head child if D is LEFT, [k, j) if it is RIGHT.
    Range splits(int D, int i, int j, int p) const {
        return D == LEFT ? Range{max(p + 1, i + 2), j - 2} : Range{i + 2, min(p, j - 2)};
    }
    size_t head_row(int D, int i, int j, int p, int k) const { return D == LEFT ? row(i, k, p) : row(k, j, p); }
    int child_cell(int D, int i, int j, int k) const { return D == LEFT ? cell(k, j) : cell(i, k); }
    const Real* child_at(int D, int i, int j, int k) const {
        return D == LEFT ? closed_at(D, k, j) : closed_at(D, i, k);
    }
    // the scale of the product for any split point; that of a preterminal head child is its child's
    int product_scale(int D, int i, int j, int p, int k) const {
        const bool preterminal = (D == LEFT ? k - i : j - k) == 1;
        return (preterminal ? 0 : s_scale[head_row(D, i, j, p, k)]) + closed_scale[child_cell(D, i, j, k)];
    }
    // the largest scale of all products
    int scale_of(int i, int j, int p) const {
        int scale = 2 * kNever;
        for (int k = p + 1; k < j; k++) scale = max(scale, product_scale(LEFT, i, j, p, k));
        for (int k = i + 1; k <= p; k++) scale = max(scale, product_scale(RIGHT, i, j, p, k));
        return scale;
    }
    Real factor(int D, int i, int j, int p, int k, int scale) const {
        return power_of_two(product_scale(D, i, j, p, k) - scale);
    }

    // Q[B, C] = sum_k s[head child, B] closed[child, C]; leaves the factors f and the head children behind.
    // False if there is nothing to sum.
    bool split_sum(int D, int i, int j, int p, int scale, Real* out) const {
        const Range range = splits(D, i, j, p);
        if (range.size() <= 0) {
            std::memset(out, 0, BC * sizeof(Real));
            return false;
        }
        for (int k = range.first, n = 0; k <= range.last; k++, n++) {
            const Real* const from = s + head_row(D, i, j, p, k) * Ap;
            f[n] = factor(D, i, j, p, k, scale);
            for (int b = 0; b < Ap; b++) head[n * Ap + b] = f[n] * from[b];
        }
        gemm(
            false, A, Ap, range.size(), [&](int m) { return head + m; }, Ap, child_at(D, i, j, range.first), Ap,
            [&](int m) { return out + m * Ap; });
        return true;
    }

    void fill(int width) const {
        for (int p = 0; p < l; p++) {
            const Range spans = spans_of(l, p, width);
            for (int i = spans.first; i <= spans.last; i++) {
                s_scale[row(i, i + width, p)] = scale_of(i, i + width, p);
                std::memset(s_at(i, i + width, p), 0, Ap * sizeof(Real));
            }
            for (int D = LEFT; D <= RIGHT; D++) {
                for (int i = spans.first, m = 0; i <= spans.last; i++, m++) {
                    split_sum(D, i, i + width, p, s_scale[row(i, i + width, p)], Q + size_t(m) * BC);
                    add_preterminals(D, i, i + width, p);
                }
                gemm(
                    true, spans.size(), Ap, BC, [&](int m) { return Q + size_t(m) * BC; }, 1, Rt + Rt_at(D, p), Ap,
                    [&](int m) { return s_at(spans.first + m, spans.first + m + width, p); });
            }
            for (int i = spans.first; i <= spans.last; i++) {
                const size_t n = row(i, i + width, p);
                s_exponent[n] = rescale(s + n * Ap, Ap);
                s_scale[n] = s_exponent[n] == kNever ? kNever : s_scale[n] + s_exponent[n];
            }
        }
    }

    // the scale of total, from that of s
    int total_scale(size_t n) const { return s_scale[n] - s_exponent[n]; }

    // A product with a rule that has a preterminal in it: T, if the head child is one, or E, if the child is one
    struct Preterminal {
        int k;            // the split point
        const Real* x;    // the values of the other of the two
        Real* d_x;        // and their gradients
        int columns;      // symbols of it
        bool is_T;
        size_t rules;     // the place of the rules in T or E
        int step;         // from one A to the next there
    };
    template <class F> void each_preterminal(int D, int i, int j, int p, F apply) const {
        const bool left = D == LEFT;
        if (p == (left ? i : j - 1)) {
            const int k = left ? i + 1 : j - 1, from = left ? k : i, to = left ? j : k;
            if (to - from == 1)
                apply(Preterminal{k, problem.leaf + from * PT, gradients ? problem.d_leaf + from * PT : nullptr, PT,
                                  true, T_at(D, p) + A, A + PT});
            else
                apply(Preterminal{k, closed_at(LEFT, from, to), gradients ? d_closed_at(from, to) : nullptr, A, true,
                                  T_at(D, p), A + PT});
        }
        if (j - i > 2 && p != (left ? j - 1 : i)) {
            const int k = left ? j - 1 : i + 1, q = left ? j - 1 : i;
            const size_t n = head_row(D, i, j, p, k) * Ap;
            apply(Preterminal{k, s + n, gradients ? ds + n : nullptr, A, false, E_at(D, p, q), A});
        }
    }

    void add_preterminals(int D, int i, int j, int p) const {
        Real* const out = s_at(i, j, p);
        each_preterminal(D, i, j, p, [&](const Preterminal& it) {
            const Real* const rules = (it.is_T ? problem.T : problem.E) + it.rules;
            const Real weight = factor(D, i, j, p, it.k, s_scale[row(i, j, p)]);
            for (int a = 0; a < A; a++) {
                Real sum = 0;
                for (int x = 0; x < it.columns; x++) sum += rules[a * it.step + x] * it.x[x];
                out[a] += weight * sum;
            }
        });
    }

    int closing_scale(int i, int j, int q) const { return s_scale[row(i, j, q)] + word_exponent[q]; }
    void close(int i, int j) const {
        Real* const out = closed_at(LEFT, i, j);
        int scale = 2 * kNever;
        for (int q = i; q < j; q++) scale = max(scale, closing_scale(i, j, q));
        std::memset(out, 0, Ap * sizeof(Real));
        for (int q = i; q < j; q++) {
            const Real *const value = s_at(i, j, q), weight = power_of_two(closing_scale(i, j, q) - scale);
            for (int c = 0; c < Ap; c++) out[c] += weight * value[c] * word[q * Ap + c];
        }
        const int exponent = rescale(out, Ap);
        closed_scale[cell(i, j)] = exponent == kNever ? kNever : scale + exponent;
        std::memcpy(closed_at(RIGHT, i, j), out, Ap * sizeof(Real));
    }

    double goal() const {
        const Real* const value = closed_at(LEFT, 0, l);
        double peak = -INFINITY, sum = 0;
        for (int a = 0; a < A; a++) peak = std::fmax(peak, std::log(double(value[a])) + problem.logp_A_S[a]);
        if (peak == -INFINITY) return peak;
        for (int a = 0; a < A; a++) sum += std::exp(std::log(double(value[a])) + problem.logp_A_S[a] - peak);
        return peak + std::log(sum) + closed_scale[cell(0, l)] * M_LN2;
    }

    void derive_goal(double log_prob) const {
        for (int a = 0; a < A; a++) {
            const Real d = bounded(std::exp(problem.logp_A_S[a] + closed_scale[cell(0, l)] * M_LN2 - log_prob));
            d_closed_at(0, l)[a] = d;
            problem.d_logp_A_S[a] = d * closed_at(LEFT, 0, l)[a];
        }
    }

    // from d_closed to ds
    void derive_close(int i, int j) const {
        const Real* const d = d_closed_at(i, j);
        const int scale = closed_scale[cell(i, j)];
        if (scale == kNever) return;
        for (int q = i; q < j; q++) {
            const Real *const value = s_at(i, j, q), weight = power_of_two(closing_scale(i, j, q) - scale);
            for (int c = 0; c < A; c++) {
                const Real share = weight * word[q * Ap + c] * bounded(d[c]);
                ds_at(i, j, q)[c] += share;
                d_word[q * Ap + c] += share * value[c];
            }
        }
    }

    // from ds of a width to its head children, children and rules
    void derive_fill(int width) const {
        for (int p = 0; p < l; p++) {
            const Range spans = spans_of(l, p, width);
            for (int i = spans.first, m = 0; i <= spans.last; i++, m++) {
                const size_t n = row(i, i + width, p);
                const Real factor = s_exponent[n] == kNever ? Real(0) : power_of_two(-s_exponent[n]);
                for (int a = 0; a < Ap; a++) d_total[m * Ap + a] = bounded(ds[n * Ap + a] * factor);
            }
            for (int D = LEFT; D <= RIGHT; D++) {
                gemm(
                    false, spans.size(), BC, A, [&](int m) { return d_total + m * Ap; }, 1, R + R_at(D, p), BC,
                    [&](int m) { return dQ + size_t(m) * BC; });
                for (int i = spans.first, m = 0; i <= spans.last; i++, m++) {
                    const size_t n = row(i, i + width, p);
                    if (s_exponent[n] == kNever) {
                        std::memset(Q + size_t(m) * BC, 0, BC * sizeof(Real));
                        continue;
                    }
                    derive_preterminals(D, i, i + width, p, d_total + m * Ap);
                    if (split_sum(D, i, i + width, p, total_scale(n), Q + size_t(m) * BC))
                        derive_split_sum(D, i, i + width, p, dQ + size_t(m) * BC);
                }
                gemm(
                    true, A, BC, spans.size(), [&](int m) { return d_total + m; }, Ap, Q, BC,
                    [&](int m) { return dR + R_at(D, p) + m * BC; });
            }
        }
    }

    void derive_split_sum(int D, int i, int j, int p, const Real* d) const {
        const Range range = splits(D, i, j, p);
        gemm(
            true, range.size(), Ap, A, [&](int m) { return head + m * Ap; }, 1, d, Ap,
            [&](int m) { return d_closed + child_cell(D, i, j, range.first + m) * Ap; });
        for (int c = 0; c < A; c++)
            for (int b = 0; b < Ap; b++) dQt[c * Ap + b] = b < A ? d[b * Ap + c] : Real(0);
        gemm(
            false, range.size(), Ap, A, [&](int m) { return child_at(D, i, j, range.first + m); }, 1, dQt, Ap,
            [&](int m) { return d_head + m * Ap; });
        for (int m = 0; m < range.size(); m++) {
            Real* const to = ds + head_row(D, i, j, p, range.first + m) * Ap;
            for (int b = 0; b < Ap; b++) to[b] += f[m] * d_head[m * Ap + b];
        }
    }

    void derive_preterminals(int D, int i, int j, int p, const Real* d) const {
        each_preterminal(D, i, j, p, [&](const Preterminal& it) {
            const Real* const rules = (it.is_T ? problem.T : problem.E) + it.rules;
            Real* const d_rules = (it.is_T ? problem.d_T : problem.d_E) + it.rules;
            const Real weight = factor(D, i, j, p, it.k, total_scale(row(i, j, p)));
            for (int a = 0; a < A; a++) {
                const Real d_a = weight * d[a];
                for (int x = 0; x < it.columns; x++) {
                    d_rules[a * it.step + x] = bounded(d_rules[a * it.step + x] + d_a * it.x[x]);
                    it.d_x[x] += d_a * rules[a * it.step + x];
                }
            }
        });
    }
};

}  // namespace

extern "C" {

// Bytes of scratch memory for this problem, and for any that differs from it in being shorter
int64_t scratch_bytes(const Problem* problem) { return Sentence(*problem).scratch_bytes(); }

void solve(const Problem* problem) {
    const FlushDenormals flush;
    Sentence(*problem).solve();
}
}
