// What a run recorder says of members and of money.

#include "base/time.hpp"
#include "engine/run/record_json.hpp"
#include "engine/run/run_recorder.hpp"

namespace mayfly::engine {
namespace {

constexpr Duration kLookInterval = seconds(1);

}  // namespace

/// A member may come and go between two looks.
void RunRecorder::record_member(const std::string& kind, const NoteEvent& note, double t) {
  std::optional<MemberRecord> line;
  if (note.member && kind == "connected") {
    line = journal_.connected(t, *note.member, note.detail);
  } else if (note.member && kind == "disconnected") {  // after it was dismissed
    line = journal_.ended(t, *note.member, MemberRecord::kEnded, "");
  } else if (note.member && is_end_of_member(kind)) {
    line = journal_.ended(t, *note.member, kind, note.detail);
  }
  if (line) {
    directory_.members({*line});
  }
}

void RunRecorder::look_at_members(const elastic::CoordinatorServer& server) {
  const Instant now = monotonic_now();
  const std::lock_guard output(output_mutex_);
  if (now - looked_ < kLookInterval) {
    return;
  }
  looked_ = now;
  directory_.members(journal_.look(directory_.seconds_at(now), server.status().members));
}

void RunRecorder::costs(const Spending& spending) {
  const std::lock_guard lock(mutex_);
  spending_ = spending;
}

std::optional<Spending> RunRecorder::spending() const {
  const std::lock_guard lock(mutex_);
  return bill_ ? bill_->at(monotonic_now()) : spending_;
}

/// The last lines about members and money; the summary has the same sum.
void RunRecorder::close_accounts() {
  const Instant now = monotonic_now();
  const std::lock_guard output(output_mutex_);
  directory_.members(journal_.all_ended(directory_.seconds_at(now)));
  const std::lock_guard lock(mutex_);
  history_.goes_on(directory_.seconds_at(now));
  if (bill_) {
    spending_ = Spending{bill_->at(now).spent, 0, 0};
    bill_.reset();
    directory_.event("cost", object_of(*spending_), now);
  }
}

}  // namespace mayfly::engine
