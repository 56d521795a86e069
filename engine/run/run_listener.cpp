#include "engine/run/run_listener.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.hpp"
#include "base/text.hpp"

namespace mayfly::engine {
namespace {

constexpr double kDataWaitShare = 0.05;  // of the training time; less is not worth a line
constexpr double kRetriedShare = 0.1;    // of the steps; the first steps of any job are among them
constexpr std::size_t kHostsShown = 8;

std::string with_thousands(std::uint64_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t at = digits.size(); at > 3;) {
    at -= 3;
    digits.insert(at, 1, ',');
  }
  return digits;
}

const char* outcome_of(elastic::Outcome outcome) {
  switch (outcome) {
    case elastic::Outcome::kDone: return "Done";
    case elastic::Outcome::kStopped: return "Stopped";
    case elastic::Outcome::kTooFewWorkers: return "Ended: too few workers";
    case elastic::Outcome::kFailed: return "Failed";
  }
  UNREACHABLE("every outcome has a text");
}

std::string headline(const Summary& s) {
  std::string outcome = outcome_of(s.outcome);
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
  const std::string who =
      r.members.empty() ? "" : fmt::format("worker {}", fmt::join(r.members, ", "));
  return fmt::format(
      "{:<13} {:<13} after step {:<6} {:>7.1f} ms to the next step "
      "(told {:.1f}, stopped {:.1f}, formed {:.1f}, synced {:.1f}), {} microbatches redone",
      elastic::name_of(r.cause), who, r.step, r.step_ms, r.told_ms, r.stopped_ms, r.formed_ms,
      r.synced_ms, r.redone_microbatches);
}

/// Lists the kinds of lost time that took at least a hundredth of a second, except waiting for
/// data, which has a line of its own.
std::string lost_time_line(const Summary::LostTime& lost) {
  std::vector<std::string> parts;
  for (const auto& [kind, seconds] :
       {std::pair("recoveries", lost.recoveries), std::pair("waiting", lost.waiting),
        std::pair("evaluations", lost.evaluations), std::pair("checkpoints", lost.checkpoints)}) {
    if (seconds >= 0.01) {
      parts.push_back(fmt::format("{} {:.2f} s", kind, seconds));
    }
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

/// For a job on several hosts: "3 on node-a, 1 on node-b".
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

}  // namespace

std::string sentence_of(const RecoveryRecord& r) {
  const std::string who = fmt::format("{}", fmt::join(r.members, ", "));
  if (r.cause == elastic::ChangeCause::kJoin) {
    return fmt::format("worker {} joined after step {}: first step together after {:.0f} ms", who,
                       r.step, r.step_ms);
  }
  if (r.cause == elastic::ChangeCause::kPromote) {
    return fmt::format("worker {} has work from step {} on: first step with it after {:.0f} ms",
                       who, r.step + 1, r.step_ms);
  }
  if (r.cause == elastic::ChangeCause::kCorrupted) {
    return fmt::format(
        "worker {} evicted before step {}: its state was wrong; next step after {:.0f} ms, {} "
        "microbatches redone",
        who, r.step + 1, r.step_ms, r.redone_microbatches);
  }
  if (r.cause == elastic::ChangeCause::kRebalance) {
    return fmt::format("microbatches reassigned after step {}: next step after {:.0f} ms", r.step,
                       r.step_ms);
  }
  if (r.cause == elastic::ChangeCause::kLeave) {
    return fmt::format("worker {} left after step {}: next step after {:.0f} ms", who, r.step,
                       r.step_ms);
  }
  if (r.cause == elastic::ChangeCause::kGroupFailed) {  // perhaps without the loss of a member
    return fmt::format(
        "the workers re-formed after step {} ({}): next step after {:.0f} ms, {} microbatches "
        "redone",
        r.step, r.detail, r.step_ms, r.redone_microbatches);
  }
  return fmt::format(
      "worker {} lost after step {}: the others re-formed in {:.0f} ms, next step after {:.0f} ms, "
      "{} microbatches redone",
      who, r.step, r.synced_ms, r.step_ms, r.redone_microbatches);
}

std::string sentence_of_skip(const StepRecord& step) {
  return fmt::format(
      "step {}: a gradient is not finite with loss scale {:.0f}; no update, and half of it from "
      "now on",
      step.step, step.loss_scale.value_or(1));
}

std::string sentence_of(const ProgramFailureRecord& r) {
  return fmt::format("the program of worker {} failed{}: {}", r.member,
                     r.at.empty() ? "" : " in " + r.at,
                     printable(last_line_of(r.detail)));  // of a traceback, the exception
}

std::string sentence_of(const FallBackRecord& r) {
  return fmt::format(
      "training diverged at step {} ({}): returning to the state after step {} and continuing with "
      "bsp; {} steps are undone and repeated",
      r.step + r.undone_steps, r.reason, r.step, r.undone_steps);
}

std::string sentence_of(const ShardRecord& r) {
  std::string staleness;
  for (const auto& [age, count] : r.staleness) {
    staleness += fmt::format(" {}:{}", age, count);
  }
  return fmt::format(
      "shard {}: {} updates, {} slices committed, {} repeats, {} late, {} leased again, {} mixed, "
      "{} at once, {} undone, {} probes, {} bytes in, {} bytes out, {} in shared memory, {} to its "
      "follower, staleness{}",
      r.shard, r.updates, r.committed, r.repeats, r.late, r.leased_again, r.mixed, r.at_once,
      r.undone, r.probes, r.bytes_in, r.bytes_out, r.bytes_shared, r.bytes_followed,
      staleness.empty() ? " none" : staleness);
}

std::string to_text(const Summary& s) {
  std::string out = headline(s) + "\n";
  if (s.test_top1) {
    const std::string loss = s.test_loss ? fmt::format(", loss {:.4f}", *s.test_loss) : "";
    out += line("test accuracy", fmt::format("{:.2f} %{}", *s.test_top1 * 100, loss));
  }
  const std::string place = s.isa.empty() ? "" : fmt::format(", {} {}", s.device, s.isa);
  const std::string data = s.data.empty() ? "" : " on " + s.data;  // no program has named any
  const std::string exchange = s.sync.empty()
                                   ? fmt::format("{} sum over {}", s.reduction, s.backend)
                                   : fmt::format("parameter servers, {}", s.sync);
  out +=
      line("trained", fmt::format("{}{}, seed {}, {}{}", s.model, data, s.seed, exchange, place));
  if (s.data_wait_seconds > kDataWaitShare * s.train_seconds && s.train_seconds > 0) {
    out +=
        line("data", fmt::format("compute threads waited {:.1f} s for it ({:.0f} %)",
                                 s.data_wait_seconds, 100 * s.data_wait_seconds / s.train_seconds));
  }
  if (static_cast<double>(s.retried_steps) > kRetriedShare * static_cast<double>(s.steps) &&
      s.retried_steps > 2) {
    out += line("retried", fmt::format("{} of {} steps were computed more than once, as gradients "
                                       "outgrew the range of the exact sum; larger microbatches "
                                       "or a lower learning rate avoid that",
                                       s.retried_steps, s.steps));
  }
  if (s.left_out.count > 0) {
    out += line("images", s.left_out.sentence());
  }
  if (const std::string lost = lost_time_line(s.lost_seconds); !lost.empty()) {
    out += line("lost time", lost);
  }
  out += line("membership", fmt::format("{} change{}", s.membership_changes,
                                        s.membership_changes == 1 ? "" : "s"));
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
    const std::string lack =
        e.step < s.steps ? "; the last one is not measured (mayfly evaluator --run-dir DIR)" : "";
    out += line("evaluations", fmt::format("{} checkpoint{}{}; of step {}: {:.2f} %, loss {:.4f}{}",
                                           e.count, e.count == 1 ? "" : "s", by, e.step,
                                           e.test_top1 * 100, e.test_loss, lack));
  }
  if (s.cost && *s.cost > 0) {
    out += line("cost", fmt::format("{:.{}f}", *s.cost, *s.cost < 1 ? 4 : 2));
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
