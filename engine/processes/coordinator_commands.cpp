// Commands of operators to a coordinator: its status, another number of workers, other servers.

#include <fmt/format.h>

#include <algorithm>

#include "base/parse.hpp"
#include "engine/config/ps_settings.hpp"
#include "engine/processes/coordinator_process.hpp"
#include "engine/run/record_json.hpp"

namespace mayfly::engine {

elastic::CommandReply CoordinatorProcess::answer(const elastic::CoordinatorServer& server,
                                                 const elastic::Command& command) {
  if (command.verb == "status") {
    return {true, status_json(server)};
  }
  if (command.verb == "scale" || command.verb == "give-up") {
    const auto count = number_in<std::uint32_t>(command.argument);
    if (!count || *count == 0) {
      return {false, fmt::format("'{}' is not a number of {}", command.argument,
                                 command.verb == "scale" ? "workers" : "servers")};
    }
    const bool scales = command.verb == "scale";
    const Result<std::string> done = scales ? on_scale_(*count) : give_up(*count);
    if (scales && done.ok()) {
      recorder_->fact({"scale", {{"workers", *count}, {"detail", done.value()}}, ""});
    }
    return done.ok() ? elastic::CommandReply{true, done.value()}
                     : elastic::CommandReply{false, done.error().detail};
  }
  return {false, fmt::format("the coordinator knows no command '{}'", command.verb)};
}

void CoordinatorProcess::give_up_with(ScaleHandler give_up) {
  give_up_servers_.set(std::move(give_up));
}

Result<std::string> CoordinatorProcess::give_up(std::uint32_t count) {
  if (std::optional<Result<std::string>> done = give_up_servers_.call(count)) {
    return *std::move(done);
  }
  return Error{Errc::kUnsupported,
               "this coordinator has no servers of a provider; drain a worker instead"};
}

namespace {

constexpr std::size_t kRecoveriesShown = 5;

/// The last changes of the view; their times are milliseconds since the cause was detected.
json::array recoveries_json(const std::vector<elastic::Recovery>& all) {
  json::array shown;
  for (std::size_t i = all.size() - std::min(all.size(), kRecoveriesShown); i < all.size(); ++i) {
    const elastic::Recovery& r = all[i];
    std::string members;
    for (const MemberId member : r.members) {
      members += fmt::format("{}{}", members.empty() ? "" : " ", value(member));
    }
    const auto since = [&r](Instant moment) { return rounded(to_ms(moment - r.detected), 1); };
    shown.push_back({{"cause", name_of(r.cause)},
                     {"members", members},
                     {"after_step", value(r.committed)},
                     {"stopped_ms", since(r.stopped)},
                     {"formed_ms", since(r.formed)},
                     {"synced_ms", since(r.synced)},
                     {"step_ms", since(r.step)},
                     {"redone", r.redone_microbatches}});
  }
  return shown;
}

void add_role(json::object& member, const std::optional<PsRole>& role) {
  member["role"] = role ? json::value(name_of(*role)) : nullptr;
  member["server"] = value_of(role ? role->server : std::nullopt);
  member["leads"] = role ? value_of(role->leads) : nullptr;
  member["follows"] = role ? value_of(role->follows) : nullptr;
}

}  // namespace

void CoordinatorProcess::propose(const std::string& sentence) {
  const std::lock_guard lock(proposal_mutex_);
  proposal_ = sentence;
}

std::string CoordinatorProcess::status_json(const elastic::CoordinatorServer& server) const {
  const elastic::JobStatus status = server.status();
  json::array members;
  for (const elastic::MemberStatus& m : status.members) {
    json::object member{{"id", value(m.id)}, {"host", m.host}, {"pid", m.pid}};
    if (uses_parameter_servers(job_->config)) {
      add_role(member, recorder_->roles().role_of(m.id));
    }
    member["phase"] = name_of(m.phase);
    member["activity"] = m.activity;
    member["silent_ms"] = rounded(m.silent_ms, 0);
    member["committed"] = value(m.committed);
    member["microbatch_ms"] = rounded(m.microbatch_ms, 3);
    member["microbatches"] = m.microbatches;
    members.push_back(member);
  }
  // Members of a job with parameter servers do not count the steps.
  const std::uint64_t committed =
      uses_parameter_servers(job_->config)
          ? std::max(recorder_->progress().last_step(), starting_point_.step)
          : value(status.committed);
  json::object shown{{"phase", name_of(status.phase)},
                     {"committed", committed},
                     {"total_steps", job_->total_steps},
                     {"images_per_second", rounded(recorder_->progress().images_per_second(), 1)},
                     {"view", value(status.view)},
                     {"model", job_->config.model},
                     {"run_dir", job_->config.run_dir},
                     {"checkpoint", recorder_->progress().last_checkpoint()},
                     {"cost", nullptr}};
  if (const std::optional<Spending> spending = recorder_->cost().at(monotonic_now())) {
    shown["cost"] = spending->spent;
    shown["cost_per_hour"] = spending->per_hour;
  }
  {
    const std::lock_guard lock(proposal_mutex_);
    if (!proposal_.empty()) {
      shown["proposal"] = proposal_;
    }
  }
  if (const auto evaluators = evaluations_->evaluators(); !evaluators.empty()) {
    shown["evaluators"] = value_of(evaluators);
  }
  shown["members"] = members;
  shown["recoveries"] = recoveries_json(recorder_->progress().recoveries());
  return json_text(shown);
}

}  // namespace mayfly::engine
