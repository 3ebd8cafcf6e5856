// The product of nbl/decode/maxplus.py on the CPU: out[a, c, x] = max(out[a, c, x], max_r v[a, c, r] + M[a, c, r, x]).
//
// `shape` holds the sizes of a, c, r, x; the strides of out in a, c; of v in a, c, r; of M in a, c, r, in numbers.
// x is contiguous. A row whose v is -inf cannot win and is not read: half of a chart is -inf.

#include <algorithm>
#include <cstdint>
#include <limits>

namespace {

constexpr int64_t BLOCK = 64;  // rows of M that stay in the cache for all c

template <typename T>
void maxplus(T* out, const T* v, const T* M, const int64_t* shape) {
    const int64_t A = shape[0], C = shape[1], R = shape[2], X = shape[3];
    const int64_t *out_stride = shape + 4, *v_stride = shape + 6, *M_stride = shape + 9;
    for (int64_t a = 0; a < A; a++)
        for (int64_t begin = 0; begin < R; begin += BLOCK)
            for (int64_t c = 0; c < C; c++) {
                T* __restrict best = out + a * out_stride[0] + c * out_stride[1];
                const T* v_ac = v + a * v_stride[0] + c * v_stride[1];
                const T* M_ac = M + a * M_stride[0] + c * M_stride[1];
                for (int64_t r = begin, end = std::min(R, begin + BLOCK); r < end;) {
                    const T* row[4];  // four rows at a time: one pass over `best` serves all of them
                    T add[4];
                    int n = 0;
                    for (; r < end && n < 4; r++) {
                        add[n] = v_ac[r * v_stride[2]];
                        row[n] = M_ac + r * M_stride[2];
                        n += add[n] > -std::numeric_limits<T>::infinity();
                    }
                    if (n == 0) break;
                    for (; n < 4; n++) add[n] = add[0], row[n] = row[0];
                    for (int64_t x = 0; x < X; x++) {
                        const T y0 = add[0] + row[0][x], y1 = add[1] + row[1][x];
                        const T y2 = add[2] + row[2][x], y3 = add[3] + row[3][x];
                        const T z0 = y0 > y1 ? y0 : y1, z1 = y2 > y3 ? y2 : y3, z = z0 > z1 ? z0 : z1;
                        best[x] = best[x] > z ? best[x] : z;
                    }
                }
            }
}

}  // namespace

extern "C" void maxplus_float32(float* out, const float* v, const float* M, const int64_t* shape) {
    maxplus(out, v, M, shape);
}

extern "C" void maxplus_float64(double* out, const double* v, const double* M, const int64_t* shape) {
    maxplus(out, v, M, shape);
}
