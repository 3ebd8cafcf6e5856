// The NL-PCFG's recursions for one sentence, on one core: log p(w) with its gradients, or with posteriors.
//
// Names are those of inside/lexical: read that first. Here the chart holds the sentence alone: a head on the right is a
// direction D of its own, not a mirror image. Entries are scaled by powers of two, with a scale for each span and head;
// `total` below is s before it was scaled.
//
// The large rules, with two nonterminal children, split a span into parts of at least two words. So they need nothing
// of the width before, and the spans of two widths, a band, go through the rules of a head together.

#include "heads.h"

namespace {

class Sentence : public Heads {
  public:
    explicit Sentence(const Problem& p) : Heads(p) { layout(); }

    void solve() {
        for (int width = 1; width <= l; width++) first_row[width] = row_by_width(l, 0, width, 0);
        scale_words();
        compute_rules();
        for (int low = 2; low <= l; low += 2) {
            fill_phrases(low);
            for (int width = low; width <= min(low + 1, l); width++)
                for (int i = 0; i + width <= l; i++) {
                    for (int p = i; p < i + width; p++) finish(i, i + width, p);
                    close(i, i + width);
                }
        }
        const double log_Z = goal();
        *problem.log_Z = log_Z;
        if (gradients) clear_gradients(log_Z == -INFINITY ? 0 : l);
        if (!outside || log_Z == -INFINITY) return;
        start_outside();
        derive_goal(log_Z);
        for (int low = l - l % 2; low >= 2; low -= 2) {
            for (int width = min(low + 1, l); width >= low; width--)
                for (int i = 0; i + width <= l; i++) {
                    derive_close(i, i + width);
                    derive_finish(i, i + width);
                }
            derive_phrases(low);
        }
        if (!gradients) return;
        for (int D = LEFT; D <= RIGHT; D++)
            for (int p = 0; p < l; p++) add_dR(D, p);
        derive_rules();
        derive_words();
    }

  private:
    Real* word;                          // [q][Ap], p(w_q | C) of nonterminals
    int* word_exponent;                  // [q], of the power of two that word was divided by
    Real *s, *closed[2];                 // see s_at, closed_at
    size_t* first_row;                   // [width], of s
    int *s_scale, *s_exponent;           // rows as in s: its scale; the power of two that total was divided by
    int* closed_scale;                   // [i][j]; that of a leaf where j = i + 1
    Real *head, *f, *part;               // of one head: [split][Ap], [split], [Ap]
    Real *dQ, *dQt, *d_head, *d_scaled;  // [span][B][Cp], [C][Bp], [split][Ap], [Ap]
    Real *Q, *d_total;                   // of each head, for dRt: [D][p][kept][B][Cp], [D][p][kept][Ap]
    int* kept;                           // [D][p], how many spans
    Real *ds, *d_closed, *d_word;        // as s, see d_closed_at, and as word; zero at the start of the outside pass
    Real* parts;                         // [q][Ap]   what closed is the sum of

    struct Span {
        int i, j;
    };
    // Those of a band with head p that can be split into two phrases, the head in direction D
    struct Spans {
        int size;
        Span* of;
        const Span& operator[](int m) const { return of[m]; }
    };
    Span* found_spans;

    const int heads = problem.arcs ? l + 1 : 1;  // whose gradients of closed are kept apart
    const int most_kept = l + 1;  // the most that a band adds
    const size_t rows = size_t(l) * (l + 1) * (l + 2) / 6, cells = size_t(l + 1) * (l + 1);

    void layout() {
        word = take(l * Ap);
        word_exponent = take<int>(l);
        first_row = take<size_t>(l + 1);
        s = take(rows * Ap);
        for (Real*& table : closed) table = take(cells * Ap);
        s_scale = take<int>(rows);
        s_exponent = take<int>(rows);
        closed_scale = take<int>(cells);
        head = take(l * Ap);
        f = take(l);
        part = take(max(Ap, PTp));
        found_spans = take<Span>(l + 1);
        Q = take(size_t(gradients ? 2 * l : 1) * most_kept * BC);
        if (!outside) return;
        dQ = take(size_t(l + 1) * BC);
        dQt = take(Ap * Ap);
        d_head = take(l * Ap);
        d_scaled = take(Ap);
        ds = take(rows * Ap);
        d_closed = take(size_t(l) * (l + 1) / 2 * heads * Ap);
        if (problem.arcs) parts = take(l * Ap);
        if (!gradients) return;
        d_total = take(size_t(2 * l) * most_kept * Ap);
        kept = take<int>(2 * l);
        d_word = take(l * Ap);
    }

