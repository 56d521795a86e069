#pragma once

// Prepared samples that jobs of one host share, so that a search over hyper-parameters decodes and
// augments each image once instead of once for every job ("coordinated prep" of Mohan et al.,
// "Analyzing and Mitigating Data Stalls in DNN Training", PVLDB 14(5), 2021, but by sample instead
// of by batch, and without waiting for each other). Jobs share samples that are drawn from the same
// data with the same data seed. Their batches, microbatches and numbers of workers may differ,
// because a sample is found by its position in the stream.
//
// The store only saves time. Each sample is a pure function of its position, so a job that does not
// find a sample in time prepares it itself. No job waits longer than kPatience for another one that
// is slow, stopped or dead, once for each sample that the other job was preparing. A sample stays
// until another one needs its place, and it is the least recently used sample of its set. A reader
// copies a sample and compares its hash, so if any process overwrites the place meanwhile, the
// sample counts as missing.
//
// Memory: host_memory.hpp. The memory of a set is taken when its first sample is stored; while the
// system has too little, samples that would need more are not kept. Readers and writers take no
// lock. Any thread.

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
  /// How long to wait for a sample that another thread or process prepares.
  static constexpr Duration kPatience = milliseconds(200);

  struct Options {
    Digest key;  ///< hash of everything that determines the sample at a position
    std::uint64_t sample_bytes = 0;  ///< bytes of the pixels of one sample, at least 1
    std::uint64_t bytes_max = 0;     ///< for all samples; at least room for kWays samples
    std::string folder;              ///< see HostMemory::Options
    std::uint64_t (*usable)() = usable_memory;  ///< see usable_memory()
  };

  /// Joins the memory of jobs with the same key, or makes it. kInvalidInput, in one line, if it
  /// would have room for too few samples or needs more memory than this process may still take;
  /// kIo. Memory that another process has made keeps its size.
  [[nodiscard]] static Result<std::unique_ptr<PreparedStore>> join(const Options& options);

  enum class Turn {
    kReady,   ///< it was copied
    kOwn,     ///< the caller prepares it, then give() or give_up()
    kOthers,  ///< another thread or process is preparing it
    kFull,    ///< the caller prepares it and does not store it: there is no place, or no memory
  };
  /// Looks for a sample by its position in the stream.
  [[nodiscard]] Turn take(std::uint64_t position, std::span<std::uint8_t> pixels,
                          Augmentation& draw);
  /// After kOthers: waits until the sample is ready, or for kPatience. False: the caller prepares
  /// it itself.
  [[nodiscard]] bool wait(std::uint64_t position, std::span<std::uint8_t> pixels,
                          Augmentation& draw);
  /// To be called after kOwn.
  void give(std::uint64_t position, std::span<const std::uint8_t> pixels, const Augmentation& draw);
  void give_up(std::uint64_t position);

  /// The number of samples for which there is room.
  [[nodiscard]] std::uint64_t capacity() const;

  /// The number of places of a set; each sample belongs to one set.
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
