#include "tests/integration/elastic/test_job.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>

#include "base/net/addresses.hpp"
#include "elastic/net/handshake.hpp"
#include "elastic/net/job_token.hpp"

namespace mayfly::elastic {
namespace {

std::vector<MemberId> members_of(const View& view) {
  std::vector<MemberId> ids;
  for (const ViewMember& member : view.members) {
    ids.push_back(member.id);
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

std::uint16_t local_endpoint_port(const std::string& endpoint) {
  const Result<Endpoint> parsed = parse_endpoint(endpoint);
  return parsed.ok() ? parsed.value().port : std::uint16_t{0};
}

}  // namespace

// --- RecordingObserver

void RecordingObserver::change(const std::function<void(Seen&)>& edit) {
  const std::lock_guard lock(mutex_);
  edit(seen_);
  changed_.notify_all();
}

void RecordingObserver::on_note(Instant when, const coordinator_effect::Note& note) {
  change([&](Seen& seen) { seen.notes.push_back({when, note}); });
}
void RecordingObserver::on_view(Instant, const View& view) {
  change([&](Seen& seen) {
    if (seen.views.empty() || seen.views.back().id < view.id) {  // not a repeated message
      seen.views.push_back(view);
    }
  });
}
void RecordingObserver::on_recovery(const Recovery& recovery) {
  change([&](Seen& seen) { seen.recoveries.push_back(recovery); });
}
void RecordingObserver::on_report(MemberId member, ByteSpan payload, Instant /*happened*/) {
  change([&](Seen& seen) {
    seen.reports.emplace_back(member, Bytes(payload.begin(), payload.end()));
  });
}
CommandReply RecordingObserver::on_command(const Command& command) {
  return {true, "heard " + command.verb + " " + command.argument};
}
void RecordingObserver::on_ended(Outcome outcome, const std::string&) {
  change([&](Seen& seen) { seen.outcomes.push_back(outcome); });
}

void RecordingObserver::at_news(std::function<void(Seen&)> what) {
  const std::lock_guard lock(mutex_);
  at_news_ = std::move(what);
}
void RecordingObserver::on_news() {
  change([&](Seen& seen) {
    if (at_news_) {
      at_news_(seen);
    }
  });
}

bool RecordingObserver::wait_until(const std::function<bool(const Seen&)>& condition,
                                   const char* what) {
  std::unique_lock lock(mutex_);
  const bool held = changed_.wait_for(lock, kHangBound, [&] { return condition(seen_); });
  EXPECT_TRUE(held) << "never seen: " << what;
  return held;
}

View RecordingObserver::wait_for_view(std::vector<MemberId> members) {
  std::sort(members.begin(), members.end());
  View found;
  wait_until(
      [&](const Seen& seen) {
        for (const View& view : seen.views) {
          if (members_of(view) == members) {
            found = view;
          }
        }
        return !found.members.empty();
      },
      "the view");
  return found;
}

RecordingObserver::Seen::TimedNote RecordingObserver::wait_for_note(const std::string& kind,
                                                                    MemberId member) {
  Seen::TimedNote found;
  wait_until(
      [&](const Seen& seen) {
        for (const Seen::TimedNote& each : seen.notes) {
          if (each.note.kind == kind && each.note.member == member) {
            found = each;
            return true;
          }
        }
        return false;
      },
      kind.c_str());
  return found;
}

RecordingObserver::Seen RecordingObserver::seen() const {
  const std::lock_guard lock(mutex_);
  return seen_;
}

// --- ToyWorker

ToyWorker::ToyWorker(std::unique_ptr<MemberClient> client, bool ready)
    : id_(client->id()), owned_(std::move(client)) {
  client_->start(*this);
  if (ready) {
    client_->post(member_event::Loaded{Step{0}});
  }
}

void ToyWorker::run_view(const View& view) {
  {
    const std::lock_guard lock(mutex_);
    view_ = view.id;
    changed_.notify_all();
  }
  client_->post(member_event::GroupFormed{view.id});
  client_->post(member_event::StateSynced{view.id});
  client_->send_progress(Progress{view.id, view.committed, 1.0f});
}

void ToyWorker::abort_group(ViewId view) {
  {
    const std::lock_guard lock(mutex_);
    aborted_.push_back(view);
    changed_.notify_all();
  }
  stopped(view, false);
}

void ToyWorker::ask_for_boundary(const member_effect::AskForBoundary& ask) {
  if (stops_) {
    stopped(ask.view, false);
  }
}

void ToyWorker::stopped(ViewId view, bool finished) {
  Stopped report;
  report.view = view;
  report.finished = finished;
  client_->post(member_event::TrainerStopped{report});
}

void ToyWorker::finish() {
  ViewId view{};
  {
    const std::lock_guard lock(mutex_);
    view = view_;
  }
  stopped(view, true);
}

void ToyWorker::leave(const member_effect::Leave& leave) {
  const std::lock_guard lock(mutex_);
  left_ = leave;
  changed_.notify_all();
}

member_effect::Leave ToyWorker::wait_for_leave() {
  std::unique_lock lock(mutex_);
  EXPECT_TRUE(changed_.wait_for(lock, kHangBound, [&] { return left_.has_value(); }));
  return left_.value_or(member_effect::Leave{});
}

void ToyWorker::wait_for_view(ViewId view) {
  std::unique_lock lock(mutex_);
  EXPECT_TRUE(changed_.wait_for(lock, kHangBound, [&] { return view_ == view; }));
}

std::vector<ViewId> ToyWorker::aborted() const {
  const std::lock_guard lock(mutex_);
  return aborted_;
}

// --- TestJob

TestJob::TestJob(std::uint32_t initial_workers, CoordinatorOptions core)
    : token_(make_token()), core_(std::move(core)) {
  core_.initial_workers = initial_workers;
  char pattern[] = "/tmp/mayfly-test-job-XXXXXX";
  folder_ = ::mkdtemp(pattern);
  restart_coordinator();
}

TestJob::~TestJob() {
  server_.reset();
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void TestJob::kill_coordinator() {
  server_.reset();
}

void TestJob::restart_coordinator() {
  CoordinatorServerOptions options;
  options.token = token_;
  options.core = core_;
  options.core.identity = make_identity();
  options.port = local_endpoint_port(endpoint_);
  options.view_log = DurableViewLog::open(folder_ + "/view.log").value();
  EXPECT_TRUE(options.view_log->go_on().ok());
  Result<std::unique_ptr<CoordinatorServer>> server =
      start_coordinator(std::move(options), observer_);
  EXPECT_TRUE(server.ok()) << (server.ok() ? "" : server.error().detail);
  server_ = std::move(server).value();
  endpoint_ = server_->endpoint();
}

Result<std::unique_ptr<MemberClient>> TestJob::connect(
    Bytes token, std::vector<std::pair<std::string, std::string>> fingerprint,
    ReportQueue* reports) {
  MemberClientOptions options;
  options.endpoints = {endpoint_};
  options.coordinator_timeout = coordinator_timeout_;
  options.token = std::move(token);
  options.address = "toy";
  options.fingerprint = std::move(fingerprint);
  options.reports = reports;
  return connect_member(options, monotonic_now() + kHangBound);
}

std::unique_ptr<ToyWorker> TestJob::add_worker(bool ready, ReportQueue* reports) {
  Result<std::unique_ptr<MemberClient>> client = connect(token_, {}, reports);
  EXPECT_TRUE(client.ok());
  return std::make_unique<ToyWorker>(std::move(client).value(), ready);
}

CommandReply TestJob::command(const std::string& verb, const std::string& argument) {
  Result<CommandReply> reply = send_command(endpoint_, token_, Command{verb, argument}, kHangBound);
  EXPECT_TRUE(reply.ok()) << (reply.ok() ? "" : reply.error().detail);
  return reply.ok() ? std::move(reply).value() : CommandReply{};
}

std::vector<MemberId> ids_of(const std::vector<std::unique_ptr<ToyWorker>>& workers) {
  std::vector<MemberId> ids;
  for (const auto& worker : workers) {
    ids.push_back(worker->id());
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

}  // namespace mayfly::elastic
