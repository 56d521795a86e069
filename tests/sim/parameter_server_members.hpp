#pragma once

// The membership of a simulated job with parameter servers: the product's coordinator, a member
// machine for each process, and the answers of the product's processes when a view must end
// (StopAnswers). For parameter_server_run.hpp.

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
    /// The coordinator has published a view. Later `met` is called for each member that enters it.
    std::function<void(const elastic::View&)> published;
    std::function<void(MemberId, const elastic::View&)> met;
    /// From now on no new step may begin on this process's shards.
    std::function<void(MemberId)> held;
    std::function<void(MemberId, const elastic::member_effect::Leave&)> left;
    /// The process's reports are recorded, or the process need not wait for that any more.
    std::function<void(MemberId)> reports_taken;
    /// Adds a line to the history.
    std::function<void(std::string)> tell;
  };

  /// All arguments outlive this object.
  PsMembers(const PsOptions& options, EventQueue& queue, RandomStream& random, Hooks hooks);

  /// A process joins the job; it is ready after a while.
  MemberId join(bool computes, bool serves);
  /// The process dies, or (`is_dead` false) is only reported as dead; the coordinator is informed.
  void lose(MemberId id, bool is_dead);
  /// The process has received SIGTERM.
  void drain(MemberId id);
  void pause(bool pause);
  void stop();
  /// The process has the first shard, and answers a planned Stop when that shard is quiet.
  void wait_for_quiet(MemberId id) { process(id).answers.wait_for_quiet(); }
  void quiet(MemberId id, ViewId held_in) { say(id, process(id).answers.quiet(held_in)); }
  void finished(MemberId id) { say(id, process(id).answers.finished()); }
  /// Like the product's wait_for_reports(): the process's trainer waits for the answer.
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
    bool is_known = true;  // it is one of the coordinator's members
    Instant last_up;       // when its last message reaches the coordinator; later ones are later
    Instant last_down;
    ViewId view{};                  // the newest view that it has entered
    std::optional<ViewId> reports;  // the view on whose store wait_for_reports() waits
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
  MemberId accepted_{};  // the member that was accepted last
  std::optional<elastic::Outcome> outcome_;
  std::uint32_t views_ = 0;
  std::optional<Instant> changing_since_;
  Duration change_max_{};
  std::vector<std::string> needless_;
};

}  // namespace mayfly::sim
