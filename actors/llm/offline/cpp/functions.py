"""C++ for generated programs: elementary functions that vectorise, narrow floats, vectors, streaming stores.

The elementary functions are branch-free float arithmetic, so that a loop that calls them can be vectorised without
-ffast-math; largest error about 2 units in the last place. Range reductions and coefficients of exp, log and tanh are
those of the Cephes library (Moshier, single precision: expf, logf, tanhf); erfc is the rational-exponential
approximation with a relative error of 1.2e-7 (Press et al., Numerical Recipes, section 6.2, after Schonfelder). erf is
x P(x^2) / Q(x^2) up to 4, fitted for this file by least squares with reweighting: relative error 2.5e-8, 4e-7 in float.
"""

from __future__ import annotations

_INLINE = "static inline __attribute__((always_inline))"

_EXP = f"""\
{_INLINE} float exp_lane(float x) {{
    // exp(x) = 2^n exp(r) with |r| <= ln(2)/2; adding 1.5 * 2^23 rounds to a whole number.
    float y = x < -87.3f ? -87.3f : x;
    y = y > 88.722f ? 88.722f : y;
    const float shifted = y * 1.44269504088896341f + 12582912.0f;
    const float n = shifted - 12582912.0f;
    float r = y - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    uint32_t bits;
    std::memcpy(&bits, &shifted, sizeof bits);
    bits = (bits - 0x4B400000u + 126u) << 23;  // 2^(n-1): 2^128 has no float
    float scale;
    std::memcpy(&scale, &bits, sizeof scale);
    const float result = p * scale * 2.0f;
    return x > 88.722f ? INFINITY : result;
}}"""

_LOG = f"""\
{_INLINE} float log_lane(float x) {{
    const bool tiny = x < 1.17549435e-38f;
    const float y = tiny ? x * 8388608.0f : x;
    uint32_t bits;
    std::memcpy(&bits, &y, sizeof bits);
    const int32_t e = static_cast<int32_t>(bits - 0x3F3504F3u) >> 23;
    bits -= static_cast<uint32_t>(e) << 23;
    float m;
    std::memcpy(&m, &bits, sizeof m);
    const float exponent = static_cast<float>(e) - (tiny ? 23.0f : 0.0f);
    const float f = m - 1.0f;
    const float square = f * f;
    float p = 7.0376836292e-2f;
    p = p * f - 1.1514610310e-1f;
    p = p * f + 1.1676998740e-1f;
    p = p * f - 1.2420140846e-1f;
    p = p * f + 1.4249322787e-1f;
    p = p * f - 1.6668057665e-1f;
    p = p * f + 2.0000714765e-1f;
    p = p * f - 2.4999993993e-1f;
    p = p * f + 3.3333331174e-1f;
    float result = p * f * square - exponent * 2.12194440e-4f - 0.5f * square;
    result = f + result + exponent * 0.693359375f;
    result = x < 0.0f ? NAN : result;
    result = x == 0.0f ? -INFINITY : result;
    return x > 3.4028234e38f ? x : result;
}}"""

_LOG1P = f"""\
{_INLINE} float log1p_lane(float x) {{
    const float w = 1.0f + x;
    const float d = w - 1.0f;
    const bool small = d == 0.0f;
    return small ? x : log_lane(w) * (x / (small ? 1.0f : d));
}}"""

_EXPM1 = f"""\
{_INLINE} float expm1_lane(float x) {{
    float p = 1.0f / 40320.0f;
    p = p * x + 1.0f / 5040.0f;
    p = p * x + 1.0f / 720.0f;
    p = p * x + 1.0f / 120.0f;
    p = p * x + 1.0f / 24.0f;
    p = p * x + 1.0f / 6.0f;
    p = p * x + 0.5f;
    p = p * x * x + x;
    const float large = exp_lane(x) - 1.0f;
    return std::fabs(x) < 0.5f ? p : large;
}}"""

_TANH = f"""\
{_INLINE} float tanh_lane(float x) {{
    const float z = x * x;
    float p = -5.70498872745e-3f;
    p = p * z + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    p = p * z * x + x;
    const float magnitude = std::fabs(x);
    const float large = std::copysign(1.0f - 2.0f / (exp_lane(2.0f * magnitude) + 1.0f), x);
    return magnitude < 0.625f ? p : large;
}}"""

