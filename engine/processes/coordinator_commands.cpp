// What operators ask a coordinator: its status, and another number of workers.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "engine/processes/coordinator_process.hpp"
#include "engine/run/json_text.hpp"
#include "engine/run/run_directory.hpp"

namespace mayfly::engine {

elastic::CommandReply CoordinatorProcess::answer(const elastic::CoordinatorServer& server,
                                                 const elastic::Command& command) {
  if (command.verb == "status") {
    return {true, status_json(server)};
  }
  if (command.verb == "scale") {
    std::uint32_t count = 0;
    const char* end = command.argument.data() + command.argument.size();
    const auto parsed = std::from_chars(command.argument.data(), end, count);
    if (parsed.ec != std::errc() || parsed.ptr != end || count == 0) {
      return {false, fmt::format("'{}' is not a number of workers", command.argument)};
    }
    Result<std::string> scaled = on_scale_(count);
    return scaled.ok() ? elastic::CommandReply{true, scaled.value()}
                       : elastic::CommandReply{false, scaled.error().detail};
  }
  return {false, fmt::format("the coordinator knows no command '{}'", command.verb)};
}

namespace {

constexpr std::size_t kRecoveriesShown = 5;

/// The last changes of view, with milliseconds since each was detected.
std::string recoveries_json(const std::vector<elastic::Recovery>& all) {
  std::string text;
  for (std::size_t i = all.size() - std::min(all.size(), kRecoveriesShown); i < all.size(); ++i) {
    const elastic::Recovery& r = all[i];
    std::string members;
    for (const MemberId member : r.members) {
      members += fmt::format("{}{}", members.empty() ? "" : " ", value(member));
    }
    const auto since = [&r](Instant moment) {
      return fmt::format("{:.1f}", to_ms(moment - r.detected));
    };
    const std::string line = JsonObject()
                                 .add("cause", json_string(name_of(r.cause)))
                                 .add("members", json_string(members))
                                 .add("after_step", std::to_string(value(r.committed)))
                                 .add("stopped_ms", since(r.stopped))
                                 .add("formed_ms", since(r.formed))
                                 .add("synced_ms", since(r.synced))
                                 .add("step_ms", since(r.step))
                                 .add("redone", std::to_string(r.redone_microbatches))
                                 .text();
    text += text.empty() ? line : "," + line;
  }
  return text;
}

/// The field with the evaluators, or nothing if there are none.
std::string evaluators_field(const std::vector<EvaluatorStatus>& all) {
  std::vector<std::string> lines;
  for (const EvaluatorStatus& one : all) {
    lines.push_back(JsonObject()
                        .add("server", json_string(one.server))
                        .add("host", json_string(one.host))
                        .add("measures", one.measures ? json_number(*one.measures) : "null")
                        .add("measured", json_number(one.measured))
                        .text());
  }
  return lines.empty() ? "" : R"("evaluators":)" + json_array(lines) + ",";
}

}  // namespace

std::string CoordinatorProcess::status_json(const elastic::CoordinatorServer& server) const {
  const elastic::JobStatus status = server.status();
  std::string members;
  for (const elastic::MemberStatus& m : status.members) {
    members += fmt::format(
        R"({}{{"id":{},"host":{},"pid":{}{},"phase":{},"activity":{},"silent_ms":{:.0f},)"
        R"("committed":{},"microbatch_ms":{:.3f},"microbatches":{}}})",
        members.empty() ? "" : ",", value(m.id), json_string(m.host), m.pid,
        recorder_->role_fields(m.id), json_string(name_of(m.phase)), json_string(m.activity),
        m.silent_ms, value(m.committed), m.microbatch_ms, m.microbatches);
  }
  return fmt::format(
      R"({{"phase":{},"committed":{},"total_steps":{},"images_per_second":{:.1f},"view":{},)"
      R"("model":{},"run_dir":{},"checkpoint":{},"cost":{},)"
      R"({}"members":[{}],"recoveries":[{}]}})",
      json_string(name_of(status.phase)), value(status.committed), job_->total_steps,
      recorder_->images_per_second(), value(status.view), json_string(job_->config.model),
      json_string(job_->config.run_dir), json_string(recorder_->last_checkpoint()),
      recorder_->cost() ? json_number(*recorder_->cost()) : "null",
      evaluators_field(evaluations_->evaluators()), members,
      recoveries_json(recorder_->recoveries()));
}

}  // namespace mayfly::engine
