#pragma once

// What the records of a run say of its members: a lane for each, from its connection to its end.
// Pure; one thread at a time.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace mayfly::observe {

enum class MemberPhase { kLoading, kReady, kObserving, kActive };
[[nodiscard]] const char* name_of(MemberPhase phase);

struct MemberSpan {
  double from = 0;
  std::optional<double> to;  ///< nothing: it goes on
  MemberPhase phase = MemberPhase::kLoading;
};

/// The stages of a member's microbatches (engine/run/records.hpp, StagesRecord).
struct MemberStages {
  double fetch_ms = 0;
  double prep_ms = 0;
  double compute_ms = 0;
  double compute_cpu_ms = 0;
  double bytes = 0;
  std::uint32_t load_threads = 0;
  std::uint32_t compute_threads = 0;
  std::uint32_t ahead = 0;
  bool yields = false;
};

/// A line of members.jsonl.
struct MemberMeasure {
  double t = 0;
  double microbatch_ms = 0;  ///< 0: not measured yet
  std::uint32_t microbatches = 0;
  std::uint64_t steps = 0;
  std::uint64_t samples = 0;
  std::uint32_t cores = 0;             ///< that it may use; 0: unknown
  std::optional<MemberStages> stages;  ///< nothing: not known, or nothing is loaded
  bool is_going = false;               ///< it was told to leave, or had left
};

struct MemberLane {
  std::uint64_t member = 0;
  std::string host;
  std::vector<MemberSpan> spans;
  std::string end;  ///< "lost", "left", "evicted", "ended"; empty while it is there
  std::string detail;
  double end_t = 0;
  std::optional<std::uint64_t> end_step;  ///< after which the job went on without it
};

/// Members by their ids. A member is known from its first record on, whichever that is, so that old
/// and damaged records give lanes, too. All times are seconds on the job's time axis.
class Members {
 public:
  void connected(double t, std::uint64_t member, const std::string& host);
  void ready(double t, std::uint64_t member, const std::string& host);
  /// A view begins: its members are active, the other active ones are spares from now on.
  void view(double t, std::uint64_t committed, const std::vector<std::uint64_t>& members,
            const std::vector<std::string>& hosts);
  /// A member was an observer from `admitted` to `promoted`.
  void observed(std::uint64_t member, double admitted, double promoted);
  /// The first end that is told counts: a worker that has left also disconnects.
  void ended(double t, std::uint64_t member, const std::string& kind, const std::string& detail);
  /// The job has ended, or its next part begins.
  void all_ended(double t);

  /// In any order with the events: a measure belongs to the lane that its member has at its time.
  void measured(std::uint64_t member, const MemberMeasure& measure);

  [[nodiscard]] const std::vector<MemberLane>& lanes() const { return lanes_; }
  /// The measures of this lane, in the order of the file.
  [[nodiscard]] std::vector<MemberMeasure> measures_of(const MemberLane& lane) const;
  [[nodiscard]] std::size_t active() const { return active_.size(); }

 private:
  [[nodiscard]] MemberLane& lane(double t, std::uint64_t member, const std::string& host);
  static void go_on(MemberLane& lane, double t, MemberPhase phase);

  std::vector<MemberLane> lanes_;
  std::map<std::uint64_t, std::size_t> open_;  // lanes of members that are there
  std::vector<std::uint64_t> active_;
  std::map<std::uint64_t, std::vector<MemberMeasure>> measures_;
  std::vector<std::size_t> just_ended_;  // lanes that ended after the newest view
};

}  // namespace mayfly::observe
