#include "elastic/core/history.hpp"

#include <fmt/format.h>

#include <type_traits>

namespace mayfly::elastic {
namespace {

namespace ce = coordinator_event;
namespace cf = coordinator_effect;
namespace me = member_event;
namespace mf = member_effect;

template <typename T, typename... Others>
constexpr bool kIsOneOf = (std::is_same_v<T, Others> || ...);

/// The fields of a message as text; the caller adds the message's name.
std::string body_of(const Message& message) {
  return std::visit(
      [](const auto& m) -> std::string {
        using M = std::decay_t<decltype(m)>;
        if constexpr (kIsOneOf<M, Formed, Synced>) {
          return fmt::format("view {}", value(m.view));
        } else if constexpr (std::is_same_v<M, Ready>) {
          return fmt::format("after step {}", value(m.committed));
        } else if constexpr (std::is_same_v<M, Stopped>) {
          return fmt::format("view {} after step {}, holds {}{}{} {}", value(m.view),
                             value(m.committed), m.held.count(), m.finished ? ", finished" : "",
                             m.failed ? ", failed" : "", m.detail);
        } else if constexpr (std::is_same_v<M, Stop>) {
          return fmt::format("view {} {}", value(m.view), m.at_boundary ? "at a boundary" : "now");
        } else if constexpr (std::is_same_v<M, NewView>) {
          return fmt::format("view {} after step {}, {} members", value(m.view.id),
                             value(m.view.committed), m.view.members.size());
        } else if constexpr (std::is_same_v<M, NewViewDelta>) {
          return fmt::format("view {}", value(m.delta.id));
        } else if constexpr (kIsOneOf<M, Dismiss, WorkerDied>) {
          return m.detail;
        } else if constexpr (std::is_same_v<M, LeaveRequest>) {
          return m.reason;
        } else if constexpr (kIsOneOf<M, StoreSet, StoreGet, StoreValue>) {
          return m.key;
        } else {
          return {};
        }
      },
      message);
}

bool is_periodic(const Message& message) {
  return std::holds_alternative<Heartbeat>(message) || std::holds_alternative<Progress>(message) ||
         std::holds_alternative<Report>(message);
}

std::string about_message(Duration since_start, std::string_view way,
                          std::optional<MemberId> member, const Message& message) {
  if (is_periodic(message)) {
    return {};
  }
  return history_line(since_start, way, member,
                      fmt::format("{} {}", name_of(message), body_of(message)));
}

std::string about_recovery(const Recovery& r) {
  const auto since = [&r](Instant moment) { return to_ms(moment - r.detected); };
  return fmt::format(
      "{} after step {}: told {:.1f}, stopped {:.1f}, formed {:.1f}, synced {:.1f}, "
      "step {:.1f} ms, {} microbatches redone",
      name_of(r.cause), value(r.committed), since(r.told), since(r.stopped), since(r.formed),
      since(r.synced), since(r.step), r.redone_microbatches);
}

}  // namespace

std::string history_line(Duration since_start, std::string_view word,
                         std::optional<MemberId> member, std::string_view detail) {
  std::string line = fmt::format("{:.3f} ms: {}", to_ms(since_start), word);
  if (member.has_value()) {
    line += fmt::format(" {}", value(*member));
  }
  if (!detail.empty()) {
    line += fmt::format(" {}", detail);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

std::string history_line(Duration since_start, const CoordinatorEvent& event) {
  return std::visit(
      [since_start](const auto& e) -> std::string {
        using E = std::decay_t<decltype(e)>;
        if constexpr (std::is_same_v<E, ce::WorkerConnected>) {
          return history_line(since_start, "connects", std::nullopt,
                              fmt::format("{} pid {}", e.hello.host, e.hello.pid));
        } else if constexpr (std::is_same_v<E, ce::Received>) {
          return about_message(since_start, "from", e.member, e.message);
        } else if constexpr (std::is_same_v<E, ce::ConnectionLost>) {
          return history_line(since_start, "connection_lost", e.member, e.detail);
        } else if constexpr (std::is_same_v<E, ce::SentinelReport>) {
          return history_line(since_start, "sentinel", e.member, e.detail);
        } else if constexpr (std::is_same_v<E, ce::DrainAsked>) {
          return history_line(since_start, "drain_asked", e.member, e.reason);
        } else if constexpr (std::is_same_v<E, ce::PauseAsked>) {
          return history_line(since_start, e.pause ? "pause_asked" : "resume_asked", {}, "");
        } else if constexpr (kIsOneOf<E, ce::StopAsked, ce::FailAsked>) {
          return history_line(since_start, "end_asked", {}, e.reason);
        } else {
          return {};
        }
      },
      event);
}

std::string history_line(Duration since_start, const CoordinatorEffect& effect) {
  return std::visit(
      [since_start](const auto& e) -> std::string {
        using E = std::decay_t<decltype(e)>;
        if constexpr (std::is_same_v<E, cf::Send>) {
          return about_message(since_start, "to", e.member, e.message);
        } else if constexpr (std::is_same_v<E, cf::SendToAll>) {
          return about_message(since_start, "to_all", {}, e.message);
        } else if constexpr (std::is_same_v<E, cf::Note>) {
          return history_line(since_start, e.kind, e.member, e.detail);
        } else if constexpr (std::is_same_v<E, cf::Refuse>) {
          return history_line(since_start, "refused", {}, e.reason);
        } else if constexpr (std::is_same_v<E, cf::RecoveryDone>) {
          return history_line(since_start, "recovery", {}, about_recovery(e.recovery));
        } else if constexpr (std::is_same_v<E, cf::JobEnded>) {
          return history_line(since_start, "ended", {}, e.detail);
        } else {
          return {};
        }
      },
      effect);
}

std::string history_line(Duration since_start, const MemberEvent& event) {
  return std::visit(
      [since_start](const auto& e) -> std::string {
        using E = std::decay_t<decltype(e)>;
        if constexpr (std::is_same_v<E, me::Received>) {
          return about_message(since_start, "told", {}, e.message);
        } else if constexpr (std::is_same_v<E, me::Loaded>) {
          return history_line(since_start, "loaded", {},
                              fmt::format("after step {}", value(e.committed)));
        } else if constexpr (std::is_same_v<E, me::TrainerStopped>) {
          return history_line(since_start, "trainer_stopped", {},
                              fmt::format("view {} after step {}{} {}", value(e.report.view),
                                          value(e.report.committed),
                                          e.report.failed ? ", failed" : "", e.report.detail));
        } else if constexpr (kIsOneOf<E, me::GroupFormed, me::StateSynced>) {
          constexpr bool kFormed = std::is_same_v<E, me::GroupFormed>;
          return history_line(since_start, kFormed ? "formed" : "synced", {},
                              fmt::format("view {}", value(e.view)));
        } else if constexpr (std::is_same_v<E, me::LeaveAsked>) {
          return history_line(since_start, "leave_asked", {}, e.reason);
        } else if constexpr (std::is_same_v<E, me::CoordinatorLost>) {
          return history_line(since_start, "coordinator_lost", {}, "");
        } else {
          return {};
        }
      },
      event);
}

std::string history_line(Duration since_start, const MemberEffect& effect) {
  return std::visit(
      [since_start](const auto& e) -> std::string {
        using E = std::decay_t<decltype(e)>;
        if constexpr (std::is_same_v<E, mf::Send>) {
          return about_message(since_start, "says", {}, e.message);
        } else if constexpr (std::is_same_v<E, mf::RunView>) {
          return history_line(since_start, "runs", {}, fmt::format("view {}", value(e.view.id)));
        } else if constexpr (kIsOneOf<E, mf::AbortGroup, mf::AskForBoundary>) {
          constexpr bool kAborts = std::is_same_v<E, mf::AbortGroup>;
          return history_line(since_start, kAborts ? "aborts" : "asks_for_boundary", {},
                              fmt::format("view {}", value(e.view)));
        } else if constexpr (std::is_same_v<E, mf::Leave>) {
          return history_line(since_start, "leaves", {}, e.detail);
        } else {
          return {};
        }
      },
      effect);
}

}  // namespace mayfly::elastic
