// The recursions of N-PCFG and C-PCFG: log Z, expected counts of rules, posteriors of spans.
//
// The recursions and all names are those of inside/pcfg: read that first. The steps are those of inside/pcfg/native.py. Rules of
// one sentence are packed and unpacked by `inside` and `outside` themselves: so they stay in the cache.

#include "rules.h"

namespace {

constexpr int kChunk = 48;  // rows that a product for the gradient of the rules has at least, but at the end

// What Python passes (inside/pcfg/native.py). The last line is memory: what outlives `inside`, what outlives `outside`.
struct Problem {
    int64_t item, items, b, l, A, PT, n_roots, n_rules;
    const int64_t *lengths, *order;  // the sentences, longest first
    const Real *logp_A_S, *logp_BC_A, *logp_w_T;
    Real* log_Z;
    const Real* weight;  // d loss / d log_Z; null where gradients are not wanted
    Real *d_logp_A_S, *d_logp_BC_A, *d_logp_w_T, *spans;
    Real *kept, *counted, *scratch;
};

// The rules: their tables, from which the sentences are parsed, and their counts
class Rules {
  public:
    explicit Rules(const Problem& p) : problem(p), kept(p.kept), counted(p.counted), scratch(p.scratch) {
        size_t longest = 0;
        for (int s = 0; s < p.b; s++) words += p.lengths[s], longest = max(longest, p.lengths[s]);
        leaf = kept.take(words * Tp);
        first = kept.take(words * A * Xp);
        last = kept.take(words * BC);
        with_word = scratch.take(Tp * Xp);
        with_word_t = scratch.take(Ap * Tp);
        Memory &of_pass = own ? scratch : kept, &of_counts = own ? scratch : counted;
        F = of_pass.take(A * Tp * Xp);
        L = of_pass.take(A * Tp * Ap);
        R = of_pass.take(A * BC);
        Rt = of_pass.take(BC * Ap);
        d_first = of_counts.take((own ? longest : words) * A * Xp);
        d_last = of_counts.take((own ? longest : words) * BC);
        d_R = of_counts.take((own ? 1 : p.b) * A * BC);
    }

    int64_t kept_bytes() const { return kept.scratch_bytes(); }
    int64_t counted_bytes() const { return counted.scratch_bytes(); }
    int64_t scratch_bytes() const { return scratch.scratch_bytes(); }

    // the tables of a set of rules
    void pack(int set) const {
        for (size_t a = 0; a < A; a++) {
            const Real *logp = problem.logp_BC_A + (set * A + a) * S * S, *const end = logp + S * S;
            for (size_t B = 0; B < A; B++, logp += S) {
                exp_row(R + a * BC + B * Ap, logp, A, end);
                exp_row(with_word + B * Tp, logp + A, PT, end);
            }
            transpose(with_word, Tp, A, Tp, L + a * Tp * Ap, Ap);
            for (size_t T = 0; T < PT; T++, logp += S) {
                Real* const to = F + (a * Tp + T) * Xp;
                exp_row(to, logp, A, end);
                exp_row(to + Ap, logp + A, PT, end);
            }
        }
        transpose(R, BC, A, BC, Rt, Ap);
    }

    // the counts of the rules of some A, from n words of some sentences
    void unpack(int set, int first_A, int end_A, const Real* leaves, size_t n, int sentences) const {
        const auto leaf_of = [&](int T) { return (Real*)leaves + T; };
        for (size_t a = first_A; a < size_t(end_A); a++) {
            Real *out = problem.d_logp_BC_A + (set * A + a) * S * S, *const end = out + S * S;
            Real* const d = d_R + a * BC;  // of all sentences, in the place of the first
            for (int s = 1; s < sentences; s++)
                for (size_t k = 0; k < BC; k++) d[k] += d[s * A * BC + k];
            gemm(false, PT, Ap, n, leaf_of, Tp, d_last + a * Ap, BC, [&](int T) { return with_word + T * Ap; });
            for (size_t T = 0; T < PT; T++) {
                Real* const d_T = with_word + T * Ap;
                counts_row(d_T, L + (a * Tp + T) * Ap, d_T, Ap, d_T + Ap);
            }
            transpose(with_word, Ap, PT, Ap, with_word_t, Tp);
            for (size_t B = 0; B < A; B++, out += S) {
                counts_row(out, R + a * BC + B * Ap, d + B * Ap, A, end);
                std::memcpy(out + A, with_word_t + B * Tp, PT * sizeof(Real));
            }
            gemm(false, PT, Xp, n, leaf_of, Tp, d_first + a * Xp, A * Xp, [&](int T) { return with_word + T * Xp; });
            for (size_t T = 0; T < PT; T++, out += S) {
                const Real *const from = F + (a * Tp + T) * Xp, *const d_T = with_word + T * Xp;
                counts_row(out, from, d_T, A, end);
                counts_row(out + A, from + Ap, d_T + Ap, PT, end);
            }
        }
    }
    // the same of shared rules, for this item's part of the As
    void unpack() const {
        const int64_t part = problem.item, parts = problem.items;
        unpack(0, A * part / parts, A * (part + 1) / parts, leaf, words, problem.b);
    }

