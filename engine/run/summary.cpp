#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/run/json_text.hpp"
#include "engine/run/run_directory.hpp"
#include "engine/run/run_records.hpp"

namespace mayfly::engine {
namespace {

constexpr double kDataWaitShare = 0.05;  // of the training time; less is not worth a line
constexpr std::size_t kHostsShown = 8;

std::string with_thousands(std::uint64_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t at = digits.size(); at > 3;) {
    at -= 3;
    digits.insert(at, 1, ',');
  }
  return digits;
}

std::string headline(const Summary& s) {
  std::string outcome = s.outcome == "done"              ? "Done"
                        : s.outcome == "stopped"         ? "Stopped"
                        : s.outcome == "too_few_workers" ? "Ended: too few workers"
                                                         : "Failed";
  if (!s.detail.empty()) {
    outcome += " (" + s.detail + ")";
  }
  return fmt::format("{}: {} steps, {} samples in {:.1f} s, {:.0f} images/s", outcome,
                     with_thousands(s.steps), with_thousands(s.samples), s.train_seconds,
                     s.images_per_second);
}

std::string line(const char* label, const std::string& text) {
  return fmt::format("  {:<14}{}\n", label, text);
}

std::string recovery_line(const RecoveryRecord& r) {
  std::string who;
  for (const std::uint64_t member : r.members) {
    who += (who.empty() ? "" : ", ") + std::to_string(member);
  }
  return fmt::format(
      "{:<13} worker {:<6} after step {:<6} {:>7.1f} ms to the next step "
      "(told {:.1f}, stopped {:.1f}, formed {:.1f}, synced {:.1f}), {} microbatches redone",
      r.cause, who.empty() ? "?" : who, r.step, r.step_ms, r.told_ms, r.stopped_ms, r.formed_ms,
      r.synced_ms, r.redone_microbatches);
}

/// Of a job on several hosts: "3 on node-a, 1 on node-b".
std::string hosts_line(const std::vector<WorkerStay>& workers) {
  std::vector<std::pair<std::string, int>> hosts;
  for (const WorkerStay& stay : workers) {
    const auto place = std::find_if(hosts.begin(), hosts.end(),
                                    [&](const auto& host) { return host.first == stay.host; });
    if (place == hosts.end()) {
      hosts.emplace_back(stay.host, 1);
    } else {
      ++place->second;
    }
  }
  if (hosts.size() < 2) {
    return {};
  }
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < std::min(hosts.size(), kHostsShown); ++i) {
    parts.push_back(fmt::format("{} on {}", hosts[i].second, hosts[i].first));
  }
  if (hosts.size() > kHostsShown) {
    parts.push_back(fmt::format("and others on {} more hosts", hosts.size() - kHostsShown));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string to_json(const Summary::Evaluations& e) {
  std::vector<std::string> names;
  for (const std::string& name : e.evaluators) {
    names.push_back(json_string(name));
  }
  return JsonObject()
      .add("count", json_number(e.count))
      .add("evaluators", json_array(names))
      .add("step", json_number(e.step))
      .add("test_top1", json_number(e.test_top1))
      .add("test_loss", json_number(e.test_loss))
      .text();
}

}  // namespace

std::string to_json(const RecoveryRecord& r) {
  std::vector<std::string> members;
  for (const std::uint64_t member : r.members) {
    members.push_back(json_number(member));
  }
  return JsonObject()
      .add("cause", json_string(r.cause))
      .add("members", json_array(members))
      .add("step", json_number(r.step))
      .add("view", json_number(r.view))
      .add("redone_microbatches", json_number(std::uint64_t{r.redone_microbatches}))
      .add("detail", json_string(r.detail))
      .add("told_ms", json_number(r.told_ms))
      .add("stopped_ms", json_number(r.stopped_ms))
      .add("formed_ms", json_number(r.formed_ms))
      .add("synced_ms", json_number(r.synced_ms))
      .add("step_ms", json_number(r.step_ms))
      .text();
}

std::string sentence_of(const RecoveryRecord& r) {
  const std::string who = fmt::format("{}", fmt::join(r.members, ", "));
  if (r.cause == "join") {
    return fmt::format("worker {} joined after step {}: first step together after {:.0f} ms", who,
                       r.step, r.step_ms);
  }
  if (r.cause == "promote") {
    return fmt::format("worker {} has work from step {} on: first step with it after {:.0f} ms",
                       who, r.step + 1, r.step_ms);
  }
  if (r.cause == "corrupted") {
    return fmt::format(
        "worker {} evicted before step {}: its state was wrong; next step after {:.0f} ms, {} "
        "microbatches redone",
        who, r.step + 1, r.step_ms, r.redone_microbatches);
  }
  if (r.cause == "rebalance") {
    return fmt::format("work shared out anew after step {}: next step after {:.0f} ms", r.step,
                       r.step_ms);
  }
  if (r.cause == "leave") {
    return fmt::format("worker {} left after step {}: next step after {:.0f} ms", who, r.step,
                       r.step_ms);
  }
  return fmt::format(
      "worker {} lost after step {}: the others re-formed in {:.0f} ms, next step after {:.0f} ms, "
      "{} microbatches redone",
      who, r.step, r.synced_ms, r.step_ms, r.redone_microbatches);
}

StepMetric metric_of(const StepRecord& record, double epoch) {
  StepMetric metric;
  metric.step = record.step;
  metric.samples = record.samples;
  metric.epoch = epoch;
  metric.loss = record.loss;
  metric.accuracy = static_cast<double>(record.correct) / record.samples;
  metric.learning_rate = record.learning_rate;
  // By the member's own clock: its reports may arrive in bursts.
  metric.images_per_second = record.seconds > 0 ? record.samples / record.seconds : 0;
  metric.data_wait_ms = record.wait_ms;
  metric.members = record.members;
  metric.view = record.view;
  metric.sample_hash = record.sample_hash;
  metric.digest = record.digest;
  metric.skipped = record.skipped;
  metric.attempts = record.attempts;
  if (record.loss_scale != StepRecord::kNoScale) {
    metric.loss_scale = std::ldexp(1.0, record.loss_scale);
  }
  return metric;
}

std::string sentence_of_skip(const StepMetric& metric) {
  return fmt::format(
      "step {}: a gradient is not finite with loss scale {:.0f}; no update, and half of it from "
      "now on",
      metric.step, metric.loss_scale.value_or(1));
}

std::string to_json(const datasets::LeftOut& left_out) {
  std::vector<std::string> names;
  for (const std::string& name : left_out.names) {
    names.push_back(json_string(name));
  }
  return JsonObject()
      .add("count", json_number(std::uint64_t{left_out.count}))
      .add("names", json_array(names))
      .text();
}

std::string to_json(const StepMetric& m) {
  JsonObject object;
  object.add("step", json_number(m.step))
      .add("samples", json_number(m.samples))
      .add("epoch", json_number(m.epoch))
      .add("loss", json_number(m.loss))
      .add("accuracy", json_number(m.accuracy))
      .add("learning_rate", json_number(m.learning_rate))
      .add("images_per_second", json_number(m.images_per_second))
      .add("data_wait_ms", json_number(m.data_wait_ms))
      .add("members", json_number(std::uint64_t{m.members}))
      .add("view", json_number(m.view))
      .add("sample_hash", json_string(m.sample_hash));
  if (!m.digest.empty()) {
    object.add("digest", json_string(m.digest));
  }
  if (m.loss_scale) {
    object.add("loss_scale", json_number(*m.loss_scale));
  }
  if (m.skipped) {
    object.add("skipped", "true");
  }
  if (m.attempts > 1) {
    object.add("attempts", json_number(std::uint64_t{m.attempts}));
  }
  return object.text();
}

std::string to_json(const Summary& s) {
  JsonObject object;
  object.add("outcome", json_string(s.outcome))
      .add("detail", json_string(s.detail))
      .add("steps", json_number(s.steps))
      .add("samples", json_number(s.samples))
      .add("undone_samples", json_number(s.undone_samples))
      .add("retried_steps", json_number(s.retried_steps))
      .add("final_digest", json_string(s.final_digest));
  if (s.skipped_steps) {
    object.add("skipped_steps", json_number(*s.skipped_steps));
  }
  if (s.test_top1) {
    object.add("test_top1", json_number(*s.test_top1));
  }
  if (s.test_loss) {
    object.add("test_loss", json_number(*s.test_loss));
  }
  std::vector<std::string> recoveries;
  for (const RecoveryRecord& recovery : s.recoveries) {
    recoveries.push_back(to_json(recovery));
  }
  std::vector<std::string> workers;
  for (const WorkerStay& stay : s.workers) {
    workers.push_back(JsonObject()
                          .add("member", json_number(stay.member))
                          .add("host", json_string(stay.host))
                          .add("first_step", json_number(stay.first_step))
                          .add("last_step", json_number(stay.last_step))
                          .text());
  }
  object.add("images_per_second", json_number(s.images_per_second))
      .add("train_seconds", json_number(s.train_seconds))
      .add("data_wait_seconds", json_number(s.data_wait_seconds))
      .add("membership_changes", json_number(std::uint64_t{s.membership_changes}))
      .add("recoveries", json_array(recoveries))
      .add("workers", json_array(workers));
  if (s.evaluations) {
    object.add("evaluations", to_json(*s.evaluations));
  }
  return object.add("cost", s.cost ? json_number(*s.cost) : "null")
      .add("reduction", json_string(s.reduction))
      .add("backend", json_string(s.backend))
      .add("device", json_string(s.device))
      .add("isa", json_string(s.isa))
      .add("dtype", json_string(s.dtype))
      .add("conv_kernels", json_string(s.conv_kernels))
      .add("model", json_string(s.model))
      .add("data", json_string(s.data))
      .add("images_left_out", to_json(s.left_out))
      .add("seed", json_number(s.seed))
      .add("last_checkpoint", json_string(s.last_checkpoint))
      .add("version", json_string(s.version))
      .text();
}

std::string to_text(const Summary& s) {
  std::string out = headline(s) + "\n";
  if (s.test_top1) {
    const std::string loss = s.test_loss ? fmt::format(", loss {:.4f}", *s.test_loss) : "";
    out += line("test accuracy", fmt::format("{:.2f} %{}", *s.test_top1 * 100, loss));
  }
  out += line("trained", fmt::format("{} on {}, seed {}, {} sum over {}, {} {}", s.model, s.data,
                                     s.seed, s.reduction, s.backend, s.device, s.isa));
  if (s.data_wait_seconds > kDataWaitShare * s.train_seconds && s.train_seconds > 0) {
    out +=
        line("data", fmt::format("compute threads waited {:.1f} s for it ({:.0f} %)",
                                 s.data_wait_seconds, 100 * s.data_wait_seconds / s.train_seconds));
  }
  if (s.left_out.count > 0) {
    out += line("images", s.left_out.sentence());
  }
  out += line("membership", fmt::format("{} changes", s.membership_changes));
  for (const RecoveryRecord& recovery : s.recoveries) {
    out += line("", recovery_line(recovery));
  }
  if (const std::string where = hosts_line(s.workers); !where.empty()) {
    out += line("workers", where);
  }
  if (s.evaluations) {
    const Summary::Evaluations& e = *s.evaluations;
    const std::string by =
        e.evaluators.empty() ? "" : fmt::format(" by {}", fmt::join(e.evaluators, ", "));
    out += line("evaluations", fmt::format("{} checkpoints{}; of step {}: {:.2f} %, loss {:.4f}",
                                           e.count, by, e.step, e.test_top1 * 100, e.test_loss));
  }
  if (s.cost && *s.cost > 0) {
    out += line("cost", fmt::format("{:.4g}", *s.cost));
  }
  if (!s.final_digest.empty()) {
    out += line("digest", s.final_digest);
  }
  if (!s.last_checkpoint.empty()) {
    out += line("checkpoint", s.last_checkpoint);
  }
  return out;
}

}  // namespace mayfly::engine