    static void zero(Real* x, size_t n) { std::memset(x, 0, n * sizeof(Real)); }
    int cell(int i, int j) const { return i * (l + 1) + j; }
    size_t row(int i, int j, int p) const { return first_row[j - i] + size_t(i) * (j - i) + p - i; }
    Real* s_at(int i, int j, int p) const { return s + row(i, j, p) * Ap; }
    Real* ds_at(int i, int j, int p) const { return ds + row(i, j, p) * Ap; }
    // [j][i] for children of heads on their left, [i][j] for those of heads on their right: the ways the splits run
    Real* closed_at(int D, int i, int j) const { return closed[D] + (D == LEFT ? cell(j, i) : cell(i, j)) * Ap; }
    // [j][i][head]: of the sentence (0) and of the word p (1 + p), or of all together
    Real* d_closed_at(int i, int j, int of_head) const {
        return d_closed + ((size_t(j) * (j - 1) / 2 + i) * heads + min(of_head, heads - 1)) * Ap;
    }

    // probabilities divided by a power of two that brings the largest to 1 or above, and its exponent
    static int scaled(const Real* logp, int n, int padded, Real* out) {
        const Real peak = *std::max_element(logp, logp + n);
        std::fill(out, out + padded, Real(0));
        if (peak == -INFINITY) return kNever;
        const int exponent = std::floor(peak / M_LN2);
        for (int c = 0; c < n; c++) out[c] = std::exp(logp[c] - exponent * M_LN2);
        return exponent;
    }
    void scale_words() const {
        for (int q = 0; q < l; q++) {
            const Real* const logp = problem.logp_w_X + q * S;
            word_exponent[q] = scaled(logp, A, Ap, word + q * Ap);
            closed_scale[cell(q, q + 1)] = scaled(logp + A, PT, PTp, leaf + q * PTp);
        }
    }

    // The splits of a span with head p into a head child of at least two words and a child of at least two, by the
    // point k: [i, k) is the head child if D is LEFT, [k, j) if it is RIGHT.
    Range splits(int D, int i, int j, int p) const {
        return D == LEFT ? Range{max(p + 1, i + 2), j - 2} : Range{i + 2, min(p, j - 2)};
    }
    size_t head_row(int D, int i, int j, int p, int k) const { return D == LEFT ? row(i, k, p) : row(k, j, p); }
    Span child(int D, int i, int j, int k) const { return D == LEFT ? Span{k, j} : Span{i, k}; }
    const Real* child_at(int D, int i, int j, int k) const {
        const Span it = child(D, i, j, k);
        return closed_at(D, it.i, it.j);
    }
    // the scale of the product for any split point; that of a preterminal head child is its child's
    int product_scale(int D, int i, int j, int p, int k) const {
        const bool preterminal = (D == LEFT ? k - i : j - k) == 1;
        const Span it = child(D, i, j, k);
        return (preterminal ? 0 : s_scale[head_row(D, i, j, p, k)]) + closed_scale[cell(it.i, it.j)];
    }
    Real factor(int D, int i, int j, int p, int k, int scale) const {
        return power_of_two(product_scale(D, i, j, p, k) - scale);
    }

    // the largest scale of the products of two phrases
    int scale_of_phrases(int i, int j, int p) const {
        int scale = 2 * kNever;
        for (int D = LEFT; D <= RIGHT; D++) {
            const Range range = splits(D, i, j, p);
            for (int k = range.first; k <= range.last; k++) scale = max(scale, product_scale(D, i, j, p, k));
        }
        return scale;
    }

    // Q[B, C] = sum_k s[head child, B] closed[child, C]; leaves the factors f and the head children behind.
    void split_sum(int D, int i, int j, int p, int scale, Real* out) const {
        const Range range = splits(D, i, j, p);
        for (int k = range.first, n = 0; k <= range.last; k++, n++) {
            const Real* const from = s + head_row(D, i, j, p, k) * Ap;
            f[n] = factor(D, i, j, p, k, scale);
            for (int b = 0; b < Ap; b++) head[n * Ap + b] = f[n] * from[b];
        }
        gemm(
            false, A, Ap, range.size(), [&](int m) { return head + m; }, Ap, child_at(D, i, j, range.first), Ap,
            [&](int m) { return out + m * Ap; });
    }

