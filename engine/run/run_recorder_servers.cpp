// What the recorder knows of a job's parameter servers and evaluators.

#include <fmt/format.h>

#include "engine/config/ps_settings.hpp"
#include "engine/run/json_text.hpp"
#include "engine/run/run_recorder.hpp"

namespace mayfly::engine {
namespace {

std::string place_of(const EvaluatorStatus& evaluator) {
  return evaluator.server.empty() ? evaluator.host : evaluator.server;
}

}  // namespace

std::optional<PsRoles> RunRecorder::roles_in(const JobConfig& config) {
  return uses_parameter_servers(config) ? std::optional<PsRoles>(config) : std::nullopt;
}

/// Who is or carries which server: at the beginning, and whenever one is lost.
void RunRecorder::record(const PsServersNews& news, ViewId view) {
  std::vector<std::string> lost;
  for (const std::uint32_t server : news.lost) {
    lost.push_back(std::to_string(server));
  }
  directory_.event(lost.empty() ? "ps_servers" : "ps_server_lost",
                   {{"view", json_number(value(view))},
                    {"lost", json_array(lost)},
                    {"servers", to_json(news.servers)},
                    {"detail", json_string(news.detail)}});
}

std::string RunRecorder::role_fields(MemberId member) const {
  const std::lock_guard lock(mutex_);
  return roles_ ? status_fields(roles_->role_of(member)) : std::string();
}

bool RunRecorder::is_server(MemberId member) const {
  const std::lock_guard lock(mutex_);
  const std::optional<PsRole> role = roles_ ? roles_->role_of(member) : std::nullopt;
  return role && role->server;
}

std::uint32_t RunRecorder::servers_left() const {
  const std::lock_guard lock(mutex_);
  return roles_ ? roles_->servers_left() : 0;
}

void RunRecorder::evaluator_joined(const EvaluatorStatus& evaluator) {
  fact("evaluator_joined",
       {{"server", json_string(evaluator.server)}, {"host", json_string(evaluator.host)}},
       fmt::format("evaluator on {} joined", place_of(evaluator)));
}

void RunRecorder::evaluator_left(const EvaluatorStatus& evaluator, const std::string& why) {
  fact(why.empty() ? "evaluator_left" : "evaluator_lost",
       {{"server", json_string(evaluator.server)},
        {"host", json_string(evaluator.host)},
        {"measured", json_number(evaluator.measured)},
        {"detail", json_string(why)}},
       why.empty() ? "" : fmt::format("evaluator on {} lost: {}", place_of(evaluator), why));
}

void RunRecorder::evaluated(const Evaluation& evaluation) {
  if (!evaluation.failure.empty()) {
    fact("evaluation_failed",
         {{"step", json_number(evaluation.step)}, {"detail", json_string(evaluation.failure)}},
         fmt::format("the checkpoint of step {} is not measured: {}", evaluation.step,
                     evaluation.failure));
    return;
  }
  fact("evaluated",
       {{"step", json_number(evaluation.step)},
        {"test_top1", json_number(evaluation.test_top1)},
        {"test_loss", json_number(evaluation.test_loss)},
        {"server", json_string(evaluation.evaluator)}},
       fmt::format("step {}: test accuracy {:.2f} %, test loss {:.4f}, by evaluator {}",
                   evaluation.step, 100 * evaluation.test_top1, evaluation.test_loss,
                   evaluation.evaluator));
}

}  // namespace mayfly::engine