  protected:
    const Problem& problem;
    Memory kept, counted, scratch;
    const size_t A = problem.A, PT = problem.PT, S = A + PT;
    const size_t Ap = whole_lines(A), Tp = whole_lines(PT), Xp = Ap + Tp, BC = A * Ap;
    const bool own = problem.n_rules > 1;  // each sentence has its own rules
    size_t words = 0;  // of the batch
    Real *F, *L, *R, *Rt;  // p(A -> T X), [A][T][Xp]; p(A -> B T), [A][T][Bp]; p(A -> B C), [A][B][Cp] and [B][Cp][Ap]
    // By word: p(w_i | T), [Tp]; sums over T as in the Tables of inside/pcfg, [A][Xp] and [A][Bp]; their gradients. X is a
    // nonterminal, padded to whole lines, or a preterminal.
    Real *leaf, *first, *last, *d_first, *d_last;
    Real* d_R;                      // by sentence, as R
    Real *with_word, *with_word_t;  // of one A
};

class Sentence : public Rules {
  public:
    Sentence(const Problem& p, int sentence) : Rules(p), sentence(sentence) {
        for (int s = 0;; s++) {  // the chart of this sentence is behind those of the others
            const size_t l = p.lengths[s], fences = (l + 1) * (l + 1);
            by_start = kept.take(fences * Ap);
            by_end = kept.take(fences * Ap);
            scale = kept.take<int>(fences);
            exponent = kept.take<int>(fences);
            if (s == sentence) break;
            leaf += l * Tp, first += l * A * Xp, last += l * BC;
            if (!own) d_first += l * A * Xp, d_last += l * BC, d_R += A * BC;
        }
        const size_t fences = (l + 1) * (l + 1);
        total = scratch.take(l * Ap);
        left = scratch.take(l * Ap);
        right = scratch.take(l * Ap);
        f = scratch.take(l + 1);
        Q = scratch.take((kChunk + l) * BC);
        d_total = scratch.take((kChunk + l) * Ap);
        dQ = scratch.take(l * BC);
        dQt = scratch.take(Ap * Ap);
        d_leaf = scratch.take(l * Tp);
        d_by_start = scratch.take(fences * Ap);
        d_by_end = scratch.take(fences * Ap);
        d_word_left = scratch.take(fences * Ap);
        d_word_right = scratch.take(fences * Ap);
        first_t = scratch.take(l * Xp * Ap);
        last_t = scratch.take(l * Ap * Ap);
    }

    void inside() {
        if (own) pack(sentence);
        double offset = 0;
        for (int i = 0; i < l; i++)
            offset += leaf_row(leaf_at(i), problem.logp_w_T + (sentence * problem.l + i) * PT, PT,
                               &scale[at(i, i + 1)]);
        const auto leaves = [&](int i) { return leaf_at(i); };
        for (size_t a = 0; a < A; a++) {
            const Real *const F_a = F + a * Tp * Xp, *const L_a = L + a * Tp * Ap;
            gemm(false, l, Xp, PT, leaves, 1, F_a, Xp, [&](int i) { return first_at(i) + a * Xp; });
            gemm(false, l, Ap, PT, leaves, 1, L_a, Ap, [&](int i) { return last_at(i) + a * Ap; });
        }
        for (int i = 0; i < l; i++) {
            transpose(first_at(i), Xp, A, Xp, first_t + i * Xp * Ap, Ap);
            transpose(last_at(i), Ap, A, Ap, last_t + i * Ap * Ap, Ap);
        }
        for (int width = 2; width <= l; width++) fill(width);
        problem.log_Z[sentence] = log_of_goal(root(), cell(0, l), A) + scale[at(0, l)] * M_LN2 + offset;
    }

