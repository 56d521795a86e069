#include "engine/membership/membership.hpp"

#include <fmt/format.h>

#include "base/file.hpp"
#include "base/log.hpp"
#include "engine/training/trainer.hpp"
#include "engine/training/worker_link.hpp"
#include "engine/transfers/checkpoint_uploader.hpp"
#include "engine/transfers/checkpoint_writer.hpp"

namespace mayfly::engine {
namespace {

/// No coordinator returned, so the checkpoint that this worker has just saved exists only here.
/// The provider that removes its folder (cloud_hooks/ssh) keeps one with this file.
void mark_as_left_alone(const JobConfig& config) {
  const Result<void> marked = write_file_atomic(config.run_dir + "/left_alone",
                                                "No coordinator has the newest checkpoint.\n");
  if (!marked.ok()) {
    log::warning(marked.error().detail + "; copy the checkpoint elsewhere");
  }
}

}  // namespace

elastic::member_effect::Leave train_as_member(const MembershipParts& parts,
                                              elastic::MemberClient& client, bool can_observe) {
  const JobConfig& config = parts.job.config;
  WorkerLink link(parts.transport, parts.computer, client);
  CheckpointUploader uploader(coordinator_endpoints(config), parts.token, client.job());
  CheckpointWriter checkpoints(
      parts.job, config.run_dir + "/checkpoints",
      [&client](const CheckpointRecord& record) { client.send_report(encode_record(record)); },
      &uploader);
  if (parts.trace != nullptr) {
    if (Result<void> opened = parts.trace->open(config.run_dir + "/trace", client.id());
        !opened.ok()) {
      log::warning("no trace: " + opened.error().detail);
    }
  }
  const Step committed = parts.state.committed();
  const std::uint64_t state_bytes = parts.state.packed_size();
  Trainer trainer({.job = parts.job,
                   .layout = parts.layout,
                   .feed = parts.feed,
                   .computer = parts.computer,
                   .state = parts.state,
                   .transport = parts.transport,
                   .client = client,
                   .link = link,
                   .checkpoints = checkpoints,
                   .board = parts.board,
                   .token = parts.token,
                   .recent_records = parts.unconfirmed.steps,
                   .trace = parts.trace,
                   .after_commit = parts.after_commit,
                   .device_sums = parts.device_sums,
                   .is_leaving = [&parts] { return parts.signals.asked(); }});
  client.start(link);
  if (client.joins_late() && can_observe) {
    trainer.prepare_to_observe();
  }
  parts.signals.set_client(&client);
  if (client.joins_late()) {  // before the job begins, a broken link stops no member
    parts.reach.wait(link.order_arrived(), [&link] { return link.has_order(); });
  }
  client.post(elastic::member_event::Loaded{committed, state_bytes});
  log::info(fmt::format("joined {} as member {}", config.coordinator, value(client.id())));
  elastic::member_effect::Leave leave = trainer.run();
  log::info(fmt::format("leaving: {}", leave.detail.empty() ? "the job is over" : leave.detail));
  if (leave.write_checkpoint && leave.reason == elastic::DismissReason::kJobFailed) {
    mark_as_left_alone(config);
  }
  parts.signals.set_client(nullptr);
  WorkerRecord used;
  used.steps = value(trainer.committed());
  if (parts.feed != nullptr) {
    const datasets::LoaderWork loaded = parts.feed->work();
    used.loader_wait_ms = to_ms(parts.feed->time_waited().total());
    used.prep_seconds = to_seconds(loaded.prep);
    used.bytes_read = loaded.bytes;
  }
  client.send_report(encode_record(used));
  parts.reach.cut_off(trainer.unproven_peers(leave.reason), monotonic_now());
  return leave;
}

}  // namespace mayfly::engine
