// class: faulty
// mechanism: templates that make the compiler work without end
// expect: did_not_build
// slow: the builder's limit is waited for
#include "honest.h"
template <int N, int M> struct Bomb { enum { value = Bomb<N - 1, 2 * M>::value + Bomb<N - 1, 2 * M + 1>::value }; };
template <int M> struct Bomb<0, M> { enum { value = M }; };
KERNEL { return Bomb<30, 1>::value; }