    void outside() {
        if (own) pack(sentence);
        std::memset(d_by_start, 0, (d_word_left - d_by_start) * sizeof(Real));
        if (problem.weight) {
            std::memset(d_R, 0, A * BC * sizeof(Real));
            std::memset(d_leaf, 0, l * Tp * sizeof(Real));
        }
        derive_goal(root(), cell(0, l), A, problem.weight ? problem.weight[sentence] : 1, d_by_start + at(0, l) * Ap,
                    problem.weight ? problem.d_logp_A_S + sentence * A : nullptr);
        int rows = 0;  // in Q and d_total
        for (int width = l; width >= 2; width--) {
            derive_cells(width, d_total + rows * Ap);
            if (width == 2) break;
            derive_words(width, d_total + rows * Ap);
            if (width == 3) continue;
            derive_splits(width, d_total + rows * Ap, Q + rows * BC);
            rows += l - width + 1;
            if (rows >= kChunk || width == 4) {
                if (problem.weight)
                    gemm_by_columns(
                        true, A, BC, rows, [&](int a) { return d_total + a; }, Ap, Q, BC,
                        [&](int a) { return d_R + a * BC; });
                rows = 0;
            }
        }
        if (!problem.weight) return;
        derive_tables(d_total + rows * Ap);
        if (own) unpack(sentence, 0, A, leaf, l, 1);
    }

  private:
    const int sentence, l = problem.lengths[sentence];

    Real *by_start, *by_end;  // s of spans of two words or more: [i][j][Ap], [j][i][Ap]
    int *scale, *exponent;    // [i][j]: of s; of the power of two that it was divided by
    Real *total, *Q, *dQ;     // by span of a width: s before it is scaled, [Ap]; [B][Cp]; its gradient
    Real *left, *right, *f;   // by split: its parts, [Ap]; the factor that brings their product to the scale of total
    Real *dQt, *d_total;      // [C][Bp]; as Q, the spans of some widths
    Real *first_t, *last_t;   // by word: [Xp][Ap], [Ap][Ap]
    Real* d_leaf;             // as leaf
    Real *d_by_start, *d_by_end;       // as s: its gradient from where it is a left part, or a right part
    Real *d_word_left, *d_word_right;  // as s: d total times f, where the first word or the last one is a part

    size_t at(int i, int j) const { return i * (l + 1) + j; }
    Real* leaf_at(int i) const { return leaf + i * Tp; }
    Real* first_at(int i) const { return first + i * A * Xp; }
    Real* last_at(int i) const { return last + i * BC; }
    const Real* root() const { return problem.logp_A_S + (problem.n_roots > 1 ? sentence * A : 0); }
    Real* cell(int i, int j) const { return by_start + at(i, j) * Ap; }

    Real factor(int i, int k, int j, int total_scale) const {
        return power_of_two(scale[at(i, k)] + scale[at(k, j)] - total_scale);
    }

    // out (+)= f * vector * matrix_t
    void apply(bool add, Real* out, const Real* vector, Real f, const Real* matrix_t) const {
        for (size_t a = 0; a < Ap; a++) left[a] = f * vector[a];
        gemm(
            add, 1, Ap, A, [&](int) { return left; }, 1, matrix_t, Ap, [&](int) { return out; });
    }

    // the parts of two or more words of all splits of [i, j), the left ones scaled
    int split(int i, int j, int total_scale) const {
        const int n = j - i - 3;
        for (int m = 0; m < n; m++) {
            f[m] = factor(i, i + 2 + m, j, total_scale);
            for (size_t a = 0; a < Ap; a++) left[m * Ap + a] = f[m] * cell(i, i + 2 + m)[a];
        }
        return n;
    }
    Real* right_parts(int i, int j) const { return by_end + at(j, i + 2) * Ap; }
    void split_sum(int i, int j, int splits, Real* out) const {
        gemm(
            false, A, Ap, splits, [&](int B) { return left + B; }, Ap, right_parts(i, j), Ap,
            [&](int B) { return out + B * Ap; });
    }

