// 07.7, for speed: vectors as wide as the processor's, and work shared out among threads. A reader may skip this file.

#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#ifdef __AVX512F__
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
constexpr int64_t LANES = 16, REGISTERS = 32;
#elif defined(__AVX2__)
constexpr int64_t LANES = 8, REGISTERS = 16;
#elif defined(__x86_64__)
constexpr int64_t LANES = 4, REGISTERS = 16;
#else
constexpr int64_t LANES = 4, REGISTERS = 32;
#endif

typedef float Floats __attribute__((vector_size(LANES * 4)));
typedef uint32_t Words __attribute__((vector_size(LANES * 4)));
typedef uint16_t Halves __attribute__((vector_size(LANES * 2)));

template <typename T>
Floats widen(const T* from) {
  Floats found;
  for (int64_t i = 0; i < LANES; i++) found[i] = static_cast<float>(from[i]);
  return found;
}

template <>
inline Floats widen(const float* from) {
  Floats found;
  std::memcpy(&found, from, sizeof found);
  return found;
}

template <>
inline Floats widen(const at::BFloat16* from) {
  Halves upper;  // of a float
  std::memcpy(&upper, from, sizeof upper);
#ifdef __AVX512F__
  return (Floats)((Words)_mm512_cvtepu16_epi32((__m256i)upper) << 16);  // for what is below GCC needs more instructions
#else
  return (Floats)(__builtin_convertvector(upper, Words) << 16);
#endif
}

// The first `count` lanes; the others are 0.
template <typename T>
Floats widen(const T* from, int64_t count) {
  if (count >= LANES) return widen(from);
  T some[LANES] = {};
  std::copy(from, from + count, some);
  return widen(some);
}

// Call `one(i, next)` for each i below `count`; the same thread will do `next` after it. Each thread takes the next i when
// it is done with its last: one that loses its core to another process does not keep the others waiting.
template <typename F>
void share_out(int64_t count, F one) {
  std::atomic<int64_t> taken{0};
  at::parallel_for(0, std::min<int64_t>(count, at::get_num_threads()), 1, [&](int64_t, int64_t) {
    for (int64_t i = taken++, next; i < count; i = next) one(i, next = taken++);
  });
}
