#pragma once

// Passes inputs to one reader of foreign bytes: the corpus, well-formed seeds, and mutations of
// both. Deterministic; a number identifies an input.
//
//   MAYFLY_TEST_FUZZ_ROUNDS=N  inputs per target instead of its default
//   MAYFLY_TEST_FUZZ_KEEP=DIR  inputs with an outcome that no other input had are written to
//                              DIR/<target>/, to be added to tests/fuzz/corpus
//
// If an input ends the process, it is written to fuzz-<target>.bin.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/bytes.hpp"

namespace mayfly::fuzz {

struct Target {
  std::string name;  ///< of its folder in tests/fuzz/corpus
  std::vector<Bytes> seeds;
  /// Reads the bytes, fails the test if a promise is broken, and returns the outcome: the error's
  /// text, or a description of the content. Outcomes that differ only in numbers are the same.
  std::function<std::string(ByteSpan)> read;
  std::uint64_t rounds = 20'000;
};

/// Runs the target; stops at the first input that fails the test and names it.
void run(const Target& target);

[[nodiscard]] Bytes bytes_of(const std::string& text);
[[nodiscard]] std::string text_of(ByteSpan bytes);

}  // namespace mayfly::fuzz
