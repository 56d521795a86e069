#pragma once

// The members of a run, from its records: a lane for each, from its connection to its end. Pure;
// one thread at a time.

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
  std::optional<double> to;  ///< nothing: it continues
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
  std::uint32_t cores = 0;             ///< cores that it may use; 0: unknown
  std::optional<MemberStages> stages;  ///< nothing: not known, or the member loads no data
  bool is_going = false;               ///< it is leaving or has left
};

struct MemberLane {
  std::uint64_t member = 0;
  std::string host;
  std::vector<MemberSpan> spans;
  std::string end;  ///< "lost", "left", "evicted", "ended"; empty before its end
  std::string detail;
  double end_t = 0;
  std::optional<std::uint64_t> end_step;  ///< the job continued after this step without it
};

/// Members by their ids. A member exists from its first record of any kind on, so that damaged
/// records give lanes, too. All times are seconds on the job's time axis.
class Members {
 public:
  void connected(double t, std::uint64_t member, const std::string& host);
  void ready(double t, std::uint64_t member, const std::string& host);
  /// A view begins: its members are active from now on, and members that were active before are
  /// spares.
  void view(double t, std::uint64_t committed, const std::vector<std::uint64_t>& members,
            const std::vector<std::string>& hosts);
  /// A member was an observer from `admitted` to `promoted`.
  void observed(std::uint64_t member, double admitted, double promoted);
  /// The first recorded end counts: a worker that has left also disconnects.
  void ended(double t, std::uint64_t member, const std::string& kind, const std::string& detail);
  /// The job has ended, or its next part begins.
  void all_ended(double t);

  /// Measures and events may be added in any order: a measure belongs to the lane of its member at
  /// its time.
  void measured(std::uint64_t member, const MemberMeasure& measure);

  [[nodiscard]] const std::vector<MemberLane>& lanes() const { return lanes_; }
  /// The measures of this lane, in the order of the file.
  [[nodiscard]] std::vector<MemberMeasure> measures_of(const MemberLane& lane) const;
  [[nodiscard]] std::size_t active() const { return active_.size(); }

 private:
  [[nodiscard]] MemberLane& lane(double t, std::uint64_t member, const std::string& host);
  static void go_on(MemberLane& lane, double t, MemberPhase phase);

  std::vector<MemberLane> lanes_;
  std::map<std::uint64_t, std::size_t> open_;  // lanes without an end
  std::vector<std::uint64_t> active_;
  std::map<std::uint64_t, std::vector<MemberMeasure>> measures_;
  std::vector<std::size_t> just_ended_;  // lanes that ended after the newest view
};

}  // namespace mayfly::observe
