// The NBL-PCFG's recursions for one sentence, on one core: log Z, its gradients, posteriors of spans and arcs.
//
// The recursions, the scaled chart and all names are those of inside/bilexical and its torch.py: read that first. What differs is the
// order of the work, which is made for the cache: see dense.h and inside.h.

#include "outside.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace {

class Sentence : public Outside {
  public:
    using Outside::Outside;

    void solve() {
        ask_for_large_pages();
        pack();
        inside();
        const double log_Z = goal();
        *problem.log_Z = log_Z;
        if (!outside_wanted || log_Z == -INFINITY) return;
        outside(log_Z);
        if (problem.d_H_Aw) unpack();
        if (problem.arcs) arcs();
    }

  private:
    // The chart is read with large strides: with pages of the usual 4 KB, a fifth of the time goes into finding them.
    void ask_for_large_pages() const {
#if defined(__linux__)
        const uintptr_t start = (uintptr_t(base) + 4095) / 4096 * 4096, end = uintptr_t(base + used) / 4096 * 4096;
        if (start < end) madvise((void*)start, end - start, MADV_HUGEPAGE);  // a wish: failure does not matter
#endif
    }

    // The posterior of an arc from p to q: for each span with q in it and p outside, dK as far as it comes from the
    // head p, times the part of K that comes from the head q.
    void arcs() const {
        for (int c = 0; c < panels; c++)
            with_lines(lines(c), [&](auto L) {
                for (int j = 1; j <= l; j++)
                    for (int i = 0; i < j; i++) {
                        for (int p = 0; p < i; p++)
                            parents_left<L>(c, p, i, j).store(dK_by_head.at(c, p));
                        if (i > 0) add_arcs(c, LEFT, i, j, {0, i - 1});
                        for (int p = j; p < l; p++)
                            parents_right<L>(c, p, i, j).store(dK_by_head.at(c, p));
                        if (j < l) add_arcs(c, RIGHT, i, j, {j, l - 1});
                    }
            });
    }

    // from dK_by_head to all words of [i, j): counts[p][q] = sum_H dK_by_head[p][H] K_by_word_t[H][q]
    void add_arcs(int c, int D, int i, int j, Range heads) const {
        const int exponent = K_exponent[cell(i, j)], columns_q = whole_lines(j - i);
        if (exponent == kNever) return;
        if (j - i == 1) {
            std::memcpy(K_by_word.at(c, 0), leaf_C.at(c, D % D_C), kPanelBytes);
        } else {
            gemm(
                false, j - i, columns(c), A, [&](int m) { return s_at(i, j, i + m); }, 1, C.at(c, D % D_C * A), kPanel,
                [&](int m) { return K_by_word.at(c, m); });
        }
        for (int h = 0; h < states(c); h++)
            for (int m = 0; m < columns_q; m++)
                K_by_word_t[h * columns_q + m] =
                    m < j - i ? K_by_word.at(c, m)[h] * w.at(c, D % D_w * l + i + m)[h] : Real(0);
        gemm(
            false, heads.size(), columns_q, states(c), [&](int m) { return dK_by_head.at(c, heads.first + m); }, 1,
            K_by_word_t, columns_q, [&](int m) { return counts + m * columns_q; });
        for (int m = 0; m < heads.size(); m++) {
            Real* const arcs = problem.arcs + (heads.first + m + 1) * problem.l + i;
            for (int k = 0; k < j - i; k++) arcs[k] += counts[m * columns_q + k] * power_of_two(-exponent);
        }
    }
};

}  // namespace

extern "C" {

int64_t sizeof_Problem() { return sizeof(Problem); }

// Bytes of scratch memory for this problem, and for any that differs from it in being shorter
int64_t scratch_bytes(const Problem* problem) { return Chart(*problem).scratch_bytes(); }

void solve(const Problem* problem) {
    const FlushDenormals flush;
    Sentence(*problem).solve();
}
}
