#pragma once

// Where the coordinator's machines put what they want done. Whoever is handed one can say something
// to members, to the log and to the run directory; without one a machine can only answer.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "elastic/core/coordinator_events.hpp"

namespace mayfly::elastic {

/// The effects of one event, in the order in which they must be carried out. Pure.
class Outbox {
 public:
  void add(CoordinatorEffect effect) { effects_.push_back(std::move(effect)); }
  void send(MemberId member, Message message) {
    add(coordinator_effect::Send{member, std::move(message)});
  }
  /// Into the view log; `durable`: on the disk before any later effect.
  void append(LogRecord record, bool durable = false) {
    add(coordinator_effect::Append{std::move(record), durable});
  }
  /// A fact for the run directory; `kind` is one of those at coordinator_effect::Note.
  void note(std::string kind, std::optional<MemberId> member, std::string detail) {
    add(coordinator_effect::Note{std::move(kind), member, std::move(detail)});
  }

  [[nodiscard]] bool empty() const { return effects_.empty(); }
  /// Everything so far; the outbox is empty afterwards.
  [[nodiscard]] std::vector<CoordinatorEffect> take() { return std::exchange(effects_, {}); }

 private:
  std::vector<CoordinatorEffect> effects_;
};

}  // namespace mayfly::elastic
