#pragma once

// A line of members.jsonl, described like the other records (engine/run/records.hpp).

#include <cstdint>
#include <string>

namespace mayfly::engine {

/// The stages of a member's microbatches, as elastic::Stages.
struct StagesRecord {
  double fetch_ms = 0;        ///< reading the images of a microbatch from files
  double prep_ms = 0;         ///< processor time of loading a microbatch
  double compute_ms = 0;      ///< of one thread, from a prepared microbatch to the sums
  double compute_cpu_ms = 0;  ///< processor time of that
  std::uint64_t bytes = 0;    ///< of its images, read from where they are stored
  std::uint32_t load_threads = 0;
  std::uint32_t compute_threads = 0;
  std::uint32_t ahead = 0;  ///< microbatches that are prepared ahead at most
  bool yields = false;      ///< loading threads have a low priority

  static void fields(auto& io, auto& r) {
    io("fetch_ms", r.fetch_ms);
    io("prep_ms", r.prep_ms);
    io("compute_ms", r.compute_ms);
    io("compute_cpu_ms", r.compute_cpu_ms);
    io("bytes", r.bytes);
    io("load_threads", r.load_threads);
    io("compute_threads", r.compute_threads);
    io("ahead", r.ahead);
    io("yields", r.yields);
  }
  friend bool operator==(const StagesRecord&, const StagesRecord&) = default;
};

/// A line of members.jsonl: the state of a member from `t` on, or at its end.
struct MemberRecord {
  static constexpr const char* kEnded = "ended";  ///< at the end of the job

  double t = 0;
  std::uint64_t member = 0;
  std::string host;         ///< as it calls itself
  std::string server;       ///< the provider's name for its server; empty = unknown
  std::uint32_t cores = 0;  ///< cores that it may use; 0 = unknown
  /// As in `mayfly status`: "loading", "active", ...; at its end the kind of the event: "lost", ...
  std::string phase;
  double joined = 0;               ///< when it was first seen
  std::uint32_t microbatches = 0;  ///< its share of a step
  double microbatch_ms = 0;        ///< measured, of all its threads together; 0 = not yet
  StagesRecord stages{};
  std::uint64_t steps = 0;       ///< committed with its work
  std::uint64_t samples = 0;     ///< its share of the samples of these steps
  double cpu_seconds = 0;        ///< processor time that its process has used; 0 = unknown
  std::uint32_t memory_mib = 0;  ///< its peak resident memory; 0 = unknown
  std::string detail;            ///< why it has ended

  static void fields(auto& io, auto& r) {
    io("t", r.t);
    io("member", r.member);
    io("host", r.host);
    io.unless("", "server", r.server);
    io.unless(0U, "cores", r.cores);
    io("phase", r.phase);
    io("joined", r.joined);
    io("microbatches", r.microbatches);
    io("microbatch_ms", r.microbatch_ms);
    io.unless(StagesRecord{}, "stages", r.stages);
    io("steps", r.steps);
    io("samples", r.samples);
    io.unless(0.0, "cpu_seconds", r.cpu_seconds);
    io.unless(0U, "memory_mib", r.memory_mib);
    io.unless("", "detail", r.detail);
  }
};

}  // namespace mayfly::engine
