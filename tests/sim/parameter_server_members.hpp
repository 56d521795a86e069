#pragma once

// The processes of a simulated job with parameter servers as members of it: the product's
// coordinator, a member machine for each process, and what the product's processes answer when a
// view is to end. For parameter_server_run.hpp.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "elastic/core/coordinator.hpp"
#include "elastic/core/member.hpp"
#include "engine/parameter_server/stop_answers.hpp"
#include "tests/sim/event_queue.hpp"
#include "tests/sim/parameter_server_world.hpp"

namespace mayfly::sim {

class PsMembers {
 public:
  struct Hooks {
    /// The coordinator has published a view; then each of its members learns of it.
    std::function<void(const elastic::View&)> published;
    std::function<void(MemberId, const elastic::View&)> met;
    /// No new step may begin on this process's shards.
    std::function<void(MemberId)> held;
    std::function<void(MemberId, const elastic::member_effect::Leave&)> left;
    /// The process's reports are on record, or there is no use in waiting for that.
    std::function<void(MemberId)> reports_taken;
    /// A line of the history.
    std::function<void(std::string)> tell;
  };

  /// Everything outlives it.
  PsMembers(const PsOptions& options, EventQueue& queue, RandomStream& random, Hooks hooks);

  /// A process joins the job; it is ready after a while.
  MemberId join(bool computes, bool serves);
  /// The process dies, or (`is_dead` false) is taken for dead; the coordinator hears of it.
  void lose(MemberId id, bool is_dead);
  /// SIGTERM has reached it.
  void drain(MemberId id);
  void pause(bool pause);
  void stop();
  /// It has the first shard, and answers planned orders when that is quiet.
  void wait_for_quiet(MemberId id) { process(id).answers.wait_for_quiet(); }
  void quiet(MemberId id, ViewId held_in) { say(id, process(id).answers.quiet(held_in)); }
  void finished(MemberId id) { say(id, process(id).answers.finished()); }
  /// As the product's wait_for_reports(): its trainer waits for the answer.
  void wait_for_reports(MemberId id);

  [[nodiscard]] bool has_ended() const { return outcome_.has_value(); }
  void report(PsResult& result) const;

 private:
  struct Process {
    Process(const elastic::Welcome& welcome, Step committed, Step last)
        : machine(welcome), answers(committed, last) {}
    elastic::Member machine;
    engine::StopAnswers answers;
    bool is_alive = true;
    bool is_known = true;  // to the coordinator
    Instant last_up;       // of what it says to the coordinator, which comes in order
    Instant last_down;
    ViewId view{};                  // the newest that it has met
    std::optional<ViewId> reports;  // whose store it waits for
  };

  [[nodiscard]] Process& process(MemberId id) { return *processes_.at(id); }
  [[nodiscard]] Duration some_time();
  void tick();
  void give(const elastic::CoordinatorEvent& event);
  void carry_out(elastic::CoordinatorEffect& effect);
  void note(const elastic::coordinator_effect::Note& fact);
  void watch_changes();
  [[nodiscard]] bool is_deaf_to(MemberId id, const elastic::Message& message) const;
  void send_up(MemberId id, elastic::Message message);
  void send_down(MemberId id, elastic::Message message);
  void say(MemberId id, engine::StopAnswers::Answer answer);
  void tell(MemberId id, const elastic::MemberEvent& event);
  void carry_out(MemberId id, elastic::MemberEffect& effect);
  void run_view(MemberId id, const elastic::View& view);
  void end_views_up_to(MemberId id, ViewId view);

  const PsOptions& options_;
  EventQueue& queue_;
  RandomStream& random_;
  const Hooks hooks_;
  elastic::Coordinator coordinator_;
  std::map<MemberId, std::unique_ptr<Process>> processes_;
  MemberId accepted_{};  // the newest
  std::optional<elastic::Outcome> outcome_;
  std::uint32_t views_ = 0;
  std::optional<Instant> changing_since_;
  Duration change_max_{};
  std::vector<std::string> needless_;
};

}  // namespace mayfly::sim
