#pragma once

// Prepared samples that jobs of one host share, so that a search over hyper-parameters decodes and
// augments each image once instead of once for every job ("coordinated prep" of Mohan et al.,
// "Analyzing and Mitigating Data Stalls in DNN Training", PVLDB 14(5), 2021, but by sample instead
// of by batch, and without waiting for each other). Jobs share if their samples are drawn from the
// same data with the same data seed; batches, microbatches and numbers of workers may differ, since
// a sample is found by its position in the stream.
//
// What is there is only ever a saving. Each sample is a pure function of its position, so a job
// that does not find one in time prepares it itself, and no job waits for another one that is slow,
// stopped or dead for longer than kPatience, once for each sample that it was preparing. A sample
// stays until its place is needed by another one and it is the one of its set that was not touched
// for the longest time. A reader copies a sample and compares its hash, so a place that is written
// again meanwhile, by whomever, is a sample that is not there.
//
// Memory: host_memory.hpp. That of a set is taken when its first sample comes; while the system has
// too little, what would need more is not kept. Readers and writers take no lock. Any thread.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/digest.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "base/usable_memory.hpp"
#include "datasets/core/augmentation.hpp"
#include "datasets/host_memory.hpp"

namespace mayfly::datasets {

class PreparedStore {
 public:
  /// For which a sample is waited for that another thread or process prepares.
  static constexpr Duration kPatience = milliseconds(200);

  struct Options {
    Digest key;                                 ///< of all that a sample at a position depends on
    std::uint64_t sample_bytes = 0;             ///< of the pixels of one, at least 1
    std::uint64_t bytes_max = 0;                ///< of all; room for kWays samples at least
    std::string folder;                         ///< see HostMemory::Options
    std::uint64_t (*usable)() = usable_memory;  ///< likewise
  };

  /// Joins the memory of jobs with the same key, or makes it. kInvalidInput, in one line, if that
  /// would have room for too few samples or needs more memory than this process may still take;
  /// kIo. One that another process has made keeps that process's size.
  [[nodiscard]] static Result<std::unique_ptr<PreparedStore>> join(const Options& options);

  enum class Turn {
    kReady,   ///< it was copied
    kOwn,     ///< the caller prepares it, then give() or give_up()
    kOthers,  ///< another one is preparing it
    kFull,    ///< the caller prepares it for itself: there is no place, or no memory
  };
  /// Looks for a sample by its position in the stream.
  [[nodiscard]] Turn take(std::uint64_t position, std::span<std::uint8_t> pixels,
                          Augmentation& draw);
  /// After kOthers: waits until it is ready, or for kPatience. False: the caller prepares it
  /// itself.
  [[nodiscard]] bool wait(std::uint64_t position, std::span<std::uint8_t> pixels,
                          Augmentation& draw);
  /// After kOwn.
  void give(std::uint64_t position, std::span<const std::uint8_t> pixels, const Augmentation& draw);
  void give_up(std::uint64_t position);

  /// How many samples there is room for.
  [[nodiscard]] std::uint64_t capacity() const;

  /// Places among which a sample has its own: a set.
  static constexpr std::uint64_t kWays = 4;

 private:
  struct Head;
  struct Place;
  explicit PreparedStore(std::unique_ptr<HostMemory> memory);
  [[nodiscard]] Head& head() const;
  [[nodiscard]] Place& place(std::uint64_t number) const;
  [[nodiscard]] std::atomic<std::uint8_t>& has_memory(std::uint64_t set) const;
  [[nodiscard]] bool take_memory(std::uint64_t set, std::int64_t now) const;
  [[nodiscard]] Place* find(std::uint64_t position) const;
  [[nodiscard]] Place* oldest_of_set(std::uint64_t position, std::int64_t now) const;
  [[nodiscard]] std::optional<Turn> try_take(std::uint64_t position, std::span<std::uint8_t> pixels,
                                             Augmentation& draw);
  [[nodiscard]] bool copy(const Place& place, std::uint64_t state, std::span<std::uint8_t> pixels,
                          Augmentation& draw) const;

  std::unique_ptr<HostMemory> memory_;
};

}  // namespace mayfly::datasets