_ERFC = f"""\
{_INLINE} float erfc_lane(float x) {{
    const float z = std::fabs(x);
    const float t = 1.0f / (1.0f + 0.5f * z);
    float p = 0.17087277f;
    p = p * t - 0.82215223f;
    p = p * t + 1.48851587f;
    p = p * t - 1.13520398f;
    p = p * t + 0.27886807f;
    p = p * t - 0.18628806f;
    p = p * t + 0.09678418f;
    p = p * t + 0.37409196f;
    p = p * t + 1.00002368f;
    p = p * t - 1.26551223f;
    const float tail = t * exp_lane(p - z * z);
    return x < 0.0f ? 2.0f - tail : tail;
}}"""

_ERF = f"""\
{_INLINE} float erf_lane(float x) {{
    const float z = x * x;
    float p = 1.9868019769e-6f;
    p = p * z + 2.8456417481e-4f;
    p = p * z + 3.8832534703e-3f;
    p = p * z + 5.3101462202e-2f;
    p = p * z + 1.9354290957e-1f;
    p = p * z + 1.1283791394f;
    float q = 3.7420290264e-5f;
    q = q * z + 1.1855498883e-3f;
    q = q * z + 1.5207067681e-2f;
    q = q * z + 1.1534911152e-1f;
    q = q * z + 5.0485549378e-1f;
    q = q * z + 1.0f;
    const float inner = x * p / q;
    return std::fabs(x) >= 4.0f ? std::copysign(1.0f, x) : inner;
}}"""

_BFLOAT16 = f"""\
{_INLINE} float from_bfloat16(uint16_t half) {{
    const uint32_t bits = static_cast<uint32_t>(half) << 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}}

{_INLINE} uint16_t to_bfloat16(float value) {{
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
    return static_cast<uint16_t>(value != value ? 0x7FC0u : rounded);
}}"""

_STREAM = """\
static inline void stream_out(void* to, const void* from, std::size_t size) {
    char* target = static_cast<char*>(to);
    const char* source = static_cast<const char*>(from);
#if defined(__AVX512F__)
    constexpr std::size_t width = 64;
#elif defined(__AVX__)
    constexpr std::size_t width = 32;
#else
    constexpr std::size_t width = 1;
#endif
    std::size_t done = (width - reinterpret_cast<std::uintptr_t>(target) % width) % width;
    done = done < size ? done : size;
    std::memcpy(target, source, done);
#if defined(__AVX512F__)
    for (; done + width <= size; done += width)
        _mm512_stream_si512(reinterpret_cast<__m512i*>(target + done), _mm512_loadu_si512(source + done));
#elif defined(__AVX__)
    for (; done + width <= size; done += width)
        _mm256_stream_si256(reinterpret_cast<__m256i*>(target + done),
                            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source + done)));
#endif
    std::memcpy(target + done, source + done, size - done);
}

static inline void stream_end() {
#if defined(__AVX__)
    _mm_sfence();
#endif
}"""

_CONVERSIONS = """\
#define UNROLLED _Pragma("GCC unroll 32")
#pragma GCC diagnostic ignored "-Wpsabi"

template <class T> static inline real widen(T value) { return static_cast<real>(value); }
template <class T> static inline T narrow(real value) { return static_cast<T>(value); }"""

_BFLOAT16_CONVERSIONS = """\
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


FUNCTIONS: dict[str, str] = {
    "exp_lane": _EXP,
    "log_lane": _LOG,
    "log1p_lane": _LOG1P,
    "expm1_lane": _EXPM1,
    "tanh_lane": _TANH,
    "erfc_lane": _ERFC,
    "erf_lane": _ERF,
    "stream_out": _STREAM,
}
"""Ordered so that each function comes after those that it calls."""


def needed_functions(body: str, real: str, *, bfloat16: bool, vectors: bool) -> list[str]:
    """Return the definitions that `body` needs, directly or indirectly.

    Args:
        body: the rest of the program.
        real: the compute type.
        bfloat16: True if a tensor has bfloat16 elements.
        vectors: True if contractions have kernels.
    """
    constants = "zero = 0, half = 0.5, one = 1, minus_root_half = -0.70710678118654752440"
    head = [f"using real = {real};\n[[maybe_unused]] constexpr real {constants};"]
    head += [_BFLOAT16] if bfloat16 else []
    head += [_CONVERSIONS, *([_BFLOAT16_CONVERSIONS] if bfloat16 else []), *([_LANES] if vectors else [])]
    text, chosen = body, list[str]()
    for name, code in reversed(FUNCTIONS.items()):
        if name in text:
            chosen.insert(0, code)
            text += code
    return [*head, *chosen]