    Spans spans_with_phrases(int D, int p, int low) const {
        Spans found{0, found_spans};
        for (int width = max(low, 4); width <= min(low + 1, l); width++) {
            const Range all = spans_of(l, p, width);
            const int first = D == LEFT ? max(all.first, p + 3 - width) : all.first;
            const int last = D == LEFT ? all.last : min(all.last, p - 2);
            for (int i = first; i <= last; i++) found.of[found.size++] = {i, i + width};
        }
        return found;
    }

    // The sums over two phrases, for all spans of a band, in s
    void fill_phrases(int low) const {
        for (int p = 0; p < l; p++) {
            for (int width = low; width <= min(low + 1, l); width++)
                for (int i = spans_of(l, p, width).first; i <= spans_of(l, p, width).last; i++) {
                    s_scale[row(i, i + width, p)] = scale_of_phrases(i, i + width, p);
                    zero(s_at(i, i + width, p), Ap);
                }
            for (int D = LEFT; D <= RIGHT; D++) {
                const Spans found = spans_with_phrases(D, p, low);
                for (int m = 0; m < found.size; m++) {
                    const auto [i, j] = found[m];
                    split_sum(D, i, j, p, s_scale[row(i, j, p)], Q + size_t(m) * BC);
                }
                gemm(
                    true, found.size, Ap, BC, [&](int m) { return Q + size_t(m) * BC; }, 1, Rt_at(D, p), Ap,
                    [&](int m) { return s_at(found[m].i, found[m].j, p); });
            }
        }
    }

    // A product with a rule that has a preterminal in it: T, if the head child is one, or E, if the child is one
    struct Preterminal {
        int k;              // the split point
        int q;              // the child, if it is one word; else -1
        bool of_word;       // the head child is one word
        const Real* x;      // [symbol], the values of the phrase, or of the child if neither is one
        Real* d_x;          // their gradients; null where not wanted
        int symbols;
        const Real* rules;  // [symbol][Ap]
        Real* d_rules;
    };
    template <class F> void each_preterminal(int D, int i, int j, int p, F apply) const {
        const bool left = D == LEFT;
        if (p == (left ? i : j - 1)) {
            const int k = left ? i + 1 : j - 1, from = left ? k : i, to = left ? j : k;
            const size_t rules = T_at(D, p), leaves = rules + A * Ap;
            if (to - from == 1)
                apply(Preterminal{k, from, true, leaf + from * PTp, gradients ? d_leaf + from * PTp : nullptr, PT,
                                  Tt + leaves, dTt + leaves});
            else
                apply(Preterminal{k, -1, true, closed_at(LEFT, from, to),
                                  outside ? d_closed_at(from, to, 1 + p) : nullptr, A, Tt + rules, dTt + rules});
        }
        if (j - i > 2 && p != (left ? j - 1 : i)) {
            const int k = left ? j - 1 : i + 1, q = left ? j - 1 : i;
            const size_t n = head_row(D, i, j, p, k) * Ap, rules = E_at(p, q);
            apply(Preterminal{k, q, false, s + n, outside ? ds + n : nullptr, A, Et + rules, dEt + rules});
        }
    }

    // Adds the sums over preterminals and scales s.
    void finish(int i, int j, int p) const {
        const size_t n = row(i, j, p);
        Real* const out = s + n * Ap;
        int scale = s_scale[n];
        for (int D = LEFT; D <= RIGHT; D++)
            each_preterminal(D, i, j, p, [&](const Preterminal& it) {
                scale = max(scale, product_scale(D, i, j, p, it.k));
            });
        if (scale != s_scale[n]) multiply(out, Ap, power_of_two(s_scale[n] - scale));
        for (int D = LEFT; D <= RIGHT; D++)
            each_preterminal(D, i, j, p, [&](const Preterminal& it) {
                gemm(
                    false, 1, Ap, it.symbols, [&](int) { return it.x; }, 1, it.rules, Ap, [&](int) { return part; });
                const Real weight = factor(D, i, j, p, it.k, scale);
                for (int a = 0; a < Ap; a++) out[a] += weight * part[a];
            });
        s_exponent[n] = rescale(out, Ap);
        s_scale[n] = s_exponent[n] == kNever ? kNever : scale + s_exponent[n];
    }

    // the scale of total, from that of s
    int total_scale(size_t n) const { return s_scale[n] - s_exponent[n]; }