    void fill(int width) const {
        const int n = l - width + 1;
        for (int i = 0, j = width; j <= l; i++, j++) {
            int largest = 2 * kNever;
            for (int k = i + 1; k < j; k++) largest = max(largest, scale[at(i, k)] + scale[at(k, j)]);
            scale[at(i, j)] = largest;
            Real* const out = total + i * Ap;
            if (width == 2) {
                gemm(
                    false, 1, Ap, PT, [&](int) { return leaf_at(i + 1); }, 1, first_t + (i * Xp + Ap) * Ap, Ap,
                    [&](int) { return out; });
                continue;
            }
            apply(false, out, cell(i + 1, j), factor(i, i + 1, j, largest), first_t + i * Xp * Ap);
            apply(true, out, cell(i, j - 1), factor(i, j - 1, j, largest), last_t + (j - 1) * Ap * Ap);
            if (width > 3) split_sum(i, j, split(i, j, largest), Q + i * BC);
        }
        if (width > 3)
            gemm(
                true, n, Ap, BC, [&](int i) { return Q + i * BC; }, 1, Rt, Ap,
                [&](int i) { return total + i * Ap; });
        for (int i = 0, j = width; j <= l; i++, j++) {
            const int e = rescale(total + i * Ap, Ap);
            exponent[at(i, j)] = e;
            scale[at(i, j)] = e == kNever ? kNever : scale[at(i, j)] + e;
            std::memcpy(cell(i, j), total + i * Ap, Ap * sizeof(Real));
            std::memcpy(by_end + at(j, i) * Ap, total + i * Ap, Ap * sizeof(Real));
        }
    }

    int total_scale(int i, int j) const { return scale[at(i, j)] - exponent[at(i, j)]; }

    // d total of a width; before that, s d s is the posterior of the span
    void derive_cells(int width, Real* out) const {
        for (int i = 0, j = width; j <= l; i++, j++, out += Ap) {
            const Real *const from_left = d_by_start + at(i, j) * Ap, *const from_right = d_by_end + at(j, i) * Ap;
            const int e = exponent[at(i, j)];
            for (size_t a = 0; a < Ap; a++) out[a] = e == kNever ? Real(0) : from_left[a] + from_right[a];
            bound(out, Ap);
            if (problem.spans) {
                Real sum = 0;
                for (size_t a = 0; a < A; a++) sum += out[a] * cell(i, j)[a];
                problem.spans[(sentence * (problem.l + 1) + i) * (problem.l + 1) + j] = sum;
            }
            bound(out, Ap, power_of_two(e == kNever ? 0 : -e));
        }
    }

    // from d total of a width to what is beside the first word, and beside the last one
    void derive_words(int width, const Real* d) const {
        for (int i = 0, j = width; j <= l; i++, j++, d += Ap) {
            const bool never = exponent[at(i, j)] == kNever;
            const Real f_right = never ? 0 : factor(i, i + 1, j, total_scale(i, j));
            const Real f_left = never ? 0 : factor(i, j - 1, j, total_scale(i, j));
            Real *const d_right = d_word_left + at(i, j) * Ap, *const d_left = d_word_right + at(j, i) * Ap;
            for (size_t a = 0; a < Ap; a++) d_right[a] = f_right * d[a], d_left[a] = f_left * d[a];
            gemm(
                true, 1, Ap, A, [&](int) { return d_right; }, 1, first_at(i), Xp,
                [&](int) { return d_by_end + at(j, i + 1) * Ap; });
            gemm(
                true, 1, Ap, A, [&](int) { return d_left; }, 1, last_at(j - 1), Ap,
                [&](int) { return d_by_start + at(i, j - 1) * Ap; });
        }
    }

