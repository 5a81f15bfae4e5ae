"""C++ that programs of several stages may hold: vectors of a given number of lanes, conversions, loads and stores."""

from __future__ import annotations

_CONVERSIONS = """\
#define UNROLLED _Pragma("GCC unroll 32")
#pragma GCC diagnostic ignored "-Wpsabi"

template <class T> static inline real widen(T value) { return static_cast<real>(value); }
template <class T> static inline T narrow(real value) { return static_cast<T>(value); }"""

_BFLOAT16 = """\
template <> inline real widen(uint16_t value) { return from_bfloat16(value); }
template <> inline uint16_t narrow(real value) { return to_bfloat16(value); }"""

_LANES = """\
#if defined(__AVX512F__)
constexpr int LANES = 64 / sizeof(real);
#elif defined(__AVX__)
constexpr int LANES = 32 / sizeof(real);
#else
constexpr int LANES = 16 / sizeof(real);
#endif

template <class T, int N> struct vector_of { typedef T type __attribute__((vector_size(N * sizeof(T)))); };
template <int N> using lanes = typename vector_of<real, N>::type;

template <int N, class T> static inline __attribute__((always_inline)) lanes<N> load(const T* from) {
    typename vector_of<T, N>::type value;
    std::memcpy(&value, from, sizeof value);
    if constexpr (std::is_same_v<T, real>) {
        return value;
    } else if constexpr (std::is_same_v<T, uint16_t>) {
        // A bfloat16 is the upper half of a float.
        const auto bits = __builtin_convertvector(value, typename vector_of<uint32_t, N>::type) << 16;
        typename vector_of<float, N>::type wide;
        std::memcpy(&wide, &bits, sizeof wide);
        return __builtin_convertvector(wide, lanes<N>);
    } else {
        return __builtin_convertvector(value, lanes<N>);
    }
}

template <int N, class T>
static inline __attribute__((always_inline)) void store(T* to, lanes<N> value, int64_t valid) {
    if constexpr (std::is_same_v<T, real>) {
        if (valid >= N) {
            std::memcpy(to, &value, sizeof value);
            return;
        }
    }
    for (int lane = 0; lane < N; ++lane) {
        if (lane < valid) to[lane] = narrow<T>(value[lane]);
    }
}

template <int N> static inline __attribute__((always_inline)) real total(lanes<N> value) {
    if constexpr (N == 1) {
        return value[0];
    } else {
        lanes<N / 2> low, high;
        std::memcpy(&low, &value, sizeof low);
        std::memcpy(&high, reinterpret_cast<const char*>(&value) + sizeof low, sizeof high);
        return total<N / 2>(low + high);
    }
}"""


def stage_functions(real: str, *, bfloat16: bool, vectors: bool) -> list[str]:
    """Return the definitions that a program needs.

    Args:
        real: the compute type.
        bfloat16: whether a tensor holds bfloat16.
        vectors: whether contractions have kernels.
    """
    sections = [f"using real = {real};\nconstexpr real zero = 0, half = 0.5, one = 1;", _CONVERSIONS]
    return [*sections, *([_BFLOAT16] if bfloat16 else []), *([_LANES] if vectors else [])]