    int closing_scale(int i, int j, int q) const { return s_scale[row(i, j, q)] + word_exponent[q]; }
    void close(int i, int j) const {
        Real* const out = closed_at(LEFT, i, j);
        int scale = 2 * kNever;
        for (int q = i; q < j; q++) scale = max(scale, closing_scale(i, j, q));
        zero(out, Ap);
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

    // of the words from the given one on
    void clear_gradients(int first) const {
        const size_t words = problem.l - first;
        zero(problem.d_logp_w_X + size_t(first) * S, words * S);
        zero(problem.d_logp_BD_Aw + size_t(first) * A * 2 * S, words * A * 2 * S);
        zero(problem.d_word_C + size_t(first) * 2 * S * S, words * 2 * S * S);
        if (first > 0) return;
        zero(problem.d_logp_A_S, A);
        zero(problem.d_parent_C, size_t(2) * S * S * Ap);
    }

    void start_outside() const {
        zero(ds, rows * Ap);
        zero(d_closed, size_t(l) * (l + 1) / 2 * heads * Ap);
        if (!gradients) return;
        zero(d_word, l * Ap);
        zero(d_leaf, l * PTp);
        zero(dEt, size_t(l) * l * A * Ap);
        zero(dTt, size_t(2 * l) * S * Ap);
        zero(dRt, size_t(2 * l) * BC * Ap);
        std::fill(kept, kept + 2 * l, 0);
    }

    void derive_goal(double log_Z) const {
        for (int a = 0; a < A; a++) {
            const Real d = bounded(std::exp(problem.logp_A_S[a] + closed_scale[cell(0, l)] * M_LN2 - log_Z));
            d_closed_at(0, l, 0)[a] = d;
            if (gradients) problem.d_logp_A_S[a] = d * closed_at(LEFT, 0, l)[a];
        }
    }

    // from d_closed to ds
    void derive_close(int i, int j) const {
        const int scale = closed_scale[cell(i, j)];
        if (scale == kNever) return;
        Real* const d = d_closed_at(i, j, 0);
        if (problem.arcs) {
            add_arcs(i, j, scale);
            for (int of_head = 1; of_head < heads; of_head++)
                for (int c = 0; c < Ap; c++) d[c] += d_closed_at(i, j, of_head)[c];
        }
        for (int c = 0; c < Ap; c++) d[c] = bounded(d[c]);
        for (int q = i; q < j; q++) {
            const Real *const value = s_at(i, j, q), weight = power_of_two(closing_scale(i, j, q) - scale);
            Real* const d_value = ds_at(i, j, q);
            for (int c = 0; c < Ap; c++) d_value[c] += weight * word[q * Ap + c] * d[c];
            if (gradients)
                for (int c = 0; c < Ap; c++) d_word[q * Ap + c] += weight * word[q * Ap + c] * d[c] * value[c];
        }
    }

    Real& arc(int of_head, int q) const { return problem.arcs[of_head * problem.l + q]; }

    // of all heads to the words of the child [i, j)
    void add_arcs(int i, int j, int scale) const {
        for (int q = i; q < j; q++) {
            const Real *const value = s_at(i, j, q), weight = power_of_two(closing_scale(i, j, q) - scale);
            for (int c = 0; c < Ap; c++) parts[(q - i) * Ap + c] = weight * value[c] * word[q * Ap + c];
        }
        for (int of_head = 0; of_head < heads; of_head++)
            for (int q = i; q < j; q++)
                arc(of_head, q) += dot(d_closed_at(i, j, of_head), parts + (q - i) * Ap, Ap);
    }

    // From ds to d total, in its place, and to the preterminals and what they are combined with
    void derive_finish(int i, int j) const {
        Real posterior = 0;
        for (int p = i; p < j; p++) {
            const size_t n = row(i, j, p);
            Real* const d = ds + n * Ap;
            posterior += dot(s + n * Ap, d, Ap);
            const Real factor = s_exponent[n] == kNever ? Real(0) : power_of_two(-s_exponent[n]);
            for (int a = 0; a < Ap; a++) d[a] = bounded(d[a] * factor);
            if (s_exponent[n] == kNever) continue;
            for (int D = LEFT; D <= RIGHT; D++)
                each_preterminal(D, i, j, p, [&](const Preterminal& it) { derive(it, D, i, j, p, d); });
        }
        if (problem.spans) problem.spans[i * (problem.l + 1) + j] = posterior;
    }

    void derive(const Preterminal& it, int D, int i, int j, int p, const Real* d) const {
        const Real weight = factor(D, i, j, p, it.k, total_scale(row(i, j, p)));
        for (int a = 0; a < Ap; a++) d_scaled[a] = weight * d[a];
        product_by_rows(it.symbols, Ap, it.rules, Ap, d_scaled, part);
        const int padded = whole_lines(it.symbols);
        if (it.d_x)
            for (int x = 0; x < padded; x++) it.d_x[x] += part[x];
        if (gradients)
            for (int x = 0; x < it.symbols; x++)
                for (int a = 0; a < Ap; a += kVector) {
                    Vector& d_rule = *(Vector*)(it.d_rules + x * Ap + a);
                    d_rule = bounded(d_rule + it.x[x] * *(const Vector*)(d_scaled + a));
                }
        // the released code misses the arcs from a phrase to a word
        if (problem.arcs && it.q >= 0 && (it.of_word || !problem.legacy)) arc(1 + p, it.q) += dot(it.x, part, padded);
    }

    // From d total of a band to the sums over two phrases, and to their rules
    void derive_phrases(int low) const {
        for (int p = 0; p < l; p++)
            for (int D = LEFT; D <= RIGHT; D++) {
                Spans found = spans_with_phrases(D, p, low);
                int possible = 0;
                for (int m = 0; m < found.size; m++)
                    if (s_exponent[row(found[m].i, found[m].j, p)] != kNever) found.of[possible++] = found[m];
                found.size = possible;
                if (found.size == 0) continue;
                gemm(
                    false, found.size, BC, A, [&](int m) { return ds_at(found[m].i, found[m].j, p); }, 1, R_at(D, p),
                    BC, [&](int m) { return dQ + size_t(m) * BC; });
                if (gradients && kept[at(D, p)] + found.size > most_kept) add_dR(D, p);
                for (int m = 0; m < found.size; m++) {
                    const auto [i, j] = found[m];
                    const size_t n = row(i, j, p);
                    Real* to = Q;
                    if (gradients) {
                        const size_t place = at(D, p) * most_kept + kept[at(D, p)]++;
                        to = Q + place * BC;
                        std::memcpy(d_total + place * Ap, ds + n * Ap, Ap * sizeof(Real));
                    }
                    split_sum(D, i, j, p, total_scale(n), to);
                    derive_split_sum(D, i, j, p, dQ + size_t(m) * BC);
                }
            }
    }

    void derive_split_sum(int D, int i, int j, int p, const Real* d) const {
        const Range range = splits(D, i, j, p);
        // the released code gives the arcs between two phrases to the neighbour of the head, on the child's side
        const int of_head = 1 + p + (problem.legacy ? (D == LEFT ? 1 : -1) : 0);
        gemm(
            true, range.size(), Ap, A, [&](int m) { return head + m * Ap; }, 1, d, Ap,
            [&](int m) {
                const Span it = child(D, i, j, range.first + m);
                return d_closed_at(it.i, it.j, of_head);
            });
        transpose(d, Ap, A, A, dQt, Ap);
        gemm(
            false, range.size(), Ap, A, [&](int m) { return child_at(D, i, j, range.first + m); }, 1, dQt, Ap,
            [&](int m) { return d_head + m * Ap; });
        for (int m = 0; m < range.size(); m++) {
            Real* const to = ds + head_row(D, i, j, p, range.first + m) * Ap;
            for (int b = 0; b < Ap; b++) to[b] += f[m] * bounded(d_head[m * Ap + b]);
        }
    }

    // Adds the kept spans to the gradient of R, which is large: it should be read and written for many at a time.
    void add_dR(int D, int p) const {
        const size_t first = at(D, p) * most_kept;
        if (kept[at(D, p)] > 0)
            gemm(
                true, BC, Ap, kept[at(D, p)], [&](int m) { return Q + first * BC + m; }, BC, d_total + first * Ap, Ap,
                [&](int m) { return dRt_at(D, p) + m * Ap; });
        kept[at(D, p)] = 0;
    }

    void derive_words() const {
        for (int q = 0; q < l; q++) {
            Real* const d = problem.d_logp_w_X + size_t(q) * S;
            std::memcpy(d, d_word + q * Ap, A * sizeof(Real));
            for (int c = 0; c < PT; c++) d[A + c] = leaf[q * PTp + c] * bounded(d_leaf[q * PTp + c]);
        }
    }
};

}  // namespace

extern "C" {

int64_t sizeof_Problem() { return sizeof(Problem); }

// Bytes of scratch memory for this problem, and for any that differs from it in being shorter
int64_t scratch_bytes(const Problem* problem) { return Sentence(*problem).scratch_bytes(); }

void solve(const Problem* problem) {
    const FlushDenormals flush;
    Sentence(*problem).solve();
}
}