    // from d total of a width to the parts of the splits; leaves Q behind
    void derive_splits(int width, const Real* d, Real* Q) const {
        gemm_by_columns(
            false, l - width + 1, BC, A, [&](int i) { return d + i * Ap; }, 1, R, BC,
            [&](int i) { return dQ + i * BC; });
        for (int i = 0, j = width; j <= l; i++, j++) {
            if (exponent[at(i, j)] == kNever) {
                std::memset(Q + i * BC, 0, BC * sizeof(Real));
                continue;
            }
            const int splits = split(i, j, total_scale(i, j));
            if (problem.weight) split_sum(i, j, splits, Q + i * BC);
            gemm(
                true, splits, Ap, A, [&](int m) { return left + m * Ap; }, 1, dQ + i * BC, Ap,
                [&](int m) { return d_by_end + at(j, i + 2 + m) * Ap; });
            for (int m = 0; m < splits; m++)
                for (size_t a = 0; a < Ap; a++) right[m * Ap + a] = f[m] * right_parts(i, j)[m * Ap + a];
            transpose(dQ + i * BC, Ap, A, Ap, dQt, Ap);
            gemm(
                true, splits, Ap, A, [&](int m) { return right + m * Ap; }, 1, dQt, Ap,
                [&](int m) { return d_by_start + at(i, i + 2 + m) * Ap; });
        }
    }

    // from d_first or d_last of one A, which has n columns, to d_leaf
    void add_d_leaf(const Real* table, int n, const Real* d, size_t d_step) const {
        transpose(table, n, PT, n, with_word, Tp);
        gemm(
            true, l, Tp, n, [&](int i) { return (Real*)d + i * d_step; }, 1, with_word, Tp,
            [&](int i) { return d_leaf + i * Tp; });
    }

    // the gradients of first, last and leaf, from all widths at once
    void derive_tables(const Real* d_pair) const {
        for (int i = 0; i < l; i++) {
            Real *const d_f = d_first + i * A * Xp, *const d_l = d_last + i * BC;
            std::memset(d_f, 0, A * Xp * sizeof(Real));
            if (i + 3 <= l)
                gemm(
                    false, A, Ap, l - i - 2, [&](int a) { return d_word_left + at(i, i + 3) * Ap + a; }, Ap,
                    cell(i + 1, i + 3), Ap, [&](int a) { return d_f + a * Xp; });
            if (i + 2 <= l) {
                const Real* const d = d_pair + i * Ap;
                for (size_t a = 0; a < A; a++)
                    for (size_t T = 0; T < Tp; T++) d_f[a * Xp + Ap + T] = d[a] * leaf_at(i + 1)[T];
                gemm(
                    false, 1, Tp, A, [&](int) { return (Real*)d; }, 1, first_at(i) + Ap, Xp,
                    [&](int) { return d_leaf + (i + 1) * Tp; });
            }
            bound(d_f, A * Xp);
            if (i >= 2) {
                gemm(
                    false, A, Ap, i - 1, [&](int a) { return d_word_right + at(i + 1, 0) * Ap + a; }, Ap,
                    by_end + at(i, 0) * Ap, Ap, [&](int a) { return d_l + a * Ap; });
                bound(d_l, BC);
            } else {
                std::memset(d_l, 0, BC * sizeof(Real));
            }
        }
        for (size_t a = 0; a < A; a++) {
            add_d_leaf(F + a * Tp * Xp, Xp, d_first + a * Xp, A * Xp);
            add_d_leaf(L + a * Tp * Ap, Ap, d_last + a * Ap, BC);
        }
        for (int i = 0; i < l; i++) {
            Real* const out = problem.d_logp_w_T + (sentence * problem.l + i) * PT;
            counts_row(out, leaf_at(i), d_leaf + i * Tp, PT, out + PT);
        }
    }
};

}  // namespace

extern "C" {

int64_t sizeof_Problem() { return sizeof(Problem); }

int64_t kept_bytes(const Problem* problem) { return Sentence(*problem, problem->b - 1).kept_bytes(); }
int64_t counted_bytes(const Problem* problem) { return Rules(*problem).counted_bytes(); }
int64_t groups(const Problem* problem) { return problem->b; }
// of any item
int64_t scratch_bytes(const Problem* problem) { return Sentence(*problem, problem->order[0]).scratch_bytes(); }

void pack(const Problem* problem) {
    const FlushDenormals flush;
    Rules(*problem).pack(0);
}
void inside(const Problem* problem) {
    const FlushDenormals flush;
    Sentence(*problem, problem->order[problem->item]).inside();
}
void outside(const Problem* problem) {
    const FlushDenormals flush;
    Sentence(*problem, problem->order[problem->item]).outside();
}
void unpack(const Problem* problem) {
    const FlushDenormals flush;
    Rules(*problem).unpack();
}
}
